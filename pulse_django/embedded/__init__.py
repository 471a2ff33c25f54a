"""A PostgreSQL server for development and tests: nothing to install, no port, no password."""

"""A PostgreSQL server of one's own, for development and tests: nothing to install, no port, no password."""

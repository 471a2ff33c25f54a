"""The tables as PostgreSQL has them: constraints, columns, queries, and how a statement reaches the server."""

"""The tables as PostgreSQL keeps them: constraints, columns, queries, and how a statement reaches the server."""

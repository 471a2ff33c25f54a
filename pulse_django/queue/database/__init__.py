"""The PostgreSQL part: columns, constraints, indexes, queries, and the transactions of statements."""

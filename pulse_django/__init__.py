"""Pulse for Django: a PostgreSQL job queue in which the claim is the lease."""

__version__ = "0.1.0.dev0"

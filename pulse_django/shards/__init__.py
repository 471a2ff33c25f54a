"""Shards: several databases, or schemas of Citus, have the jobs. Waiting jobs can be moved between them.

This is an axis, not a capability: the kernel imports where a job lives, and what Citus needs done in steps.
"""

"""Shards: jobs are stored in several databases or schemas of Citus. Waiting jobs can be moved between them.

Sharding is not a capability: the core imports the placement of jobs.
"""

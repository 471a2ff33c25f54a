"""Citus: a shard that is a schema of a cluster, which keeps it on one of its nodes (docs/adr/0086).

This package has the statements that differ there, and what only a cluster can do. Nothing else names Citus, except
``pulse_shards`` and the migrations. Tables in the layout for Citus need these statements on a plain server, too: a dump
may have been restored there.
"""

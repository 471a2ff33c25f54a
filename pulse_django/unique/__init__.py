"""Unique jobs: at most one job for each key, alive at a time or in each period; and idempotency keys.

It hands in the keys of a call, clauses of the INSERT, the retry of dead letters with keys, and the tables of keys and
periods. It may import ``queue``, ``run``, ``expiry`` and ``encryption``.
"""

"""Unique jobs: at most one unfinished job for each key, or one in each period; and idempotency keys.

It provides the keys of a call, clauses of the INSERT, the retry of dead letters with keys, and the tables of keys and
periods.
"""

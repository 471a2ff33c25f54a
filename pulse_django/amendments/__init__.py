"""Amendments: the arguments of a waiting job are changed, and those that it had before are kept.

It hands in the table of earlier arguments. It may import ``queue``, ``run``, ``unique``, ``limits`` and ``encryption``.
"""

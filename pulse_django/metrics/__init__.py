"""Metrics: the vital signs of the fleet, the statistics of each minute, and what exports them.

It hands in a loop of keepers. It may import ``queue``, ``run``, ``limits``, ``pauses`` and ``health``.
"""

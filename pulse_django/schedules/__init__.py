"""Schedules: what code declares, what people decide, and the loop that fires ticks.

It hands in a loop of keepers and the table of ticks. It may import ``queue``, ``run`` and ``encryption``.
"""

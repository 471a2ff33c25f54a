"""Schedules: declared by code, changed by users, and fired by a loop.

It provides a loop of keepers and the table of ticks.
"""

"""Pauses: no job of a queue, a task, or a key of a limit or a share starts, for some time or until it is resumed.

It provides the conditions that claims check.
"""

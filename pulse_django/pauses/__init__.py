"""Pauses: no job of a queue, of a task, or of a key of a limit or a share starts, for a time or until it is resumed.

It hands in the gates of pauses. It may import ``queue`` and ``run``.
"""

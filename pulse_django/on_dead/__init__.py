"""Hooks of dead letters: ``on_dead=`` of a task enqueues a job of another task when a job becomes a dead letter.

It hands in a field of new jobs, and an INSERT beside the end of a run. It may import ``encryption``.
"""

"""Hooks of dead letters: ``on_dead=`` of a task enqueues a job of another task when a job becomes a dead letter.

It provides a field of new jobs, and an INSERT in the statement that ends a run.
"""

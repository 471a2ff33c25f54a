"""Expiry: a job that has not started in time is cancelled, and never started.

It hands in the gate of expired jobs and a step of sweeps. It may import ``queue``.
"""

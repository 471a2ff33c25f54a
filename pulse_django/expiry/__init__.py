"""Expiry: a job that has not started in time is cancelled, and never started.

It provides the condition that claims check and a step of sweeps.
"""

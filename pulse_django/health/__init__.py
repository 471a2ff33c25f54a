"""The state of the fleet: facts, conditions, alerts, advice, and why a job does not run.

It hands in a step of sweeps that gives up jobs whose task no worker knows. It may import ``queue``, ``run`` and the
facts of rooms.
"""

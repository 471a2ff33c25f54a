"""The state of the fleet: facts, conditions, alerts, advice, and why a job does not run.

It registers a sweep step that dead-letters jobs whose task no worker has.
"""

"""Metrics: the vital signs of the fleet, the statistics of each minute, and their exporters.

It registers a loop of keepers.
"""

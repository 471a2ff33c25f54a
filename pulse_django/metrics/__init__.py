"""Metrics: the statistics of each minute."""

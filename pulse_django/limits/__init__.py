"""Limits: how many jobs run at once, and how many start in a time. Shares deal slots among keys.

It hands in the lane key of a call, who claims from lanes with limits, the weights of shares, what the end of a run
means for a limit, and a step of housekeeping. It may import ``queue``, ``run``, ``unique`` and ``encryption``.
"""

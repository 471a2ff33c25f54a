"""Limits: how many jobs run at once, and how many start in a period. Shares divide slots among keys.

It provides the lane key of a call, the claimer of lanes with limits, the weights of shares, the effect of a run's end
on a limit, and a step of housekeeping.
"""

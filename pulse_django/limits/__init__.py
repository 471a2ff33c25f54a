"""Limits of how many jobs run at once and how many start in a time. Shares deal slots among keys."""

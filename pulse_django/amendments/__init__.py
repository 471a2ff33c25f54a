"""Amendments: change the arguments of a waiting job, and keep the earlier ones.

It provides the table of earlier arguments.
"""

"""Schedules: what code declares, what people decide, and the loop that fires ticks."""

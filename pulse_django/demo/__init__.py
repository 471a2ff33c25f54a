"""``manage.py pulse_demo``: workers that are really killed, and what becomes of their jobs."""

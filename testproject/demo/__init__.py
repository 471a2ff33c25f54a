"""``manage.py pulse_demo``: kill real workers, and see their jobs recovered."""

"""SQL can enqueue: ``SELECT pulse_enqueue('shop.tasks.ship', '[7]')`` in triggers, other languages and psql.

The function is in ``migrations/_enqueue.py``. This folder provides the loop in which workers store the options of the
tasks that their code declares.
"""

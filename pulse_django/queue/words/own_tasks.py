"""Pulse's own tasks. Their jobs act for an operator, so projects cannot enqueue, amend or retry them."""

PLAN, ACT = "pulse_django.find_matching_jobs", "pulse_django.act_on_jobs"
OWN_TASKS = (PLAN, ACT)
ONLY_PULSE = "only Pulse enqueues jobs of this task, and they cannot be changed or retried"

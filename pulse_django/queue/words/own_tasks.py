"""The tasks of Pulse itself: their jobs act for an operator, so nobody else enqueues, amends or retries one."""

PLAN, ACT = "pulse_django.find_matching_jobs", "pulse_django.act_on_jobs"
OWN_TASKS = (PLAN, ACT)
ONLY_PULSE = "only Pulse itself enqueues jobs of this task, and they are neither changed nor retried"

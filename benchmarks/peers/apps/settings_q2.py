"""What django-q2 needs in the settings. As it is configured by them alone, so is what the measurement asks for."""

import os

# Kept for ever, because the default of 250 results is pruned by a count at every end of a task; a worker is not
# recycled every 500 tasks; and many tasks are taken at once.
TUNED = {"save_limit": 0, "recycle": 1_000_000, "bulk": 100, "queue_limit": 200, "timeout": 60, "retry": 90}


def added(installed: list[str]) -> dict[str, object]:
    chosen = {"name": "bench", "orm": "default", "label": "bench"}
    if os.environ.get("BENCH_TUNED"):
        chosen |= TUNED | {"workers": int(os.environ.get("BENCH_PROCESSES", "1"))}
    return {"INSTALLED_APPS": [*installed, "django_q"], "Q_CLUSTER": chosen, "TIME_ZONE": "UTC"}

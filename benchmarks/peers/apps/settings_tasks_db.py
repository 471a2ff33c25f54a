"""What django-tasks-db needs in the settings."""

import importlib.util
import os


def added(installed: list[str]) -> dict[str, object]:
    ours = importlib.util.find_spec("django.tasks") is None
    return {
        "INSTALLED_APPS": [*installed, *(["django_tasks"] if ours else []), "django_tasks_db"],
        "TASKS": {"default": {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": []}},
        "LOGGING": {
            "version": 1,
            "disable_existing_loggers": False,
            "root": {"level": os.environ.get("LEVEL", "INFO")},
        },
    }

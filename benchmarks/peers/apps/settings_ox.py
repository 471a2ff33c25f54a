"""What django-ox needs in the settings."""


def added(installed: list[str]) -> dict[str, object]:
    return {
        "INSTALLED_APPS": [*installed, "django_ox"],
        "TASKS": {"default": {"BACKEND": "django_ox.backend.OxBackend", "QUEUES": []}},
    }

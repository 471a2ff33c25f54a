"""The settings of a project that has the night shift."""

from testproject.settings import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "tests.night_shift"]  # type: ignore[name-defined]  # noqa: F405

"""The app that installs the night shift. It stands behind ``pulse_django`` in INSTALLED_APPS."""

from __future__ import annotations

from django.apps import AppConfig

from pulse_django.queue import capability

from . import CAPABILITY


class NightShift(AppConfig):
    name = "tests.night_shift"
    label = "night_shift"

    def ready(self) -> None:
        capability.install(*capability.installed(), CAPABILITY)

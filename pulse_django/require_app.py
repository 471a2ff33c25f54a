"""Refuse an import of the models without the app, with the line to write. Django's own error names only a model."""

from __future__ import annotations

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

if apps.apps_ready and not apps.is_installed("pulse_django"):
    raise ImproperlyConfigured('Pulse is not installed as an app. Set INSTALLED_APPS += ["pulse_django"].')

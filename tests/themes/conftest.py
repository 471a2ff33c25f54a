"""The admin under a theme: ``make themes`` runs this folder once for each. Without a theme there is nothing to run."""

from __future__ import annotations

from django.conf import settings

collect_ignore_glob = [] if settings.THEME else ["test_*.py"]

"""The tables of what tasks and queues did, and of the releases. ``models.py`` loads them with the others."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from .store.releases import ReleaseRow
from .store.sql_functions import instants_of
from .store.traffic import TrafficRow


class Traffic(TrafficRow):
    """What one task or queue did in one span of time."""

    objects: ClassVar[models.Manager[Traffic]] = models.Manager()

    class Meta:
        constraints: ClassVar = [instants_of("traffic", "began_at")]
        default_permissions = ()


class Release(ReleaseRow):
    """A version of the project that workers brought, for the marks in charts."""

    objects: ClassVar[models.Manager[Release]] = models.Manager()

    class Meta:
        constraints: ClassVar = [instants_of("release", "seen_at")]
        default_permissions = ()

"""The fixture that starts real workers, and somebody who may do everything, beside them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client

from tests.crash.workers import workers

from .roles import roles

__all__ = ["roles", "workers"]


@pytest.fixture
def root(pulse_db: None) -> Iterator[Client]:
    """As ``admin_client``, where transactions really commit."""
    user, client = User.objects.create_superuser("root-of-security"), Client()
    client.force_login(user)
    yield client
    Session.objects.all().delete()
    user.delete()

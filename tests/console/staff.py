"""Somebody who may log in to the admin, and do there what these permissions say."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client


def staff(*permissions: str, **options: Any) -> Client:
    user = User.objects.create_user("operator", is_staff=True)
    found = Permission.objects.filter(codename__in=permissions)
    assert {one.codename for one in found} == set(permissions), "there is no such permission"
    user.user_permissions.set(found)
    client = Client(**options)
    client.force_login(user)
    return client

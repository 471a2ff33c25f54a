"""Somebody who may log in to the admin, do there what these permissions say, and look at its pages."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Permission, User
from django.db.models import Model
from django.test import Client
from django.urls import reverse


def staff(*permissions: str, **options: Any) -> Client:
    user = User.objects.create_user("operator", is_staff=True)
    found = Permission.objects.filter(codename__in=permissions)
    assert {one.codename for one in found} == set(permissions), "there is no such permission"
    user.user_permissions.set(found)
    client = Client(**options)
    client.force_login(user)
    return client


def page_of(row: Model) -> str:
    """Return the address of the page of a row."""
    return reverse(f"admin:pulse_django_{row._meta.model_name}_change", args=[row.pk])


def text(client: Client, address: str, **query: Any) -> str:
    """Open a page, and return its HTML."""
    response = client.get(address, query) if query else client.get(address)
    assert response.status_code == 200, (response.status_code, address)
    return response.content.decode()

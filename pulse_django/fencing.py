"""Fencing for other resources: a write with an older token than the resource has seen changes nothing, and says so."""

from __future__ import annotations

from typing import Any, Protocol

from django.db import models, router, transaction
from django.db.models import QuerySet

from .exceptions import StaleToken
from .models import Fence
from .transactions import run_joined

# The row stays locked until the caller's transaction ends, so that what it guards cannot be overtaken meanwhile.
_RAISE_MARK = """
INSERT INTO pulse_django_fence AS fence (resource, token) VALUES (%s, %s)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE fence.token <= excluded.token
RETURNING token
"""


class HasToken(Protocol):
    """A handler's context, or anything else with a token."""

    @property
    def token(self) -> int: ...


class FencedModel(models.Model):
    """Mix in to rows that several jobs write to: they remember the largest token that wrote them."""

    fencing_token = models.BigIntegerField(default=0, db_default=0, editable=False)

    class Meta:
        abstract = True


def fenced_update(queryset: QuerySet[Any], context: HasToken, **values: Any) -> int:
    """Update the rows of a ``FencedModel`` unless a newer token wrote one of them: then none, and ``StaleToken``."""
    rows = queryset.order_by()
    pks = list(rows.values_list("pk", flat=True))
    fenced = queryset.model._base_manager.using(rows.db).filter(pk__in=pks)
    with transaction.atomic(using=router.db_for_write(queryset.model)):
        seen = fenced.order_by("pk").select_for_update(no_key=True).values_list("pk", "fencing_token")
        if newer := [pk for pk, token in seen if token > context.token]:
            label = f"{queryset.model._meta.label} {newer[0]}"
            raise StaleToken(f"{label} has seen a newer token than {context.token}; nothing was changed")
        return int(fenced.update(fencing_token=context.token, **values))


def fence(resource: str, context: HasToken) -> None:
    """Pass the fence of a resource that has no column for a token, or raise ``StaleToken``.

    Call it in the transaction that does the guarded writes, before them.
    """
    if not run_joined(router.db_for_write(Fence), _RAISE_MARK, [resource, context.token]):
        raise StaleToken(f"{resource!r} has seen a newer token than {context.token}")

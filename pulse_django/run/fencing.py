"""Fencing for other resources: a write with an older token than the last one is refused with an error."""

from __future__ import annotations

from typing import Any, Protocol

from django.db import models, router, transaction
from django.db.models import QuerySet

from pulse_django.exceptions import StaleToken
from pulse_django.queue.database.transactions import is_in_callers_transaction, run_joined
from pulse_django.shards.placement import alias_of_jobs

# The row stays locked until the caller's transaction ends, so that no newer token can come in between.
_RAISE_MARK = """
INSERT INTO pulse_django_fence AS fence (resource, token) VALUES (%s, %s)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE fence.token <= excluded.token
RETURNING token
"""


MAX_RESOURCE = 200


class HasToken(Protocol):
    """A handler's context, or another object with a token."""

    @property
    def token(self) -> int: ...


class FencedModel(models.Model):
    """Base class of models that several jobs write to. A row stores the largest token that wrote it."""

    fencing_token = models.BigIntegerField(default=0, db_default=0, editable=False)

    class Meta:
        abstract = True


def fenced_update(queryset: QuerySet[Any], context: HasToken, /, **values: Any) -> int:
    """Update rows of a ``FencedModel``. If a newer token wrote one of them, change none and raise ``StaleToken``."""
    model = queryset.model
    alias = getattr(queryset, "_db", None) or router.db_for_write(model)
    wanted = queryset.using(alias).order_by()
    rows = model._base_manager.using(alias)
    with transaction.atomic(using=alias):
        targets = rows.filter(pk__in=list(wanted.values_list("pk", flat=True))).order_by("pk")
        locked = list(targets.select_for_update(no_key=True).values_list("pk", flat=True))
        # Check again under the locks: another write may have changed the rows before they were locked.
        tokens = dict(wanted.filter(pk__in=locked).values_list("pk", "fencing_token"))
        if newer := [pk for pk, token in tokens.items() if token > context.token]:
            label = f"{model._meta.label} {newer[0]}"
            raise StaleToken(f"{label} already has a newer token than {context.token}; nothing was changed")
        return int(rows.filter(pk__in=list(tokens)).update(fencing_token=context.token, **values))


def fence(resource: str, context: HasToken, *, using: str | None = None) -> None:
    """Check the token for a resource that has no column for one. Raise ``StaleToken`` if a newer token was used.

    Call it before the guarded writes, in the same transaction. Outside of a transaction, it would protect nothing,
    because its lock would end before the first write. There it raises ``TransactionManagementError``.

    The fence is stored in the database of the handler's job. ``using`` is the alias of another one: the database of the
    transaction. Tokens from different databases are not comparable, so use a fence only for jobs of one database.
    """
    if not isinstance(resource, str) or not 0 < len(resource) <= MAX_RESOURCE or not resource.isprintable():
        raise ValueError(f"resource: {resource!r} must be printable and at most {MAX_RESOURCE} characters long")
    alias = alias_of_jobs(using)
    if not is_in_callers_transaction(alias):
        raise transaction.TransactionManagementError(
            f"fence() must be called inside transaction.atomic() or context.atomic() on database {alias!r}"
        )
    if not run_joined(alias, _RAISE_MARK, [resource, context.token]):
        raise StaleToken(f"{resource!r} already has a newer token than {context.token}")

"""Fencing for other resources: a write with an older token than the last changes nothing, and raises."""

from __future__ import annotations

from typing import Any, Protocol

from django.db import models, router, transaction
from django.db.models import QuerySet

from pulse_django.exceptions import StaleToken
from pulse_django.queue.database.transactions import is_in_callers_transaction, run_joined
from pulse_django.shards.placement import alias_of_jobs

# The row stays locked until the caller's transaction ends, so that what it guards cannot be overtaken meanwhile.
_RAISE_MARK = """
INSERT INTO pulse_django_fence AS fence (resource, token) VALUES (%s, %s)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE fence.token <= excluded.token
RETURNING token
"""


MAX_RESOURCE = 200


class HasToken(Protocol):
    """A handler's context, or anything else with a token."""

    @property
    def token(self) -> int: ...


class FencedModel(models.Model):
    """Mix in to rows that several jobs write to: they remember the largest token that wrote them."""

    fencing_token = models.BigIntegerField(default=0, db_default=0, editable=False)

    class Meta:
        abstract = True


def fenced_update(queryset: QuerySet[Any], context: HasToken, /, **values: Any) -> int:
    """Update the rows of a ``FencedModel`` unless a newer token wrote one of them: then none, and ``StaleToken``."""
    model = queryset.model
    alias = getattr(queryset, "_db", None) or router.db_for_write(model)
    wanted = queryset.using(alias).order_by()
    rows = model._base_manager.using(alias)
    with transaction.atomic(using=alias):
        meant = rows.filter(pk__in=list(wanted.values_list("pk", flat=True))).order_by("pk")
        locked = list(meant.select_for_update(no_key=True).values_list("pk", flat=True))
        # Asked again under the locks: what a row was before another write is no reason to write it now.
        tokens = dict(wanted.filter(pk__in=locked).values_list("pk", "fencing_token"))
        if newer := [pk for pk, token in tokens.items() if token > context.token]:
            label = f"{model._meta.label} {newer[0]}"
            raise StaleToken(f"{label} already has a newer token than {context.token}; nothing was changed")
        return int(rows.filter(pk__in=list(tokens)).update(fencing_token=context.token, **values))


def fence(resource: str, context: HasToken, *, using: str | None = None) -> None:
    """Pass the fence of a resource that has no column for a token, or raise ``StaleToken``.

    Call it in the transaction that does the guarded writes, before them. Outside of one it would guard nothing: the
    fence would be open again before the first write, and it raises ``TransactionManagementError``.

    The fence stands in the database of the handler's job; ``using`` names another, that of the transaction. Tokens of
    jobs of different databases are not comparable: let the jobs of one database alone pass a fence.
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

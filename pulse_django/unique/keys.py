"""The unique key of a call: a hash of the arguments that its task names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.crypto import salted_hmac

from pulse_django.encryption.values import encrypts, hides_arguments
from pulse_django.exceptions import InvalidJob, PayloadError
from pulse_django.queue.capability import CallFields, Capability, Internals, Satellite
from pulse_django.queue.words.payloads import canonical
from pulse_django.run.registry import Task, key_of
from pulse_django.run.signatures import by_name

from .admission import UniqueAdmission, UniqueRetry
from .rule import Unique, UniqueKey

_SALT = "pulse_django.unique"
_SALT_OF_IDEMPOTENCY = "pulse_django.idempotency"


def key_of_call(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> UniqueKey | None:
    """Return the key of a job with these arguments, which fit the task. None: its jobs are not unique."""
    rule: Unique | None = getattr(task, "unique", None)
    if rule is None:
        return None
    is_hidden = hides_arguments(task)
    try:
        text = f"{key_of(task)} {canonical(_material(task, rule, args, kwargs), what='unique')}"
    except PayloadError as error:
        # The message of the exception may contain masked values.
        raise (InvalidJob("unique: JSON cannot hold what the key is made of") if is_hidden else error) from None
    if is_hidden:  # a plain hash of a short secret could be found by brute force
        return UniqueKey(salted_hmac(_SALT, text, algorithm="sha256").hexdigest(), rule)
    return UniqueKey.of(text, rule)


def idempotency_key_of(task: Task, key: str) -> str:
    """Return the idempotency key to store in a job: a hash, if the job is encrypted."""
    if not encrypts(task):
        return key
    return salted_hmac(_SALT_OF_IDEMPOTENCY, f"{key_of(task)} {key}", algorithm="sha256").hexdigest()


def _material(task: Task, rule: Unique, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the values of the key."""
    if callable(rule.by):
        return rule.by(*args, **kwargs)
    given, defaults = by_name(task, args, kwargs)
    if not rule.by:
        return given | {name: value for name, value in defaults.items() if _fits_json(value)}
    found = defaults | given
    if missing := [name for name in rule.by if name not in found]:
        raise InvalidJob(f"unique: cannot tell which argument is {missing[0]!r}; pass it by name")
    return [found[name] for name in rule.by]


def _fits_json(value: object) -> bool:
    """Say whether a default can be part of a key. A sentinel, for example, cannot."""
    try:
        canonical(value, what="unique")
    except PayloadError:
        return False
    return True


WINDOWS_LIMIT = 10_000  # a few bytes each
_KEYS = Satellite(
    table="pulse_django_key",
    rows="keys",
    reads=("idempotency_key",),
    deletion="""
freed AS (
    DELETE FROM pulse_django_key AS key
    USING {jobs} AS job
    WHERE key.task::text = job.task::text AND key.key::text = job.idempotency_key::text AND key.job_id = job.id
)""",
    of_day="idempotency_key IS NOT NULL",
)
# Expired periods of unique jobs.
_OUTDATED = f"""
ended AS MATERIALIZED (
    SELECT task, key
    FROM pulse_django_window
    WHERE until < statement_timestamp()
    ORDER BY until
    LIMIT {WINDOWS_LIMIT}
    FOR UPDATE SKIP LOCKED
),
closed AS (
    DELETE FROM pulse_django_window AS win
    USING ended
    WHERE win.task::text = ended.task::text AND win.key::text = ended.key::text AND win.until < statement_timestamp()
)"""  # noqa: S608 - made of constants


class KeyFields(CallFields):
    """The keys of a new job."""

    def is_used(self, task: Task) -> bool:
        return getattr(task, "unique", None) is not None or getattr(task, "idempotency_key", None) is not None

    def fields(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keys of a new job."""
        key = getattr(task, "idempotency_key", None)
        return {
            "unique": key_of_call(task, args, kwargs),
            "idempotency_key": None if key is None else idempotency_key_of(task, key),
        }

    def waits(self, task: Task) -> bool:
        return getattr(task, "unique", None) is not None


CAPABILITY = Capability(
    name="unique",
    call_fields=KeyFields(),
    satellites=(_KEYS, Satellite(table="pulse_django_window", rows="windows")),
    internals=Internals(parts=(UniqueAdmission(), UniqueRetry()), outdated=_OUTDATED),
)

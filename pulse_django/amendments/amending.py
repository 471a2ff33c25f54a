"""Change the arguments of a waiting job. They are checked like those of a new job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pulse_django import conf
from pulse_django.encryption import values as encryption
from pulse_django.encryption.values import searched
from pulse_django.exceptions import InvalidJob
from pulse_django.limits.keys import has_lane_key, lane_key_of_call
from pulse_django.models import Job
from pulse_django.queue.capability import Capability, Satellite
from pulse_django.queue.words.job_options import Payload
from pulse_django.queue.words.masks import is_encrypted
from pulse_django.queue.words.own_tasks import ONLY_PULSE, OWN_TASKS
from pulse_django.queue.words.states import CLAIMABLE, Status
from pulse_django.run.calls import checked, names_of
from pulse_django.run.codec import codec
from pulse_django.run.registry import Task, registry
from pulse_django.unique.keys import key_of_call

from .amend import Amended, AmendRefusal, Found, read_for_amending, why_not

MOST_TRIES = 10  # each fails if another caller has amended the job


def amend(
    alias: str,
    job_id: int,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    attempt: int | None = None,
    by: str = "",
    reason: str = "",
    instead_of: Found | None = None,
) -> Amended:
    """Change the positional arguments, the named ones, or both. None: they stay.

    With ``instead_of``, the job must not have changed since it was read.
    """
    _check(args, kwargs)
    jobs = Job.objects.db_manager(alias)
    for _ in range(MOST_TRIES if instead_of is None else 1):
        found = instead_of or read_for_amending(jobs, job_id)
        if found is None or found.status not in (Status.WAITING, *CLAIMABLE) or found.is_expired:
            return Amended(job_id=job_id, refused=why_not(found))
        task = registry.get(found.task)
        if found.task in OWN_TASKS:
            raise InvalidJob(f"job {job_id}: {ONLY_PULSE}")
        if task is None:
            raise InvalidJob(f"job {job_id}: this process has no task {found.task!r}, so arguments cannot be checked")
        old_args, old_kwargs = _arguments_of(found) if args is None or kwargs is None else ([], {})
        new = (old_args if args is None else args, old_kwargs if kwargs is None else kwargs)
        answer: Amended = jobs.amend(
            job_id,
            _payload(task, found, *checked(task, *new)),
            attempt=found.attempts if attempt is None else attempt,
            instead_of=found,
            unique_key=_key(task, found, *new),
            lane_key=_lane_key(task, *new),
            by=by,
            reason=reason,
        )
        if answer.refused is not AmendRefusal.CHANGED or (attempt is not None and attempt != found.attempts):
            return answer
    return answer


def _check(args: object, kwargs: object) -> None:
    if args is None and kwargs is None:
        raise InvalidJob("amend: give args, kwargs or both")
    if args is not None and (isinstance(args, str | bytes) or not isinstance(args, Sequence)):
        raise InvalidJob(f"args: {type(args).__name__} is not a list")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise InvalidJob(f"kwargs: {type(kwargs).__name__} is not a dict")


def _arguments_of(found: Found) -> tuple[list[Any], dict[str, Any]]:
    try:
        job = Job(
            task=found.task, args=json.loads(found.args), kwargs=json.loads(found.kwargs), sensitive=found.sensitive
        )
    except (ValueError, RecursionError):
        raise InvalidJob("amend: the old arguments cannot be read; give both args and kwargs") from None
    return codec().arguments_of(job)


def _payload(task: Task, found: Found, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Payload:
    """Encode the arguments. A job stays encrypted or unencrypted, because its progress does."""
    payload = Payload.of(
        args, kwargs, conf.current().max_payload_bytes, names_of(task), found.sensitive, searched(task)
    )
    return encryption.PayloadEncryption(found.task)(payload) if is_encrypted(found.sensitive) else payload


def _key(task: Task, found: Found, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return the unique key of the new arguments. A period keeps its first key."""
    if found.unique_key is None:
        return None
    with _named("unique"):
        key = key_of_call(task, args, kwargs)
    return None if key is None or key.rule.per is not None else key.key


def _lane_key(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return the lane key of the new arguments. None: it does not change."""
    if not has_lane_key(task):
        return None
    with _named("key"):
        return lane_key_of_call(task, args, kwargs)


@contextmanager
def _named(option: str) -> Iterator[None]:
    """Name the option in an error that a function of the project raises."""
    try:
        yield
    except (InvalidJob, KeyboardInterrupt):
        raise
    except BaseException as error:  # SystemExit too: it would end the process of a page
        raise InvalidJob(f"{option}: {type(error).__name__} was raised for these arguments") from error


_AMENDMENTS = Satellite(
    table="pulse_django_amendment",
    rows="amendments",
    deletion="""
unamended AS (
    DELETE FROM pulse_django_amendment WHERE job_id = ANY (ARRAY(SELECT id FROM {jobs}))
)""",
    of_day="id IN (SELECT job_id FROM pulse_django_amendment)",
)
CAPABILITY = Capability(name="amendments", satellites=(_AMENDMENTS,))

"""Enqueue the hook of a job that becomes a dead letter, in the statement that ends its run.

The row of the job holds the row of its hook from the beginning, because a watchdog that ends the run may not have the
code of the project.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from pulse_django import conf
from pulse_django.backend import PulseBackend, new_job
from pulse_django.encryption.values import encrypts
from pulse_django.exceptions import InvalidJob
from pulse_django.queue.capability import AtEnd, CallFields, Capability
from pulse_django.queue.database.transactions import copied
from pulse_django.queue.words.masks import EVERYTHING, is_encrypted
from pulse_django.queue.words.options import JOB_OPTIONS, Duration, Flag, Text, Whole, with_settings


class DeadJob(TypedDict):
    """The argument of a hook: the facts about the dead job."""

    job_id: str  # the job that died
    task: str  # its name
    queue: str  # its queue
    attempt: int  # the number of the last run
    args: list[Any] | None  # its positional arguments; None: it is encrypted
    kwargs: dict[str, Any] | None  # its named arguments; None: it is encrypted
    reason: str  # as the page of the dead letter shows it
    last_error: str  # of the last run


_KINDS: Mapping[type, str] = {Whole: "int", Duration: "interval", Text: "text", Flag: "boolean"}
_OF_HOOK = {"task": "text", "queue": "text", "priority": "int", "tags": "text[]", "lane_key": "text"} | {
    option.column: _KINDS[type(option.kind)] for option in JOB_OPTIONS if option.name != "idempotency_key"
}
_COLUMNS = ", ".join(_OF_HOOK)

# The statement's snapshot has the row from before the end of the job, with the same arguments.
_ENQUEUE = f"""
    INSERT INTO pulse_django_job_hot ({_COLUMNS}, sensitive, meta, parent_id, trace, args, payload_bytes)
    SELECT
        {", ".join(f"hook.{column}" for column in _OF_HOOK)},
        hook.sensitive, COALESCE(hook.meta, dead.meta), dead.id, dead.trace, dead.facts,
        pg_catalog.octet_length(dead.facts::text) + 2
    FROM (
        SELECT
            job.id, job.on_dead, job.meta, job.trace,
            pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object(
                'job_id', job.id::text, 'task', job.task, 'queue', job.queue, 'attempt', job.attempts,
                'args', CASE WHEN (job.on_dead ->> 'gets_arguments'::text)::boolean THEN job.args END,
                'kwargs', CASE WHEN (job.on_dead ->> 'gets_arguments'::text)::boolean THEN job.kwargs END,
                'reason', ended.reason, 'last_error', ended.last_error
            )) AS facts
        FROM (
            SELECT
                id AS dead_id, error AS reason,
                pg_catalog.concat_ws(
                    ': ', NULLIF(pg_catalog.replace(error_class, 'builtins.', ''), ''), NULLIF(message, '')
                ) AS last_error
            FROM {{stayed}}
            WHERE verdict = 'DEAD_LETTERED'
        ) AS ended
        JOIN pulse_django_job_hot AS job ON job.id = ended.dead_id AND pg_catalog.jsonb_typeof(job.on_dead) = 'object'
    ) AS dead
    CROSS JOIN LATERAL pg_catalog.jsonb_to_record(dead.on_dead) AS hook (
        {", ".join(f"{column} {kind}" for column, kind in _OF_HOOK.items())}, sensitive text, meta jsonb
    )
"""  # noqa: S608 - made of constants

# Bytes, as the row is stored. A copy of the job gets it (``fork()``). The rows of declared hooks have 350 or less. A
# long one makes ends slow: 128 kB of one letter are stored in 1,500 bytes, and ends would take half as long again.
_MOST_CARRIED = 1_000


def _row_of_hook(task: Any, settings: conf.PulseSettings) -> str:
    if not isinstance(task.on_dead.get_backend(), PulseBackend):
        raise InvalidJob(f"on_dead: no worker of Pulse's runs jobs of the backend {task.on_dead.backend!r}")
    new, is_sealed = new_job(task.on_dead, ({},), {}), encrypts(task)
    stored = with_settings(new.by_column(), settings)
    row = {column: stored[column] for column in _OF_HOOK} | {"meta": None if new.meta is None else json.loads(new.meta)}
    # The database encrypts nothing, and the hook must not show arguments that the task hides. They are part of one
    # argument of the hook, so all of it is hidden, whatever the hook itself hides.
    hides_all = is_sealed or task.sensitive or is_encrypted(new.sensitive)
    row |= {"sensitive": EVERYTHING.text if hides_all else new.sensitive, "gets_arguments": not is_sealed}
    return json.dumps({name: value for name, value in row.items() if value is not None}, default=copied)


class HookFields(CallFields):
    """The row of the hook of a new job."""

    def is_used(self, task: Any) -> bool:
        return getattr(task, "on_dead", None) is not None

    def fields(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, str]:
        """Return the row. It is made for the first job of a task, and kept."""
        settings = conf.current()
        made = getattr(task, "_row_of_hook", None)
        if made is None or made[0] is not settings:
            made = settings, _row_of_hook(task, settings)
            object.__setattr__(task, "_row_of_hook", made)
        return {"on_dead": made[1]}


CALL_FIELDS = HookFields()
CAPABILITY = Capability(
    name="on_dead",
    call_fields=CALL_FIELDS,
    carries={"on_dead": f"CASE WHEN pg_catalog.pg_column_size(on_dead) <= {_MOST_CARRIED} THEN on_dead END"},
    at_end=AtEnd(columns={}, over="", stayed=_ENQUEUE, is_noted="verdict = 'DEAD_LETTERED'", may_fail=True),
)

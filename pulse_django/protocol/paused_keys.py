"""What is paused: keys of limits and shares, whose lanes are left out of claims, and tasks.

The row of a task is spelt ``task=<name>``, with a queue behind it if it is paused in that queue alone. No key is, so
each of the verbs refuses the other's.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import models, router

from pulse_django.exceptions import InvalidJob
from pulse_django.store.queues import IS_OF_TASK, MAX_REASON, TASK_OF_PAUSE
from pulse_django.store.transactions import run_joined
from pulse_django.words.job_options import TASK_NAME, check_queue_name
from pulse_django.words.limiting import MAX_PAUSED, is_pause_of_task, key_of, pause_of_task
from pulse_django.words.limits import MAX_USER
from pulse_django.words.options import Duration, Note
from pulse_django.words.payloads import clean_text

if TYPE_CHECKING:
    from pulse_django.models import PausedKey  # noqa: F401 - named in the base class below

# A later end stays: whoever was told the longer time knows better.
_PAUSE = """
INSERT INTO pulse_django_pausedkey AS paused (lane_key, paused_until, reason, paused_by)
SELECT lane_key, clock_timestamp() + %(seconds)s::float8 * interval '1 second', %(reason)s, %(by)s
FROM pg_catalog.unnest(%(lane_keys)s::text[]) AS wanted (lane_key)
ON CONFLICT (lane_key) DO UPDATE SET
    paused_until = excluded.paused_until, reason = excluded.reason, paused_by = excluded.paused_by,
    paused_at = excluded.paused_at
WHERE paused.paused_until IS NOT NULL
    AND (excluded.paused_until IS NULL OR paused.paused_until < excluded.paused_until)
RETURNING lane_key
"""
_RESUME = "DELETE FROM pulse_django_pausedkey WHERE lane_key::text = ANY (%s::text[]) RETURNING lane_key"
# In all queues and in single ones.
_RESUME_TASKS = f"""
WITH found AS MATERIALIZED (
    SELECT lane_key FROM pulse_django_pausedkey WHERE {IS_OF_TASK} AND {TASK_OF_PAUSE} = ANY (%s::text[])
)
DELETE FROM pulse_django_pausedkey WHERE lane_key::text = ANY (ARRAY(SELECT lane_key::text FROM found))
RETURNING lane_key
"""  # noqa: S608 - made of constants
_FORGET = "DELETE FROM pulse_django_pausedkey WHERE paused_until <= statement_timestamp() RETURNING lane_key"

_LANE_KEY = Note(MAX_PAUSED)


class PausedKeyManager(models.Manager["PausedKey"]):
    """``PausedKey.objects``: pause a key of a limit or a share, or a task, and resume it.

    ``lane_keys`` spells keys. ``execution.paused_tasks`` knows the other names of a task.
    """

    def pause(self, lane_key: str, *, for_: timedelta | None = None, reason: str = "", by: str = "") -> bool:
        """Start no job of the key, for a time or until it is resumed. Runs go on.

        Return whether it was not paused for longer already.
        """
        lane_key = _LANE_KEY.cleaned("lane_key", lane_key)
        if key_of(lane_key) is None or is_pause_of_task(lane_key):
            raise InvalidJob(f"{lane_key!r} has no key: close the limit instead")
        if for_ is not None:
            Duration(or_zero=True).check("for_", for_)
        return bool(self._pause([lane_key], for_, reason, by))

    def resume(self, lane_key: str) -> bool:
        """Let jobs of the key start again. Return whether it was paused."""
        lane_key = _LANE_KEY.cleaned("lane_key", lane_key)
        return not is_pause_of_task(lane_key) and bool(run_joined(self._alias, _RESUME, [[lane_key]]))

    def pause_task(
        self, *names: str, queue: str | None = None, for_: timedelta | None = None, reason: str = "", by: str = ""
    ) -> bool:
        """Start no job that has one of these names of a task, for a time or until it is resumed. Runs go on.

        In all queues, unless ``queue`` names one. Return whether one of them was not paused for longer already.
        """
        if for_ is not None:
            Duration().check("for_", for_)
        return bool(self._pause(_rows_of(names, queue), for_, reason, by))

    def resume_task(self, *names: str, queue: str | None = None) -> bool:
        """End all pauses of these names, or those of one queue alone. Return whether there was one."""
        rows = _rows_of(names, queue)
        if queue is None:
            return bool(run_joined(self._alias, _RESUME_TASKS, [list(names)]))
        return bool(run_joined(self._alias, _RESUME, [rows]))

    def forget_ended(self) -> list[str]:
        """Delete pauses that are over. Claims do not wait for it."""
        return [lane_key for (lane_key,) in run_joined(self._alias, _FORGET, [])]

    def _pause(self, lane_keys: list[str], for_: timedelta | None, reason: str, by: str) -> list[Any]:
        values = {
            "lane_keys": sorted(set(lane_keys)),
            "seconds": None if for_ is None else for_.total_seconds(),
            "reason": clean_text(reason, MAX_REASON),
            "by": clean_text(by, MAX_USER),
        }
        return run_joined(self._alias, _PAUSE, values)

    @property
    def _alias(self) -> str:
        return self._db or router.db_for_write(self.model)


def _rows_of(names: Iterable[str], queue: str | None) -> list[str]:
    for name in names:
        TASK_NAME.check("task", name)
    if queue is not None:
        check_queue_name(queue)
    return [pause_of_task(name, queue) for name in names]

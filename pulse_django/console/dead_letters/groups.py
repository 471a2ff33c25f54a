"""Groups of dead letters with the same error: the queries of their pages, and what is shown of each group."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pulse_django.console.search_terms import number_in
from pulse_django.models import Attempt, Job
from pulse_django.store.sql_functions import Fingerprint
from pulse_django.store.transactions import run_joined
from pulse_django.words.payloads import one_line

from . import group_sql

# Groups that are looked for. Each costs some five buffers; with fewer, a broken deploy hides what else there is.
MOST_GROUPS = 500
GROUPS_ON_A_PAGE = 50
# Dead letters that are counted on the page of one group, and of all groups on a list, latest seen first. Each costs a
# microsecond or two, and at most a buffer. Of each group some are counted, whatever those above it took.
MOST_COUNTED_ALONE = 100_000
MOST_COUNTED = 100_000
LEAST_COUNTED = 1_000
HOURS = 24  # of which is known how many died in each
TASK_LETTERS = 1_000  # the latest, whose tasks are named
LETTERS_ON_A_PAGE = 100
MOST_TASKS = 5
SAMPLE = 300  # characters of a last error, of which one line is shown

MOST_CHARACTERS = 200  # of a fingerprint: none is longer

_LAST_ID = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Place:
    """A dead letter's place in its group."""

    finished_at: datetime | str
    id: int

    @classmethod
    def of(cls, microseconds: int, job_id: int) -> Place:
        return cls(_EPOCH + microseconds * _MICROSECOND, job_id)

    @classmethod
    def named(cls, text: str) -> Place | None:
        """Return the place that an address or a form means; None: it means none."""
        numbers = [number_in(part) for part in text.split("_")]
        if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
            return None
        try:
            return cls.of(numbers[0], numbers[1])
        except OverflowError:  # beyond Python's calendar
            return None

    @property
    def name(self) -> str:
        assert isinstance(self.finished_at, datetime), "only a dead letter's place has a name"  # noqa: S101
        return f"{(self.finished_at - _EPOCH) // _MICROSECOND}_{self.id}"


LATEST = Place("infinity", _LAST_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorGroup:
    """Dead letters whose errors have the same fingerprint."""

    fingerprint: str
    letters: int  # at most ``counted`` are counted
    counted: int
    hours: tuple[int, ...]  # how many of these died in each of the last hours, the earliest first
    tasks: tuple[str, ...]  # of the latest ``TASK_LETTERS``
    now: datetime  # the server's
    first_seen: datetime
    first_id: int
    last_seen: datetime
    newest: Place
    sample: str
    alias: str  # the shard of the newest

    @property
    def latest_id(self) -> int:
        return self.newest.id

    @property
    def has_more(self) -> bool:
        return self.letters > self.counted

    @property
    def few_tasks(self) -> tuple[str, ...]:
        return self.tasks[:MOST_TASKS]

    @property
    def other_tasks(self) -> int:
        return max(0, len(self.tasks) - MOST_TASKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """One page of groups, latest seen first."""

    groups: tuple[ErrorGroup, ...]
    is_partial: bool  # there are more than were looked for
    has_older: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One dead letter, as its group's page shows it."""

    id: int
    task: str
    queue: str
    attempts: int  # that counted
    max_attempts: int
    finished_at: datetime
    now: datetime
    place: Place
    error: str


def groups(alias: str, *, page: int = 0) -> Groups:
    """Find what kills jobs: one statement."""
    params = {"most_groups": MOST_GROUPS, "page_size": GROUPS_ON_A_PAGE, "offset": page * GROUPS_ON_A_PAGE}
    rows = run_joined(alias, group_sql.GROUPS, params | _counting(MOST_COUNTED))
    return Groups(
        groups=tuple(_group_of(alias, row) for row in rows),
        is_partial=any(row[1] for row in rows),
        has_older=any(row[0] > (page + 1) * GROUPS_ON_A_PAGE for row in rows),
    )


def group(alias: str, fingerprint: str) -> ErrorGroup | None:
    """Tell of one group; None: it holds no dead letter any more."""
    rows = run_joined(alias, group_sql.GROUP, {"fingerprint": fingerprint} | _counting(MOST_COUNTED_ALONE))
    return _group_of(alias, rows[0]) if rows else None


def names(alias: str) -> tuple[dict[str, int], bool]:
    """Return the fingerprints of the groups that are known, each with when one of it died last; and whether there are
    more."""
    rows = run_joined(alias, group_sql.NAMES, {"most_groups": MOST_GROUPS})
    return {fingerprint: placed for fingerprint, placed, _ in rows}, any(row[2] for row in rows)


def these(alias: str, fingerprints: Sequence[str]) -> dict[str, ErrorGroup]:
    """Tell of those of these groups that hold dead letters."""
    params = {"fingerprints": list(fingerprints)} | _counting(MOST_COUNTED)
    found = [_group_of(alias, row) for row in run_joined(alias, group_sql.THESE, params)]
    return {one.fingerprint: one for one in found}


def _counting(most: int) -> dict[str, int]:
    """Say how much of each group is looked at."""
    return {
        "most_counted": most,
        "least_counted": LEAST_COUNTED,
        "hours": HOURS,
        "task_letters": TASK_LETTERS,
        "sample": SAMPLE,
    }


def _group_of(alias: str, row: tuple[Any, ...]) -> ErrorGroup:
    _, _, now, fingerprint, letters, counted, hours, tasks, first_seen, first_id, last_seen, *rest = row
    placed, latest_id, sample = rest
    by_hour = {int(hour): count for hour, count in json.loads(hours).items()}
    return ErrorGroup(
        fingerprint=fingerprint,
        letters=letters,
        counted=counted,
        hours=tuple(by_hour.get(hour, 0) for hour in reversed(range(HOURS))),
        tasks=tuple(tasks),
        now=now,
        first_seen=first_seen,
        first_id=first_id,
        last_seen=last_seen,
        newest=Place.of(placed, latest_id),
        sample=one_line(sample),
        alias=alias,
    )


def letters(alias: str, fingerprint: str, *, before: Place = LATEST) -> tuple[list[Letter], bool]:
    """Return dead letters of a group, latest first, and whether there are older ones."""
    params = {"fingerprint": fingerprint, "finished_at": before.finished_at, "id": before.id}
    rows = run_joined(alias, group_sql.LETTERS, params | {"sample": SAMPLE, "page_size": LETTERS_ON_A_PAGE})
    return [_letter_of(row) for row in rows[:LETTERS_ON_A_PAGE]], len(rows) > LETTERS_ON_A_PAGE


def _letter_of(row: tuple[Any, ...]) -> Letter:
    job_id, task, queue, attempts, max_attempts, finished_at, now, placed, error = row
    return Letter(
        id=job_id,
        task=task,
        queue=queue,
        attempts=attempts,
        max_attempts=max_attempts,
        finished_at=finished_at,
        now=now,
        place=Place.of(placed, job_id),
        error=one_line(error),
    )


def oldest(alias: str, fingerprint: str, *, until: Place, most: int) -> tuple[list[int], bool]:
    """Return the ids of up to ``most`` dead letters of a group, first dead first, and whether there are others.

    None of them died after ``until``: the newest that was there when the user decided about them.
    """
    params = {"fingerprint": fingerprint, "most": most, "finished_at": until.finished_at, "id": until.id}
    rows = run_joined(alias, group_sql.OLDEST, params)
    return [job_id for (job_id,) in rows[:most]], len(rows) > most


def among(alias: str, fingerprint: str, job_ids: Sequence[int], *, until: Place = LATEST) -> list[Job]:
    """Return those of these jobs that are dead letters of the group, and died no later than ``until``.

    Compared here and not in SQL, which could begin with all of the group instead of with the few ids.
    """
    dead = Job.objects.using(alias).dead_letters().filter(pk__in=job_ids).only("pk", "task")
    if until is not LATEST:
        dead = dead.filter(finished_at__lte=until.finished_at)
    return [job for job in dead.annotate(fingerprint=Fingerprint("last_error")) if job.fingerprint == fingerprint]


def latest_attempt(alias: str, job_id: int) -> Attempt | None:
    return Attempt.objects.using(alias).filter(job_id=job_id).order_by("-number").first()

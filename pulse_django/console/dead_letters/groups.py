"""Groups of dead letters with the same error: the queries of their pages, and their rows for templates."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.utils.formats import number_format

from pulse_django.console.search_terms import PLACED, Place
from pulse_django.models import Attempt, Release, Worker
from pulse_django.queue.database.releases import version_of
from pulse_django.queue.database.sql_functions import Fingerprint, InUtc, loose_scan
from pulse_django.queue.database.transactions import run_joined
from pulse_django.queue.words.display import in_words, most_shown
from pulse_django.queue.words.job_ids import MAX_ID
from pulse_django.queue.words.payloads import one_line

# Groups that are searched. Each costs about five buffers. With fewer, a broken deploy would hide other errors.
MOST_GROUPS = 500
GROUPS_ON_A_PAGE = 50
# Dead letters that are counted on the page of one group, and of all groups on a list, latest seen first. Each costs one
# or two microseconds, and at most one buffer. LEAST_COUNTED of each group are counted in any case.
MOST_COUNTED_ALONE = 100_000
MOST_COUNTED = 100_000
LEAST_COUNTED = 1_000
HOURS = 24  # for which dead letters are counted
TASK_LETTERS = 1_000  # the latest dead letters, whose tasks are listed
LETTERS_ON_A_PAGE = 100
MOST_TASKS = 5
SAMPLE = 300  # characters of a last error; the page shows them in one line

MOST_CHARACTERS = 200  # of a fingerprint

LATEST = Place("infinity", MAX_ID)


class ErrorGroup(NamedTuple):
    """Dead letters whose errors have the same fingerprint."""

    groups: int  # the number of groups
    is_partial: bool  # there are more groups than were searched
    now: datetime  # the server's
    fingerprint: str
    letters: int  # counted up to ``counted``
    counted: int
    hours: tuple[int, ...]  # deaths in each of the last hours, the earliest first
    tasks: Sequence[str]  # of the latest ``TASK_LETTERS``
    first_seen: datetime
    first_id: int
    last_seen: datetime
    latest_id: int
    sample: str


class Groups(NamedTuple):
    """One page of groups, latest seen first."""

    groups: list[ErrorGroup]
    is_partial: bool  # there are more groups than were searched
    has_older: bool


class Letter(NamedTuple):
    """One dead letter, as its group's page shows it."""

    id: int
    task: str
    queue: str
    attempts: int  # without refunds
    max_attempts: int
    finished_at: datetime
    now: datetime
    placed: int
    error: str

    @property
    def place(self) -> Place:
        return Place.of(self.placed, self.id)


def groups(alias: str, *, page: int = 0) -> Groups:
    """Return a page of groups, with one statement."""
    params = {"most_groups": MOST_GROUPS, "page_size": GROUPS_ON_A_PAGE, "offset": page * GROUPS_ON_A_PAGE}
    found = [_group_of(row) for row in run_joined(alias, GROUPS, params | _counting(MOST_COUNTED))]
    has_older = any(one.groups > (page + 1) * GROUPS_ON_A_PAGE for one in found)
    return Groups(found, any(one.is_partial for one in found), has_older)


def group(alias: str, fingerprint: str) -> ErrorGroup | None:
    """Return one group, or None if it has no dead letters."""
    rows = run_joined(alias, GROUP, {"fingerprint": fingerprint} | _counting(MOST_COUNTED_ALONE))
    return _group_of(rows[0]) if rows else None


def _counting(most: int) -> dict[str, int]:
    """Return the bounds of the queries."""
    return {
        "most_counted": most,
        "least_counted": LEAST_COUNTED,
        "hours": HOURS,
        "task_letters": TASK_LETTERS,
        "sample": SAMPLE,
    }


def _group_of(row: tuple[Any, ...]) -> ErrorGroup:
    group = ErrorGroup._make(row)
    by_hour = {int(hour): count for hour, count in json.loads(row[6]).items()}
    hours = tuple(by_hour.get(hour, 0) for hour in reversed(range(HOURS)))
    return group._replace(hours=hours, sample=one_line(group.sample))


def letters(alias: str, fingerprint: str, *, before: Place = LATEST) -> tuple[list[Letter], bool]:
    """Return dead letters of a group, latest first, and whether there are older ones."""
    params = {"fingerprint": fingerprint, "finished_at": before.at, "id": before.id}
    rows = run_joined(alias, LETTERS, params | {"sample": SAMPLE, "page_size": LETTERS_ON_A_PAGE})
    found = [Letter._make(row) for row in rows[:LETTERS_ON_A_PAGE]]
    return [one._replace(error=one_line(one.error)) for one in found], len(rows) > LETTERS_ON_A_PAGE


# The SQL of dead letters grouped by error. The number of rows that each statement reads is bounded.
#
# Three rules keep PostgreSQL on the index ``pulse_job_error_group``, with any statistics:
#
# - A group is ordered by the instant in UTC, which is a key of that index only. If it were ordered by the column, the
#   planner could use the index on (finished_at, id), and read all dead letters to find one of a rare group. If it were
#   ordered by the fingerprint, PostgreSQL would compute it for each row, which takes longer than the rest.
# - A high limit is a sub-select, whose value the planner does not know. If it knew a limit higher than its estimate
#   for the group, it might read and sort the whole group.
# - The status is a constant, because PostgreSQL cannot use a partial index with a parameter in the condition.


_PRINT = Fingerprint.template % {"expressions": "last_error"}
_AT = InUtc.template % {"expressions": "finished_at"}

# In descending order, so that each probe also finds the latest dead letter of its group.
WALKED = loose_scan(
    "walked",
    f"{_PRINT} AS fingerprint, finished_at, id",
    where="status::text = 'DEAD_LETTERED'",
    order=f"{_PRINT} DESC, {_AT} DESC, id DESC",
    following=(f"{_PRINT} < walked.fingerprint",),
    most="%(most_groups)s + 1",
)

# If there are too many groups, those of the latest dead letters are added, so that new errors are visible.
_KNOWN = f"""{WALKED},
latest AS (
    SELECT {_PRINT} AS fingerprint, finished_at, id
    FROM (
        SELECT last_error, finished_at, id
        FROM pulse_django_job_hot
        WHERE status::text = 'DEAD_LETTERED'
        ORDER BY finished_at DESC, id DESC
        LIMIT %(most_groups)s
    ) AS one
    WHERE (SELECT count(*) FROM walked) > %(most_groups)s
),
known AS (
    SELECT fingerprint, pg_catalog.max(finished_at) AS finished_at, count(*) OVER () AS groups
    FROM (SELECT fingerprint, finished_at FROM walked UNION ALL SELECT fingerprint, finished_at FROM latest) AS one
    GROUP BY fingerprint
)"""  # noqa: S608 - made of constants

_SHOWN = f"""{_KNOWN},
shown AS (
    SELECT
        fingerprint, groups, (SELECT count(*) FROM walked) > %(most_groups)s AS is_partial,
        row_number() OVER (ORDER BY finished_at DESC, fingerprint) AS place
    FROM (
        SELECT fingerprint, groups, finished_at
        FROM known
        ORDER BY finished_at DESC, fingerprint
        LIMIT %(page_size)s OFFSET %(offset)s
    ) AS page
)"""  # noqa: S608 - made of constants

_ONE = """
WITH RECURSIVE shown AS (
    SELECT %(fingerprint)s::text AS fingerprint, 1 AS groups, false AS is_partial, 1::bigint AS place
)"""

_IN_GROUP = f"""
        FROM pulse_django_job_hot
        WHERE status::text = 'DEAD_LETTERED' AND {_PRINT} = shown.fingerprint"""

# The number of dead letters of each group, in total and in each of the last hours. The groups at the top of a page are
# counted first, and the rest of ``most_counted`` is for the others. At least ``least_counted`` are for each group.
_COUNTED = f""",
counted AS (
    SELECT
        0::bigint AS place, 0::bigint AS letters, NULL::json AS hours, 0::bigint AS most,
        %(most_counted)s::bigint AS rest
    UNION ALL
    SELECT shown.place, one.letters, one.hours, allowed.most, GREATEST(0, counted.rest - one.letters)
    FROM counted
    JOIN shown ON shown.place = counted.place + 1
    CROSS JOIN LATERAL (SELECT GREATEST(counted.rest, %(least_counted)s::bigint)) AS allowed (most)
    CROSS JOIN LATERAL (
        SELECT
            COALESCE(pg_catalog.sum(hourly.letters), 0)::bigint AS letters,
            pg_catalog.json_object_agg(hourly.hour, hourly.letters) AS hours
        FROM (
            SELECT
                LEAST(pg_catalog.floor(
                    pg_catalog.date_part('epoch', statement_timestamp() - dead.finished_at) / 3600.0::float8
                ), %(hours)s::float8)::int AS hour,
                count(*) AS letters
            FROM (
                SELECT finished_at {_IN_GROUP}
                ORDER BY {_AT} DESC, id DESC
                LIMIT (SELECT allowed.most + 1)
            ) AS dead
            GROUP BY 1
        ) AS hourly
    ) AS one
)"""  # noqa: S608 - made of constants

_FACTS = f"""{_COUNTED}
SELECT
    shown.groups, shown.is_partial, statement_timestamp(), shown.fingerprint, counted.letters, counted.most,
    counted.hours::text, several.tasks, earliest.finished_at, earliest.id, latest.finished_at,
    latest.id, latest.sample
FROM shown
JOIN counted ON counted.place = shown.place
CROSS JOIN LATERAL (
    SELECT finished_at, id {_IN_GROUP}
    ORDER BY {_AT}, id
    LIMIT 1
) AS earliest
CROSS JOIN LATERAL (
    SELECT finished_at, id, pg_catalog.left(last_error, %(sample)s) AS sample {_IN_GROUP}
    ORDER BY {_AT} DESC, id DESC
    LIMIT 1
) AS latest
CROSS JOIN LATERAL (
    SELECT pg_catalog.array_agg(DISTINCT one.task) AS tasks
    FROM (
        SELECT task {_IN_GROUP}
        ORDER BY {_AT} DESC, id DESC
        LIMIT (SELECT %(task_letters)s)
    ) AS one
) AS several
ORDER BY latest.finished_at DESC, latest.id DESC
"""  # noqa: S608 - made of constants

GROUPS = _SHOWN + _FACTS
GROUP = _ONE + _FACTS

LETTERS = f"""
SELECT
    id, task, queue, attempts - refunds, max_attempts, finished_at, statement_timestamp(),
    {PLACED.format("finished_at")}, pg_catalog.left(last_error, %(sample)s)
FROM pulse_django_job_hot
WHERE status::text = 'DEAD_LETTERED' AND {_PRINT} = %(fingerprint)s
    AND ({_AT}, id) < (%(finished_at)s::timestamptz AT TIME ZONE 'UTC', %(id)s::bigint)
ORDER BY {_AT} DESC, id DESC
LIMIT (SELECT %(page_size)s + 1)
"""  # noqa: S608 - made of constants


# The versions with which jobs died: those of the worker of the last attempt, or else the release of that time.


def versions_of(alias: str, job_ids: Collection[int]) -> dict[int, str]:
    """Return the versions by job, as text. Rows of stopped workers are deleted; releases are kept longer."""
    attempts = Attempt.objects.using(alias).filter(job_id__in=list(job_ids)).order_by("number")
    latest = {job_id: (worker, at) for job_id, worker, at in attempts.values_list("job_id", "worker", "finished_at")}
    starts = {job_id: _start_of(worker) for job_id, (worker, _) in latest.items()}
    wanted = {name for name, _ in starts.values()}
    workers = Worker.objects.using(alias).filter(name__in=wanted).only("name", "boot_id", "versions")
    said = {(worker.name, worker.boot_id): version_of(worker.versions) for worker in workers}
    return {job_id: said.get(start) or _release_at(alias, latest[job_id][1]) for job_id, start in starts.items()}


def _start_of(holder: str) -> tuple[str, str]:
    """Return the name and the boot id of a worker, without the number of the child."""
    name, boot_id, _ = (*holder.rsplit(":", 2), "", "")[:3]
    return name, boot_id.partition(".")[0]


def _release_at(alias: str, at: datetime) -> str:
    before = Release.objects.using(alias).filter(seen_at__lte=at).order_by("-seen_at", "-id")
    return before.values_list("version", flat=True).first() or ""


# The data of a dead letter or a group, for a template.


def letter_row(letter: Letter, url: str) -> dict[str, Any]:
    age = in_words((letter.now - letter.finished_at).total_seconds())
    return {"is": letter, "id": str(letter.id), "url": url, "age": age, "most": most_shown(letter.max_attempts)}


def counted(group: ErrorGroup) -> str:
    count = number_format(min(group.letters, group.counted), force_grouping=True)
    return f"{count}+" if group.letters > group.counted else count


def few_tasks(tasks: Sequence[str]) -> dict[str, Any]:
    return {"named": tasks[:MOST_TASKS], "others": max(0, len(tasks) - MOST_TASKS)}

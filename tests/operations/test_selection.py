from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from django.core.management import load_command_class

from pulse_django.operations.preview import Selection, unmatched
from pulse_django.queue.database.querysets import JobQuerySet
from pulse_django.queue.words.states import TERMINAL, Status
from tests.database import empty_tables
from tests.factories import make_job, now
from tests.faults import each_of

pytestmark = pytest.mark.usefixtures("pulse_db")


def ids(selection: Selection) -> set[int]:
    return set(selection.jobs("default").values_list("id", flat=True))


def jobs_of(name: str, *args: object) -> JobQuerySet:
    """Return what a command would act on."""
    command: Any = load_command_class("pulse_django", name)
    command.choose(vars(command.create_parser("manage.py", name).parse_args([*map(str, args)])))
    found: JobQuerySet = command.jobs("default")
    return found


NARROWED: list[tuple[dict[str, Any], set[Status]]] = [
    ({}, set(Status)),
    ({"queues": ("mail",)}, {Status.PENDING}),
    ({"queues": ("mail", "default")}, set(Status)),
    ({"tasks": ("tests.other",)}, {Status.RUNNING}),
    ({"error": "TIMED out"}, {Status.RETRYING}),
    ({"error": "100%"}, set()),  # LIKE's own characters mean themselves
    ({"statuses": (Status.RUNNING, Status.DEAD_LETTERED)}, {Status.RUNNING, Status.DEAD_LETTERED}),
    ({"queues": ("mail",), "tasks": ("tests.other",)}, set()),  # all must hold
]


def test_filters_narrow() -> None:
    special: dict[Status, dict[str, Any]] = {
        Status.PENDING: {"queue": "mail"},
        Status.RUNNING: {"task": "tests.other"},
        Status.RETRYING: {"last_error": "OSError: timed OUT after 1000 s"},
    }
    jobs = {make_job(status, **special.get(status, {})).pk: status for status in Status}
    for narrowed, statuses in NARROWED:
        assert {jobs[job_id] for job_id in ids(Selection(**narrowed))} == statuses, narrowed


@each_of(*product([Status.PENDING, Status.COMPLETED], [True, False]))
def test_age_is_since_the_end_or_else_since_the_creation(*, status: Any, named: Any) -> None:
    empty_tables()
    column = "finished_at" if status in TERMINAL else "created_at"
    old = make_job(status, **{"created_at": now(timedelta(days=-3)), column: now(timedelta(days=-2))})
    young = make_job(status, **{"created_at": now(timedelta(days=-3)), column: now(timedelta(hours=-1))})
    statuses = (status,) if named else ()
    assert ids(Selection(older_than=timedelta(days=1), statuses=statuses)) == {old.pk}
    assert ids(Selection(newer_than=timedelta(days=1), statuses=statuses)) == {young.pk}
    assert ids(Selection(older_than=timedelta(minutes=1), newer_than=timedelta(days=1))) == {young.pk}


def test_ids_that_do_not_match_are_told_with_their_status() -> None:
    dead, done = make_job(Status.DEAD_LETTERED), make_job(Status.COMPLETED)
    named = (dead.pk, done.pk, 10**15)
    jobs = jobs_of("pulse_retry", *named)
    assert unmatched(jobs, named) == {done.pk: "COMPLETED", 10**15: None}


class TestWhomAVerbTouches:
    def test_cancel_what_lives_and_was_not_asked_yet(self) -> None:
        jobs = {status: make_job(status) for status in Status}
        make_job(Status.RUNNING, cancel_requested_at=now())
        found = set(jobs_of("pulse_cancel"))
        assert found == {jobs[one] for one in Status if one not in TERMINAL}

    def test_cancel_with_children_reaches_through_what_has_ended(self) -> None:
        root = make_job(Status.COMPLETED)
        child = make_job(Status.COMPLETED, parent=root)
        grandchild, stranger = make_job(parent=child), make_job()
        family = jobs_of("pulse_cancel", root.pk, "--children")
        assert list(family) == [grandchild]
        assert stranger not in family
        assert not jobs_of("pulse_cancel", root.pk).exists()

    def test_cancel_with_children_finds_them_in_other_queues(self) -> None:
        root = make_job(queue="imports")
        child = make_job(parent=root, queue="lines")
        make_job(queue="lines")
        family = jobs_of("pulse_cancel", "--queue", "imports", "--children")
        assert set(family) == {root, child}

    def test_prune_by_default_what_outlived_its_retention(self, settings: Any) -> None:
        settings.PULSE = {"KEEP_COMPLETED": 86_400 * 2, "KEEP_CANCELLED": 86_400 * 4, "KEEP_DEAD_LETTERS": 0}
        old = {status: make_job(status, finished_at=now(timedelta(days=-3))) for status in Status if status in TERMINAL}
        ancient = make_job(Status.CANCELLED, finished_at=now(timedelta(days=-5)))
        assert set(jobs_of("pulse_prune")) == {old[Status.COMPLETED], ancient}

    def test_prune_keeps_for_ever_what_the_settings_say_unless_an_age_is_given(self, settings: Any) -> None:
        settings.PULSE = {"KEEP_COMPLETED": 0, "KEEP_DEAD_LETTERS": 0}
        for status in Status:
            make_job(status, **({"finished_at": now(timedelta(days=-999))} if status in TERMINAL else {}))
        named = (Status.COMPLETED, Status.DEAD_LETTERED)
        statuses = [part for one in named for part in ("--status", one)]
        assert not jobs_of("pulse_prune", *statuses).exists()
        aged = jobs_of("pulse_prune", *statuses, "--older-than", "1d")
        assert {job.status for job in aged} == set(named)

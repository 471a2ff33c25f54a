"""Whatever somebody types is a value, and never a part of a statement: by every field, address and argument."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import Client

import pulse_django
from pulse_django import api
from pulse_django.models import Attempt, Job, Pause, Worker
from pulse_django.queue.words.decisions import Complete, DeadLetter
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import Failed, Succeeded
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Report
from pulse_django.run.fencing import fence
from tests.console.test_every_page import presence
from tests.database import empty_tables
from tests.factories import make_job
from tests.faults import all_faults, each_of
from tests.queue.steps import sql

pytestmark = pytest.mark.django_db

NAP = 10  # seconds that an injected statement would sleep
ATTACKS = [
    "'; DROP TABLE pulse_django_job; --",
    "' OR '1'='1",
    "' OR 1=1 --",
    '" OR ""="',
    "') OR ('a'='a",
    "\\'; DROP TABLE pulse_django_job; --",
    "\\",
    "%s",
    "%(x)s %",
    "{picked} {0} {}",
    f"'; SELECT pg_sleep({NAP}); --",
    f"1 AND (SELECT 1 FROM pg_sleep({NAP})) IS NULL",
    f"' || (SELECT pg_sleep({NAP})::text) || '",
    "' UNION SELECT args::text FROM pulse_django_job --",
    "$$; DROP TABLE pulse_django_job; $$",
    "E'\\047; DROP TABLE pulse_django_job; --'",
    "x'; COMMIT; DROP TABLE pulse_django_job; BEGIN; --",
    "1; UPDATE pulse_django_job SET status = 'CANCELLED'; --",
    "a,b){c}",
    "\u02bc; DROP TABLE pulse_django_job; --",
    '{"a": "b"}',
    "(a+)+$" + "a" * 40,
]

# Where each takes a page or thirty commands.
WORST = [
    "'; DROP TABLE pulse_django_job; --",
    f"' || (SELECT pg_sleep({NAP})::text) || '",
    "\\'; DROP TABLE pulse_django_job; --",
    "%(x)s ' UNION SELECT args::text FROM pulse_django_job --",
]


@contextmanager
def untouched() -> Iterator[None]:
    """Make jobs of all kinds, which are as they were afterwards; and nobody slept."""
    empty_tables()
    for status in Status:
        make_job(status, task="bystander", queue="bystander", args=["of nobody's business"])
    before, began = rows(), time.monotonic()
    yield
    assert rows() == before
    assert sql("SELECT to_regclass('pulse_django_job') IS NOT NULL") == [(True,)]
    assert time.monotonic() - began < NAP, "an injected statement ran"


@pytest.fixture
def others() -> Iterator[None]:
    with untouched():
        yield


def rows() -> list[Any]:
    return sql("SELECT * FROM pulse_django_job WHERE task = 'bystander' ORDER BY id")


@pytest.mark.usefixtures("others")
def test_names_and_values_of_jobs_come_back_as_they_were_given() -> None:
    for attack in ATTACKS:
        new = NewJob(task=attack, queue=attack, args=[attack], kwargs={attack: attack}, idempotency_key=attack)
        job = Job.objects.enqueue(new)
        assert Job.objects.enqueue(new).pk == job.pk
        Job.objects.enqueue_many([NewJob(task=attack, queue=attack)])
        stored = Job.objects.get(pk=job.pk)
        said = (stored.task, stored.queue, stored.args, stored.kwargs, stored.idempotency_key)
        assert said == (attack, attack, [attack], {attack: attack}, attack)
        assert Lane(attack, 0) in Job.objects.lanes([attack])
        claims = Job.objects.claim(Identity(attack), lanes=[Lane(attack, 0)], limit=5)
        assert {claim.queue for claim in claims} == {attack}
        first, second = (claim.lease for claim in sorted(claims))
        Job.objects.heartbeat([first], {first: json.dumps({attack: attack})})
        assert Job.objects.request_cancel([job.pk], reason=attack).asked == {job.pk}
        done = Report(second, Succeeded(), Complete(json.dumps([attack, {attack: attack}])))
        failed = Report(first, Failed(ErrorReport.of(ValueError(attack))), DeadLetter(attack))
        assert len(Job.objects.settle([done]).accepted) == len(Job.objects.settle([failed]).accepted) == 1
        assert Job.objects.get(pk=second.job_id).result == [attack, {attack: attack}]
        assert Attempt.objects.get(job_id=job.pk).message == attack


@pytest.mark.usefixtures("others")
def test_names_of_queues_workers_and_resources_are_names() -> None:
    for attack in ATTACKS:
        other = make_job(task="other")
        Pause.objects.pause(queue=attack, reason=attack)
        assert Pause.objects.get(queue=attack).reason == attack
        assert Pause.objects.resume(queue=attack)
        assert Job.objects.move([other.pk], queue=attack).changed
        Worker.objects.note(presence(attack))
        Worker.objects.farewell(attack, attack)
        assert list(api.jobs(queue=attack)) == [Job.objects.get(pk=other.pk)]
        assert list(api.jobs(task=attack)) == []
        assert pulse_django.cancel(other.pk, reason=attack)
        with transaction.atomic():
            fence(attack, SimpleNamespace(token=1))


ADDRESSES = [
    *(f"job/?{name}=" for name in ("q", "queue", "task", "error", "worker", "age", "created", "older", "newer", "o")),
    *(f"job/?{name}=" for name in ("status__exact", "_facets", "p", "all", "e", "id__in", "args__icontains")),
    *(f"worker/?{name}=" for name in ("host", "q", "o", "name__contains", "vitals__x")),
    *("queue/one/?name=", "queue/?o=", "board/?since=", "deadletter/?page=", "deadletter/?o="),
    *("deadletter/group/?error=", "deadletter/group/?error=x&older="),
]  # fmt: skip


@each_of(*ADDRESSES)
def test_addresses_of_the_admin_ask_nothing_else_than_what_they_are_for(admin_client: Client, *, address: Any) -> None:
    with transaction.atomic(), untouched():
        for attack in WORST:
            url, _, name = f"/admin/pulse_django/{address}".rpartition("?")
            parameters = dict(part.partition("=")[::2] for part in name.split("&"))
            parameters[name.rpartition("&")[2].partition("=")[0]] = attack
            response = admin_client.get(url, parameters)
            assert response.status_code in (200, 302, 404), attack
            if "job/" in address and response.status_code == 200 and "q=" not in address:
                assert b"of nobody" not in response.content


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize("attack", WORST)
def test_forms_of_the_admin_store_what_was_typed_and_do_nothing_else(admin_client: Client, attack: str) -> None:
    job = make_job(task="other")
    base = f"/admin/pulse_django/job/{job.pk}/act"
    admin_client.post(f"{base}/move/", {"move-queue": attack, "move-priority": attack, "move-attempts": 0})
    admin_client.post(
        f"{base}/move/", {"move-queue": attack, "move-priority": 0, "move-attempts": 0, "move-reason": attack}
    )
    job.refresh_from_db()
    assert job.queue == attack
    admin_client.post(f"{base}/cancel/", {"cancel-reason": attack, "cancel-attempts": 0})
    job.refresh_from_db()
    assert (job.status, job.cancel_reason) == (Status.CANCELLED, attack.strip())
    paused = {"name": attack, "reason": attack, "duration": 0}
    admin_client.post("/admin/pulse_django/queue/pause/", paused)
    assert Pause.objects.get().queue == attack
    for act in ("retry", "delete"):
        data = {"scope": "all", "asked_at": attack, "runs": 1, "reason": attack, "confirmed": "yes", "id": [attack]}
        admin_client.post(f"/admin/pulse_django/deadletter/group/{act}/?error=x", data)
    admin_client.post("/admin/pulse_django/job/", {"action": attack, "_selected_action": [attack]})
    admin_client.post("/admin/pulse_django/job/", {"action": "retry_dead_letters", "_selected_action": [attack]})


def run(*arguments: str) -> str:
    out = io.StringIO()
    with suppress(CommandError, SystemExit):
        call_command(*arguments, stdout=out, stderr=out)
    return out.getvalue()


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize("attack", WORST)
def test_arguments_of_commands_select_what_they_name_and_nothing_else(attack: str) -> None:
    for command in ("pulse_retry", "pulse_cancel", "pulse_prune"):
        for option in ("queue", "task", "error", "older-than", "status", "database", "limit", "batch"):
            run(command, f"--{option}={attack}", "--yes")
        run(command, attack, "--yes")
    run("pulse_status", f"--task={attack}")
    run("pulse_status", f"--error={attack}")
    run("pulse_check", f"--repair={attack}", "--yes")
    run("pulse_watchdog", f"--shard={attack}")
    run("pulse_check", "--advice", f"--shard={attack}")


COMMANDS = [
    *(("pulse_pause", "--queue"), ("pulse_pause", "--task"), ("pulse_pause", "--task", "x", "--queue")),
    *(("pulse_pause", "--queue", "x", "--reason"), ("pulse_resume", "--queue"), ("pulse_resume", "--task")),
    *(("pulse_resume", "--task", "x", "--queue"), ("pulse_cancel", "--queue"), ("pulse_cancel", "--tag")),
    *(("pulse_retry", "--task"), ("pulse_retry", "--error"), ("pulse_prune", "--queue"), ("pulse_explain",)),
    *(("pulse_schedules", "list", "--task"), ("pulse_schedules", "pause"), ("pulse_schedules", "run")),
    *(("pulse_limits", "set"), ("pulse_pause", "--limit"), ("pulse_pause", "--limit", "x", "--key")),
    *(("pulse_pause", "--fair-key"), ("pulse_resume", "--fair-key"), ("pulse_workflows", "show")),
    *(("pulse_status", "--shard"), ("pulse_check", "--repair"), ("pulse_import_schedules",)),
    ("pulse_import_schedules", "celery-beat", "--from-database"),
]


def test_what_cannot_be_stored_is_refused_or_names_nothing() -> None:
    """Names that no row can have, on the command line: a sentence, and no traceback."""
    with all_faults() as about:
        for command in COMMANDS:
            for name in ("a\x00b", "a\udcffb", "a\ud800"):
                with about((*command, name)), suppress(CommandError):
                    call_command(*command, name, stdout=io.StringIO(), stderr=io.StringIO())

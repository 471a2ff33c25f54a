"""Why a job does not run: each reason by its code, its end and its facts, with the rows that bring it about."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection, transaction
from django.template import Context, Template
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from pulse_django import Explanation, Limit, Rate, explain
from pulse_django.health.explanation import asking, reasons
from pulse_django.health.explanation.facts import JobFacts, LineFacts, PaceFacts
from pulse_django.health.explanation.reasons import Reason, sentences
from pulse_django.limits.why import LimitState
from pulse_django.models import Bucket, Dependency, Job, Limiter, Pause, StoredBatch
from pulse_django.queue.words.lane_keys import lane_key
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Claim, Identity
from pulse_django.queue.words.outcomes import CANNOT_DECRYPT
from pulse_django.queue.words.states import CLAIMABLE, Status
from tests.console.staff import staff, text
from tests.factories import AttemptFactory, make_job, now
from tests.faults import each_of
from tests.health.states import live_worker, record
from tests.operations.steps import run
from tests.queue.steps import sql
from tests.undoing import undone

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).parent.parent.parent
MINUTE = timedelta(minutes=1)
SOON, AGO = MINUTE, -MINUTE
TASK = "tests.add"
HOSTILE = "<script>alert(1)</script>\u202e"


def limited(*, key: str | None = "acme", name: str = "stripe", **numbers: Any) -> str:
    """Declare a limit, and return the lane key of its jobs."""
    if numbers:
        Limiter.objects.declare_new("project", {name: Limit(name, **numbers).numbers()})
    return lane_key(name, key)


def start_jobs(key: str, count: int) -> list[int]:
    """Let a claim start jobs of a lane: with the locks, the counts and the buckets of the real one."""
    for _ in range(count):
        make_job(lane_key=key, priority=9)
    lane = Lane("default", 9, key)
    claims = Job.objects.claim_limited(Identity("w"), key.partition(":")[0], [lane], {lane: count}, limit=count).claims
    assert len(claims) == count
    return sorted(claim.job_id for claim in claims)


def waiting(**fields: Any) -> Job:
    return make_job(**{"next_run_at": now(AGO)} | fields)


def given(*steps: Callable[[], object], **fields: Any) -> Callable[[], Job]:
    """A job that waits after these steps."""

    def make() -> Job:
        for step in steps:
            step()
        return waiting(**fields)

    return make


def workers(facts: str) -> Callable[[], object]:
    return partial(sql, f"UPDATE pulse_django_worker SET {facts}")


def paused(*args: Any, **options: Any) -> Callable[[], object]:
    return lambda: Pause.objects.pause(*args, **options)


KEY, OTHER_KEY, UNLIMITED_KEY = limited(), limited(key="other"), lane_key("", "acme")
FIVE = partial(limited, max_running=5)
ONE_OF_A_KEY = partial(limited, max_running=5, max_running_per_key=1)
TEN_A_MINUTE = Rate(10, per=MINUTE, burst=2)
ONE_RUNS, TWO_RUN = partial(start_jobs, KEY, 1), partial(start_jobs, KEY, 2)
_task_paused = given(paused(TASK, reason="the bank is down", by="ann"))
_task_paused_for_a_while = given(paused(TASK, duration=MINUTE))
PAUSES_END = partial(
    sql, "UPDATE pulse_django_pause SET paused_at = now() - interval '1 h', paused_until = now() - interval '1 s'"
)
_closed = given(FIVE, lambda: Limiter.objects.pause("stripe", duration=MINUTE, reason="429"), lane_key=KEY)


def _task_paused_and_set_aside() -> Job:
    job = _task_paused()
    assert Job.objects.set_aside()
    return job


def _left_aside() -> Job:
    job = _task_paused_and_set_aside()
    Pause.objects.resume(TASK)
    return job


def _not_decrypted() -> Job:
    job = waiting(attempts=1, refunds=1)
    AttemptFactory(job=job, outcome="RELEASED", message=f"{CANNOT_DECRYPT}: no key '2026-11'")
    return job


def _decrypted_since() -> Job:
    job = waiting(status=Status.RETRYING, attempts=2)
    AttemptFactory(job=job, outcome="RELEASED", message=f"{CANNOT_DECRYPT}: no key '2026-11'")
    return job


def _behind() -> Job:
    for priority in (0, 0, 3):
        waiting(priority=priority, next_run_at=now(2 * AGO))
    waiting(priority=-1)
    waiting(queue="other", priority=3)
    make_job(priority=3, next_run_at=now(SOON))
    return waiting()


def needing(*needs: dict[str, Any], **fields: Any) -> Job:
    job = make_job(Status.WAITING, **fields)
    for need in needs:
        Dependency.objects.create(job_id=job.pk, **need)
    return job


def _needs_jobs() -> Job:
    return needing({"needs": make_job().pk}, {"needs": make_job(Status.RUNNING).pk})


def _held() -> Job:
    return needing({"needs": make_job(Status.DEAD_LETTERED).pk}, {"needs": make_job().pk})


def _needs_batch(**need: Any) -> Job:
    return needing({"needs_batch": batch_of(sealed_at=now()).pk} | need)


def _held_by_batch() -> Job:
    batch = batch_of(sealed_at=now())
    make_job(Status.DEAD_LETTERED, batch=batch)
    return needing({"needs_batch": batch.pk})


def batch_of(**fields: Any) -> StoredBatch:
    return StoredBatch.objects.create(name="nightly", **fields)


def case(make: Callable[[], Job], *codes: str, **facts: Any) -> tuple[Callable[[], Job], list[str], dict[str, Any]]:
    return make, list(codes), facts


# What is made, what stands in the way in this order, and facts of the first reason.
CASES = {
    "nothing": case(waiting, "free"),
    "completed": case(lambda: make_job(Status.COMPLETED), "completed", status="COMPLETED"),
    "dead": case(lambda: make_job(Status.DEAD_LETTERED), "dead-letter", status="DEAD_LETTERED"),
    "cancelled": case(lambda: make_job(Status.CANCELLED), "cancelled", status="CANCELLED"),
    "running": case(lambda: make_job(Status.RUNNING), "running", worker="host-1:boot:1"),
    "lost": case(lambda: make_job(Status.RUNNING, expired=True), "lease-expired", worker="host-1:boot:1"),
    "stopping": case(lambda: make_job(Status.RUNNING, cancel_requested_at=now()), "running", "cancel-requested"),
    "paused": case(
        given(paused(queue="default", reason="the bank is down")),
        "queue-paused",
        queue="default",
        reason="the bank is down",
    ),
    "paused for a while": case(
        given(paused(queue="default", reason="deploy", duration=MINUTE)),
        "queue-paused",
        queue="default",
        reason="deploy",
    ),
    "a pause that ended": case(given(paused(queue="default", duration=MINUTE), PAUSES_END), "free"),
    "no worker of the queue": case(given(workers("queues = '[\"mail\"]'")), "no-worker", queue="default"),
    "a worker that is silent": case(
        given(workers("last_beat_at = now() - interval '1 h'")), "no-worker", queue="default"
    ),
    "unknown task": case(given(task="shop.other"), "unknown-task", queue="default", task="shop.other", workers=1),
    "all slots in use": case(given(workers("in_flight = slots")), "workers-busy", slots=8),
    "too few free slots": case(given(workers("in_flight = slots - 3"), weight=4), "waits-for-slots", weight=4, free=3),
    "enough free slots": case(given(workers("in_flight = slots - 3"), weight=3), "free"),
    "heavier than any worker": case(lambda: waiting(weight=1_000), "free"),
    "no key to decrypt it": case(_not_decrypted, "key-missing", reason="no key '2026-11'"),
    "a key since then": case(_decrypted_since, "free"),
    "not due": case(lambda: make_job(next_run_at=now(SOON)), "not-due"),
    "expires": case(lambda: waiting(expires_at=now(SOON)), "free", "expires"),
    "expired": case(lambda: waiting(expires_at=now(AGO)), "expired"),
    "has started before": case(lambda: waiting(attempts=1, status=Status.RETRYING, expires_at=now(AGO)), "free"),
    "key paused": case(
        given(paused(lane_key=UNLIMITED_KEY, reason="they owe us"), lane_key=UNLIMITED_KEY),
        "key-paused",
        key="acme",
        reason="they owe us",
    ),
    "key paused for a while": case(
        given(paused(lane_key=KEY, duration=MINUTE), lane_key=KEY), "key-paused", key="acme"
    ),
    "a pause of its key that ended": case(given(paused(lane_key=KEY, duration=timedelta()), lane_key=KEY), "free"),
    "task paused": case(_task_paused, "task-paused", task=TASK, reason="the bank is down", by="ann"),
    "task paused, and set aside": case(_task_paused_and_set_aside, "task-paused", task=TASK, by="ann"),
    "task paused for a while": case(_task_paused_for_a_while, "task-paused", task=TASK),
    "task paused in its queue": case(
        given(paused(TASK, queue="elsewhere"), paused(TASK, queue="default", reason="the bank is down")),
        "task-paused",
        reason="the bank is down",
    ),
    "task paused in another queue": case(given(paused(TASK, queue="elsewhere")), "free"),
    "a pause of its task that ended": case(
        given(paused(TASK, duration=MINUTE), PAUSES_END, paused("tests.other")), "free"
    ),
    "set aside after the pause": case(_left_aside, "set-aside", task=TASK),
    "limit full": case(
        given(partial(limited, max_running=2), TWO_RUN, lane_key=OTHER_KEY),
        "limit-full",
        limit="stripe",
        held="2",
        most=2,
        key="other",
    ),
    "limit full by people": case(
        given(FIVE, ONE_RUNS, lambda: Limiter.objects.override("stripe", {"max_running": 1}), lane_key=KEY),
        "limit-full",
        held="1",
        most=1,
    ),
    "too heavy for its limit": case(given(FIVE, lane_key=KEY, weight=6), "too-heavy", limit="stripe", weight=6, most=5),
    "too heavy for what is left": case(
        given(FIVE, ONE_RUNS, lane_key=KEY, weight=5), "limit-full", limit="stripe", weight=5, held="1", most=5
    ),
    "key full": case(
        given(ONE_OF_A_KEY, ONE_RUNS, lane_key=KEY), "key-full", limit="stripe", key="acme", held="1", most=1
    ),
    "another key full": case(given(ONE_OF_A_KEY, ONE_RUNS, lane_key=OTHER_KEY), "free"),
    "rate": case(given(partial(limited, rate=TEN_A_MINUTE), TWO_RUN, lane_key=KEY), "rate", limit="stripe"),
    "rate of a key": case(
        given(partial(limited, rate_per_key=TEN_A_MINUTE), TWO_RUN, lane_key=KEY),
        "key-rate",
        limit="stripe",
        key="acme",
    ),
    "limit closed": case(_closed, "limit-paused", limit="stripe", reason="429"),
    "breaker half open": case(
        given(FIVE, ONE_RUNS, partial(sql, "UPDATE pulse_django_limiter SET half_open = true"), lane_key=KEY),
        "limit-half-open",
        limit="stripe",
        held="1",
    ),
    "a limiter without a row": case(given(lane_key=KEY), "free"),
    "in line": case(_behind, "behind", jobs="3", higher="1", lane="2"),
    "needs jobs": case(_needs_jobs, "waits-for-jobs", more=0),
    "needs a dead letter": case(_held, "held-by-dead-letter", "waits-for-jobs"),
    "needs a batch": case(_needs_batch, "waits-for-batch", name="nightly"),
    "needs a batch with dead letters": case(_held_by_batch, "held-by-dead-letter", "waits-for-batch"),
    "needs the end of a batch": case(lambda: _needs_batch(moment="ended"), "waits-for-end"),
    "needs a dead letter of a batch": case(lambda: _needs_batch(moment="dead"), "waits-for-dead-letter"),
    "needs an open batch": case(lambda: needing({"needs_batch": batch_of().pk}), "batch-not-sealed"),
    "is in a paused batch": case(lambda: needing(batch=batch_of(paused_at=now())), "batch-paused", name="nightly"),
    "needs an event": case(lambda: needing({"needs_event": "ok"}), "waits-for-event", event="ok"),
    "needs an event for a while": case(lambda: needing({"needs_event": "ok", "until": now(SOON)}), "waits-for-event"),
    "needs nothing more": case(lambda: needing(), "needs-met"),
    "not in line yet": case(lambda: waiting(lane_key=limited(), ready=False), "not-ready"),
}
WITH_END = {"queue-paused-until", "key-paused-until", "task-paused-until", "waits-for-event-until"}
ENDS = {
    "paused for a while",
    "key paused for a while",
    "task paused for a while",
    "not due",
    "rate",
    "rate of a key",
    "limit closed",
    "needs an event for a while",
    "running",
    "stopping",
}


@each_of(*CASES, around=undone)
def test_each_reason_is_given_with_its_facts(*, case: Any) -> None:
    arrange, codes, facts = CASES[case]
    live_worker()
    found = explain(arrange().pk)
    assert [reason.code for reason in found.reasons] == codes
    first = found.reasons[0]
    assert facts.items() <= first.facts.items()
    if first.code != "free":
        assert (first.until is not None) == (case in ENDS)
    if first.until is not None:
        assert timedelta() < first.until - found.now <= MINUTE
    for reason in found.reasons:
        assert reason.sentence.endswith(".")
        assert "%(" not in reason.sentence


def test_every_code_is_brought_about() -> None:
    brought = {code for _, codes, _ in CASES.values() for code in codes}
    assert brought == set(sentences()) - WITH_END


def test_every_code_stands_on_the_page() -> None:
    text = (ROOT / "docs/how-to/why-does-a-job-not-run.md").read_text()
    rows = dict(re.findall(r"^\| (`[a-z].*?) \| (.*) \|$", text, re.MULTILINE))
    told = {code for head in rows for code in re.findall(r"`([a-z-]+)`", head)}
    assert told - {"code"} == set(sentences()) - WITH_END


def test_reasons_end_first_by_people_then_by_time_then_by_other_runs() -> None:
    key = limited(max_running=1)
    start_jobs(key, 1)
    Limiter.objects.pause("stripe", duration=MINUTE, reason="429")
    Pause.objects.pause(queue="default", duration=2 * MINUTE)
    found = explain(waiting(lane_key=key).pk)
    assert [reason.code for reason in found.reasons] == ["no-worker", "queue-paused", "limit-paused", "limit-full"]
    assert found.starts_in is None
    assert found.is_blocked


def test_a_job_that_waits_for_many_others_names_ten(admin_client: Client) -> None:
    job = needing(*({"needs": make_job().pk} for _ in range(12)))
    [reason] = explain(job.pk).reasons
    assert len(reason.facts["jobs"]) == 10
    assert reason.sentence.endswith("And 2 more.")
    assert "It waits for jobs that are not done: #" in page_of(admin_client, job)


def test_a_full_limit_names_who_holds_it() -> None:
    live_worker()
    key = limited(max_running=12)
    held = start_jobs(key, 12)
    [reason] = explain(waiting(lane_key=key).pk).reasons
    assert len(set(reason.facts["held_by"]) & set(held)) == 10  # one claim gave them their tokens, in any order
    assert reason.sentence.startswith("The limit stripe is full: 12 of 12 jobs are running. Running: #")


def test_a_paused_task_is_told_with_who_paused_it_and_why_and_its_end_puts_off_the_start() -> None:
    live_worker()
    job = _task_paused_for_a_while()
    starts_in = explain(job.pk).starts_in
    assert starts_in is not None
    assert timedelta(seconds=59) < starts_in[0] <= MINUTE
    job.delete()
    [reason] = explain(_task_paused().pk).reasons
    assert reason.sentence == (
        "The task tests.add is paused until it is resumed. Reason: the bank is down. Paused by: ann."
    )


def test_the_end_of_a_rate_is_the_one_that_the_claim_says() -> None:
    live_worker()
    key = limited(rate=Rate(10, per=MINUTE, burst=4))
    start_jobs(key, 4)
    job = waiting(lane_key=key)
    lane = Lane("default", 0, key)
    claim = Job.objects.claim_limited(Identity("w"), "stripe", [lane], {lane: 1}, limit=1)
    [reason] = explain(job.pk).reasons
    assert claim.due_in == pytest.approx(reason.facts["wait"], abs=1)
    assert 7 < reason.facts["wait"] <= 60 / 7
    # The clock was set back by half a minute, and then by a day: a bucket that far ahead is none.
    Bucket.objects.update(at=now(timedelta(seconds=30)))
    [reason] = explain(job.pk).reasons
    assert reason.facts["wait"] == pytest.approx(30 + 60 / 7, abs=2)
    Bucket.objects.update(at=now(timedelta(days=1)))
    assert [reason.code for reason in explain(job.pk).reasons] == ["free"]


def explain_and_claim(case: str) -> None:
    live_worker()
    job = CASES[case][0]()
    found = explain(job.pk)
    if not job.status.startswith(("PENDING", "RETRYING")) or found.reasons[0].code in (
        "no-worker", "unknown-task", "key-missing", "workers-busy", "waits-for-slots", "behind"
    ):  # fmt: skip
        return
    lane = Lane(job.queue, job.priority, job.lane_key)
    claims: list[Claim] = []
    if limiter := job.lane_key.partition(":")[0]:
        claims = Job.objects.claim_limited(Identity("w"), limiter, [lane], {lane: 1}, limit=1).claims
    else:
        claims = Job.objects.claim(Identity("w"), lanes=[lane])
    assert [claim.job_id for claim in claims] == ([] if found.is_blocked else [job.pk])


@each_of(*CASES, around=undone)
def test_what_is_said_to_be_free_is_what_a_claim_takes(*, case: Any) -> None:
    """Of what a claim can judge: it knows neither tasks nor workers, keys nor whose turn it is."""
    explain_and_claim(case)


def test_nothing_is_known_of_a_job_that_is_not_there() -> None:
    with pytest.raises(Job.DoesNotExist):
        explain(1)


@each_of("due", "limited", "later", "over", "waiting", around=undone)
def test_it_takes_at_most_five_statements_that_read(*, kind: Any) -> None:
    fields: dict[str, Any] = {
        "later": {"next_run_at": now(SOON)},
        "limited": {"lane_key": limited(max_running=1)},
    }
    live_worker()
    made = {"over": lambda: make_job(Status.COMPLETED), "waiting": _held}
    job = made[kind]() if kind in made else waiting(**fields.get(kind, {}))
    with transaction.atomic(), CaptureQueriesContext(connection) as sent:
        explain(job.pk)
    assert len(sent) == {"due": 3, "limited": 4, "later": 1, "over": 1, "waiting": 3}[kind]
    assert not [one for one in sent.captured_queries if "UPDATE" in one["sql"] or "INSERT" in one["sql"]]


def test_what_comes_before_it_is_counted_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasons, "COUNTED", 3)
    for _ in range(5):
        waiting(next_run_at=now(2 * AGO))
    found = explain(waiting().pk)
    assert (found.position, found.is_more, found.place) == (3, True, "3+")
    assert found.starts_in is None


def test_jobs_of_a_blocked_key_are_counted_once() -> None:
    """Lanes of higher priority come before it, and lanes beside it do not."""
    for key in ("a", "b"):
        waiting(lane_key=limited(key=key), priority=1)
        waiting(lane_key=limited(key=key), next_run_at=now(2 * AGO))
    found = explain(waiting(lane_key=limited(key="a")).pk)
    assert found.position == 3


def signs(starts: int, due: int, seconds: float = 2.0) -> dict[str, Any]:
    def histogram(n: int) -> dict[str, Any]:
        return {"count": n, "sum": n * seconds, "buckets": {"22": n}}

    return {
        "lease_acquisition_seconds": {"default": histogram(starts)},
        "run_seconds": {TASK: histogram(starts)},
        "queues": {"default": [due, 0, None]},
    }


def test_it_starts_at_the_measured_pace_of_minutes_with_a_backlog() -> None:
    live_worker(in_flight=8)
    record(1, **signs(starts=60, due=5))
    record(2, **signs(starts=30, due=5))
    record(3, **signs(starts=1, due=0))
    for _ in range(45):
        waiting(next_run_at=now(2 * AGO))
    found = explain(waiting().pk)
    assert found.starts_in is not None
    least, most = found.starts_in
    assert least == timedelta(seconds=45)
    assert most == timedelta(seconds=46 * 60 / 45 + asking.POLL)


def test_it_starts_within_a_poll_with_a_free_slot_and_without_one_it_is_not_known_when() -> None:
    live_worker()
    job = waiting()
    assert explain(job.pk).starts_in == (timedelta(), timedelta(seconds=asking.POLL))
    sql("UPDATE pulse_django_worker SET in_flight = 8")
    record(3, **signs(starts=1, due=0))
    waiting(next_run_at=now(2 * AGO))
    found = explain(job.pk)
    assert (found.position, found.starts_in) == (1, None)


def facts(**changes: Any) -> JobFacts:
    blank = dict.fromkeys(JobFacts._fields)
    told = {"now": datetime(2026, 1, 1), "id": 1, "queue": "q", "status": "PENDING", "slots": 8, "free": 8}  # noqa: DTZ001 - as with USE_TZ off
    return JobFacts(**blank | told | changes)  # type: ignore[arg-type]


def limit(**numbers: Any) -> LimitState:
    blank: dict[str, Any] = dict.fromkeys(LimitState._fields) | {"held": 0, "held_of_key": 0}
    return LimitState(**blank | numbers)


@each_of(
    ({"tokens": 0.5, "token_every": 10.0}, 0, None, (5, 6)),
    ({"tokens": 0.5, "token_every": 10.0}, 3, None, (35, 36)),
    ({"tokens": 4.0, "token_every": 10.0}, 3, None, (0, 1)),
    ({"running": 2, "held": 2}, 0, 30.0, (0, 31)),
    ({"running": 2, "held": 2}, 4, 30.0, (0, 91)),
    ({"running": 2, "held": 1}, 0, None, (0, 1)),
    ({"running": 2, "held": 2}, 0, None, None),
    ({"per_key": 1, "held_of_key": 1}, 1, 30.0, (0, 61)),
)
def test_a_limit_bounds_the_start(*, limits: Any, own: Any, seconds: Any, bounds: Any) -> None:
    pace = PaceFacts(starts=[6e9], run_seconds=seconds)
    found = asking.starts_in(facts(), [], LineFacts(0, own, 0), pace, [limit(**limits)])
    expected = bounds and tuple(timedelta(seconds=one) for one in bounds)
    assert found == expected


def test_an_end_that_is_known_comes_on_top() -> None:
    job = facts()
    closed = Reason(code="limit-paused", until=job.now + MINUTE)
    found = asking.starts_in(job, [closed], LineFacts(0, 0, 0), PaceFacts(starts=[], run_seconds=None), [])
    assert found == (MINUTE, MINUTE + timedelta(seconds=asking.POLL))


# ------------------------------------------------------------------------------------------------- command, page, tag


ran = partial(run, "pulse_explain")


def test_the_command_says_it_in_lines_and_as_json() -> None:
    live_worker()
    job = _closed()
    lines = ran(str(job.pk)).splitlines()
    assert lines[0] == f"Job {job.pk}: PENDING"
    assert lines[1].startswith("  1. The limit stripe is paused until ")
    assert lines[2:] == ["Jobs before it: 0", lines[3]]
    assert lines[3].startswith("Starts in: 59s to ")
    said = json.loads(ran(str(job.pk), "--json"))
    assert (said["command"], said["job"], said["database"]) == ("pulse_explain", job.pk, "default")
    assert said["reasons"][0]["code"] == "limit-paused"
    assert said["reasons"][0]["facts"] == {"limit": "stripe", "key": "acme", "reason": "429"}
    assert len(said["starts_in"]) == 2


def test_the_command_refuses_a_job_that_is_not_there() -> None:
    with pytest.raises(CommandError, match="There is no job 7"):
        ran("7")
    with pytest.raises(CommandError, match="whole number"):
        ran("seven")


def hostile() -> Job:
    key = limited(key=HOSTILE, name="<b>x</b>", max_running_per_key=1)
    start_jobs(key, 1)
    Pause.objects.pause(queue="default", reason=HOSTILE)
    Pause.objects.pause(HOSTILE.rstrip("\u202e"), reason=HOSTILE, by=HOSTILE)
    return waiting(lane_key=key, task=HOSTILE.rstrip("\u202e"))


def page_of(client: Client, job: Job) -> str:
    return text(client, f"/admin/pulse_django/job/{job.pk}/change/")


def test_hostile_names_are_text_on_the_page_and_on_a_terminal() -> None:
    job = hostile()
    page = page_of(staff("pulse_view_jobs"), job)
    assert "<script>alert" not in page
    assert "<b>x</b>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e" in page
    assert "\u202e" not in ran(str(job.pk))


def test_the_page_of_a_waiting_job_says_why_in_the_language_of_its_reader_who_may_view_it() -> None:
    live_worker()
    client, job = staff("pulse_view_jobs"), _closed()
    assert "The limit stripe is paused until" in page_of(client, job)
    with override_settings(LANGUAGE_CODE="de"):
        page = page_of(client, job)
    assert "Warum der Job nicht läuft" in page
    assert "Das Limit stripe ist pausiert bis" in page
    kept: Explanation = explain(make_job(next_run_at=now(SOON)).pk)
    assert kept.reasons[0].sentence.startswith("It is not due before")
    with translation.override("de"):
        assert kept.reasons[0].sentence.startswith("Nicht fällig vor")


@each_of(*[one for one in Status if one not in (*CLAIMABLE, Status.WAITING)], around=undone)
def test_the_page_of_another_job_does_not(admin_client: Client, *, status: Any) -> None:
    assert "pulse-why" not in page_of(admin_client, make_job(status))


def test_the_page_opens_if_nothing_can_be_found_out(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job = waiting()
    monkeypatch.setattr(asking, "_LINE", "SELECT pg_sleep(9), %(id)s, 1")
    monkeypatch.setattr("pulse_django.console.jobs.explaining.TIMEOUT", "10ms")
    page = page_of(admin_client, job)
    assert "The reason could not be determined." in page
    assert "statement timeout" in page


def shown(job: object) -> str:
    return Template("{% load pulse %}{% pulse_position job %}").render(Context({"job": job}))


def test_a_template_shows_the_place_of_a_waiting_job_and_nothing_of_others() -> None:
    live_worker()
    waiting(next_run_at=now(2 * AGO), priority=1)
    job = waiting()
    assert shown(job) == "Jobs before it: 1. Starts in 0.0s to 1.0s"
    assert shown(str(job.pk)) == shown(job)
    assert shown(make_job(Status.COMPLETED)) == ""
    assert shown(make_job(next_run_at=now(SOON))) == ""
    assert shown(987654) == ""
    sql("UPDATE pulse_django_worker SET in_flight = slots")
    assert shown(job) == "Jobs before it: 1"

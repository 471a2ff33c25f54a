"""A gate that is shut holds from the next claim on, also for a worker that has just looked. With mutants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.utils import timezone

from pulse_django import capabilities
from pulse_django.citus import dialect as citus
from pulse_django.expiry import expire
from pulse_django.health.explanation import explain
from pulse_django.limits.rules import Limit
from pulse_django.models import Job, Limiter, Pause
from pulse_django.pauses import pausing as pauses
from pulse_django.queue import capability, claim
from pulse_django.queue.capability import Capability, Gate
from pulse_django.queue.database.lane_queries import LaneUse
from pulse_django.queue.gates import gates_of_jobs
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lane_keys import lane_key, lane_of_chunks, lane_of_share
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Identity
from tests.database import empty_tables
from tests.faults import all_faults
from tests.health.states import live_worker

pytestmark = [pytest.mark.usefixtures("pulse_db"), pytest.mark.alters_statements]

ME, MINUTE = Identity("me"), timedelta(minutes=1)
SEND, NIGHT = "shop.send", "shop.night"
SHARE, LIMITED = lane_of_share("ann"), lane_key("stripe", "ann")

# A capability from outside: a task that starts at night only.
BY_DAY = Gate(
    code="by-day",
    job=f"({{job}}.task::text <> '{NIGHT}' OR night.is_night)",
    of_tasks=True,
    about=("task",),
    sentence="The task %(task)s starts at night.",
    sentence_until="The task %(task)s starts at night, which begins at %(until)s.",
    facts="SELECT statement_timestamp() + interval '1 hour' AS opens_at, '' AS reason, '' AS shut_by",
)
NIGHT_SHIFT = Capability(name="night", reads="SELECT false AS is_night", gates=(BY_DAY,))
INSTALLED = (citus.CAPABILITY, expire.CAPABILITY, pauses.CAPABILITY, NIGHT_SHIFT)


def enqueue(task: str = SEND, **fields: Any) -> None:
    Job.objects.enqueue(NewJob(task=task, **fields))


def started(lane: Lane | None = None, *, free: int = 9) -> list[str]:
    lane = lane or Lane("default", 0)
    takes = {lane: 9} if lane.key else None
    claims = Job.objects.claim(ME, limit=9, slots=claim.Slots(9, free), lanes=[lane], takes=takes)
    return [one.task for one in claims]


def started_of_limit() -> list[str]:
    lane = Lane("default", 0, LIMITED)
    return [one.task for one in Job.objects.claim_limited(ME, "stripe", [lane], {lane: 9}, limit=9).claims]


def nothing() -> None: ...


def pause(*tasks: str, **which: Any) -> Callable[[], object]:
    return lambda: Pause.objects.pause(*tasks, **which)


def of_limit(**options: Any) -> Callable[[], None]:
    return lambda: enqueue(lane_key=LIMITED, **options)


# What is there when the worker looks, what happens then, and the claim that must start nothing.
SCENES: dict[str, tuple[Callable[[], object], Callable[[], object], Callable[[], list[str]]]] = {
    "a task is paused": (enqueue, pause(SEND), started),
    "a task is paused in a queue": (enqueue, pause(SEND, queue="default"), started),
    "a queue is paused": (enqueue, pause(queue="default"), started),
    "a key of a share is paused": (
        lambda: enqueue(lane_key=SHARE), pause(lane_key=SHARE), lambda: started(Lane("default", 0, SHARE))
    ),
    "the task of a limited job is paused": (of_limit(), pause(SEND), started_of_limit),
    "the queue of a limited job is paused": (of_limit(), pause(queue="default"), started_of_limit),
    "a key of a limit is paused": (of_limit(), pause(lane_key=LIMITED), started_of_limit),
    "a limit allows less than the job weighs": (
        of_limit(weight=3), lambda: Limiter.objects.override("stripe", {"max_running": 2}), started_of_limit
    ),
    "a limit is closed": (
        of_limit(), lambda: Limiter.objects.pause("stripe", duration=MINUTE, reason="429"), started_of_limit
    ),
    "an expired job is enqueued": (nothing, lambda: enqueue(expires=timezone.now() - MINUTE), started),
    "an expired job is claimed by its id": (
        nothing, lambda: enqueue(expires=timezone.now() - MINUTE),
        lambda: [one.task for one in Job.objects.claim_these(ME, list(Job.objects.values_list("id", flat=True)))],
    ),
    "a job of the night, by day": (nothing, lambda: enqueue(NIGHT), started),
    "a limited job, by a plain claim": (nothing, of_limit(), started),
    "a chunk's job, by a plain claim": (nothing, lambda: enqueue(lane_key=lane_of_chunks(SEND)), started),
    "a job that is too heavy for the free slots": (nothing, lambda: enqueue(weight=3), lambda: started(free=2)),
}  # fmt: skip


def started_in_vain() -> dict[str, list[str]]:
    """Return the scenes in which something starts that must not."""
    found = {}
    for scene, (before, then, claims) in SCENES.items():
        empty_tables()
        Limiter.objects.declare_new("project", {"stripe": Limit("stripe", max_running=5).numbers()})
        before()
        assert len(Job.objects.waiting()) == (before is not nothing), scene
        then()
        if tasks := claims():
            found[scene] = tasks
    return found


def without(code: str) -> tuple[Capability, ...]:
    return tuple(replace(one, gates=tuple(gate for gate in one.gates if gate.code != code)) for one in INSTALLED)


def test_what_shuts_a_gate_holds_from_the_next_claim_on(installing: None) -> None:
    capability.install(*INSTALLED)
    assert started_in_vain() == {}


@pytest.fixture
def installing() -> Iterator[None]:
    yield
    capabilities.install()


def test_each_gate_is_needed(installing: None) -> None:
    mutants: dict[str, tuple[Capability, ...]] = {
        gate.code: without(gate.code) for one in INSTALLED for gate in one.gates
    }
    mutants["an empty array"] = (
        citus.CAPABILITY, expire.CAPABILITY,
        replace(pauses.CAPABILITY, reads="SELECT '{}'::text[] AS names"), NIGHT_SHIFT,
    )  # fmt: skip
    found = {}
    with all_faults() as about:
        for mutant, installed in mutants.items():
            with about(mutant):
                capability.install(*installed)
                found[mutant] = set(started_in_vain())
                assert found[mutant]
    assert found["an empty array"] == found["queue-paused"] | found["task-paused"]


def test_the_key_of_a_lane_is_needed(installing: None) -> None:
    def of_any_lane(model: Any, alias: str, heaviest: str) -> Any:
        sql, params = compile_pick(model, alias, heaviest)
        assert "lane_key" in sql
        return sql.replace('"lane_key"::text = (lane.key)', '"lane_key"::text <> (lane.queue)'), params

    compile_pick = claim._pick
    with mock.patch.object(claim, "_pick", of_any_lane):
        capability.install(*INSTALLED)
        assert {"a limited job, by a plain claim", "a chunk's job, by a plain claim"} <= set(started_in_vain())


def test_a_job_that_a_gate_of_tasks_shuts_out_is_set_aside_and_brought_back(installing: None) -> None:
    capability.install(*INSTALLED)
    enqueue(NIGHT), enqueue(SEND)
    assert Job.objects.set_aside() == ["default"]
    assert Job.objects.get(ready=None).task == NIGHT
    assert not Job.objects.bring_back()
    night_shift = replace(NIGHT_SHIFT, reads="SELECT true AS is_night")
    capability.install(citus.CAPABILITY, expire.CAPABILITY, pauses.CAPABILITY, night_shift)
    assert Job.objects.bring_back() == ["default"]
    assert sorted(started()) == [NIGHT, SEND]


def test_a_shut_gate_is_a_reason_that_explain_gives(installing: None) -> None:
    capability.install(*INSTALLED)
    live_worker(tasks=None)
    enqueue(NIGHT)
    found = explain(Job.objects.get().pk)
    [reason] = found.reasons
    assert (reason.code, reason.facts) == ("by-day", {"task": NIGHT})
    assert reason.sentence.startswith(f"The task {NIGHT} starts at night, which begins at 2")
    assert found.starts_in is not None
    assert found.starts_in[0] > 59 * MINUTE


def test_a_gate_that_could_become_a_join_or_that_no_statement_could_ask_is_refused() -> None:
    joins = ("not exists (SELECT 1)", "{job}.task IN (SELECT 'a')", "{job}.task = ANY (values ('a'))")
    refused: list[tuple[dict[str, str], str]] = [
        *(({"job": condition}, r"use an ARRAY\(SELECT") for condition in joins),
        ({}, "needs a condition on a lane or on a job, not both"),
        ({"lane": "true", "job": "true"}, "needs a condition on a lane or on a job, not both"),
        ({"lane": "{lane}.key <> 'x'"}, "the gate reads the key of a lane: set of_keys=True"),
        ({"job": "{job}.task LIKE 'a%'"}, "read as a parameter"),
    ]
    for wrong, why in refused:
        with pytest.raises(ValueError, match=why):
            Gate(code="x", sentence="No.", **wrong)  # type: ignore[arg-type]


def test_a_gate_that_is_unknown_is_shut(installing: None) -> None:
    gate = Gate(code="unknown", job="{job}.task::text = NULL::text", of_tasks=True, sentence="It is unknown.")
    capability.install(*INSTALLED, Capability(name="unknown", gates=(gate,)))
    live_worker(tasks=None)
    enqueue()
    assert not started()
    assert [reason.code for reason in explain(Job.objects.get().pk).reasons] == ["unknown"]
    assert Job.objects.set_aside() == ["default"]


def test_nothing_is_claimed_before_it_is_known_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capability, "_installed", None)
    with pytest.raises(RuntimeError, match=r"django\.setup"):
        gates_of_jobs("job")


def test_what_claims_know_of_a_key_says_when_its_pause_ends() -> None:
    """A worker looks again then, and not a second later."""
    lane = Lane("default", 0, lane_key("", "acme"))
    assert Job.objects.use([lane])[lane] == LaneUse(0, is_open=True)
    Pause.objects.pause(lane_key=lane.key, duration=timedelta(seconds=0.3))
    use = Job.objects.use([lane])[lane]
    assert not use.is_open
    assert use.opens_in is not None
    assert 0 < use.opens_in <= 0.3
    Pause.objects.pause(lane_key=lane.key)
    assert Job.objects.use([lane])[lane] == LaneUse(0, is_open=False)

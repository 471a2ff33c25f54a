"""The judge of chaos runs finds what is wrong, and nothing in a history that is right."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from chaos.checker import Execution, History, Window, judge
from chaos.clock import Clock
from chaos.shards import joined
from chaos.witness import Change, Entry, Row, in_one
from tests.faults import all_faults, each_of

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
FIRST, SECOND = "w0-1:boot:1", "w1-1:boot:1"


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


NEW = Row(
    status="PENDING", attempts=0, refunds=0, max_attempts=3, losses=0, locked_by=None, token=None, lease_until=None,
    deadline=None, started_at=None, last_error="", result=None, cancel_requested_at=None,
)  # fmt: skip
RUNS = replace(NEW, status="RUNNING", attempts=1, locked_by=FIRST, token=1, lease_until=at(3))
BEATEN = replace(RUNS, lease_until=at(4))
LOST = replace(NEW, status="RETRYING", attempts=1, losses=1, last_error="worker lease expired")
AGAIN = replace(LOST, status="RUNNING", attempts=2, locked_by=SECOND, token=2, lease_until=at(8))
DONE = replace(LOST, status="COMPLETED", attempts=2, result="second", last_error="worker lease expired")
LIFE = (
    (0.0, None, NEW),
    (1.0, NEW, RUNS),
    (2.0, RUNS, BEATEN),
    (4.5, BEATEN, LOST),
    (6.0, LOST, AGAIN),
    (7.0, AGAIN, DONE),
)

Changed = Callable[[History], History]


def changes(*steps: tuple[float, Row | None, Row | None]) -> list[Change]:
    ops = {(True, False): "INSERT", (False, False): "UPDATE", (False, True): "DELETE"}
    return [
        Change(
            seq=seq,
            at=at(when),
            op=ops[before is None, after is None],
            by=((before and before.locked_by) or (after and after.locked_by) or "").partition(":")[0],
            job=1,
            before=before,
            after=after,
        )
        for seq, (when, before, after) in enumerate(steps)
    ]


def execution(name: str, attempt: int, holder: str, token: int, **facts: Any) -> Execution:
    base = Execution(
        id=name, job=1, attempt=attempt, token=token, holder=holder, listens=True, began_at=5 * attempt - 4,
        ended_at=None, ended="",
    )  # fmt: skip
    return replace(base, **facts)


RIGHT = History(
    acknowledged=frozenset({1}),
    changes=changes(*LIFE),
    ledger=[
        Entry(job=1, number=1, worker=FIRST, outcome="WORKER_LOST", is_reaped=True, late_outcome=""),
        Entry(job=1, number=2, worker=SECOND, outcome="SUCCEEDED", is_reaped=False, late_outcome=""),
    ],
    executions=[
        execution("first", 1, FIRST, 1, ended_at=4.2, ended="raised LeaseLost"),
        execution("second", 2, SECOND, 2, ended_at=6.9, ended="end"),
    ],
    faults=[Window(begin=at(1.5), end=at(2.0), worker="w0-1")],
    slack=timedelta(seconds=1),
    grace=timedelta(seconds=5),
    epoch=BEGIN,
)


def life(*steps: tuple[float, Row | None, Row | None]) -> Changed:
    return lambda history: replace(history, changes=changes(*steps))


def first_went_on_until(seconds: float, **facts: Any) -> Changed:
    def change(history: History) -> History:
        first, second = history.executions
        return replace(history, executions=[replace(first, ended_at=seconds), second], **facts)

    return change


def written_by(worker: str) -> Changed:
    return lambda history: replace(history, changes=[replace(one, by=worker) for one in history.changes])


def without(name: str) -> Changed:
    return lambda history: replace(history, **{name: []})


BELIEVED_FIRST = replace(DONE, result="first")
STOLEN = replace(BEATEN, locked_by=SECOND)


def test_a_history_that_is_right_breaks_nothing_and_proves_something() -> None:
    verdict = judge(RIGHT)
    assert verdict.violations == []
    assert verdict.proves_something
    assert verdict.counts["reaps"] == 1
    assert verdict.counts["jobs that ran more than once"] == 1


def test_row_that_one_transaction_moves_to_history_was_changed() -> None:
    """In either order. A job that is inserted and deleted before it is over was lost."""
    [gone, there], [ended] = changes((7.0, AGAIN, None), (7.0, None, DONE)), changes((7.0, AGAIN, DONE))
    new, lost = changes((0.0, None, NEW), (0.0, NEW, None))
    with all_faults() as about:
        for halves, transactions, expected in (
            ([gone, there], "11", [ended]),
            ([there, gone], "11", [ended]),
            ([gone, there], "12", [gone, there]),
            ([there, gone], "12", [there, gone]),
            ([new, lost], "11", [new, lost]),
        ):
            with about([one.op for one in halves]):
                assert [replace(one, seq=0) for one in in_one(halves, transactions)] == [
                    replace(one, seq=0) for one in expected
                ]


def test_a_run_in_which_nothing_went_wrong_proves_nothing() -> None:
    assert not judge(replace(RIGHT, faults=[])).proves_something


def test_a_claim_whose_answer_was_lost_with_the_server_is_nobodys_run() -> None:
    away = [Window(begin=at(1.2), end=at(2.0))]
    claimed = replace(RUNS, started_at=at(1.0))
    unknown = life(LIFE[0], (1.0, NEW, claimed), (2.0, claimed, claimed), (4.0, claimed, LOST), *LIFE[4:])(RIGHT)
    began = replace(unknown, faults=away)
    never_began = replace(began, executions=began.executions[1:])
    assert "no healthy job is reaped" in {violation.rule for violation in judge(began).violations}
    assert judge(never_began).violations == []
    assert judge(never_began).counts["claims that nobody learned of"] == 1


def test_a_claim_that_the_server_was_too_slow_to_answer_is_nobodys_run_if_its_worker_said_so() -> None:
    claimed = replace(RUNS, started_at=at(1.0))
    began = life(LIFE[0], (1.0, NEW, claimed), (2.0, claimed, claimed), (4.0, claimed, LOST), *LIFE[4:])(RIGHT)
    began = replace(began, faults=[Window(begin=at(20), end=at(21), worker="w0-1")])
    never_began = replace(began, executions=began.executions[1:])

    def is_broken(history: History, **said: float) -> bool:
        heard = {worker.replace("_", "-"): [at(when)] for worker, when in said.items()}
        found = judge(replace(history, unanswered=heard)).violations
        return "no healthy job is reaped" in {violation.rule for violation in found}

    assert not is_broken(never_began, w0_1=1.7)
    assert is_broken(never_began, w0_2=1.7), "its successor did"
    assert is_broken(never_began), "nobody said anything"
    assert is_broken(never_began, w1_1=1.7), "another worker did"
    assert is_broken(never_began, w0_1=0.9), "of an earlier claim"
    assert is_broken(never_began, w0_1=2.5), "long after it"
    assert is_broken(began, w0_1=1.7), "it had learned of it"


def test_who_was_killed_is_not_healthy_however_long_an_outage_delays_the_reap() -> None:
    away = Window(begin=at(2.5), end=at(7.0))
    late = life(*LIFE[:3], (8.0, BEATEN, LOST), (9.0, LOST, AGAIN), (9.5, AGAIN, DONE))(RIGHT)

    def rules(*faults: Window) -> set[str]:
        return {violation.rule for violation in judge(replace(late, faults=[*faults, away])).violations}

    killed = Window(begin=at(1.5), end=at(2.0), worker="w0-1")
    assert at(8.0) > killed.end + RIGHT.grace
    assert "no healthy job is reaped" not in rules(killed)
    assert "no healthy job is reaped" in rules(), "that the server was away is no excuse"
    assert "no healthy job is reaped" in rules(replace(killed, begin=at(-9), end=at(-8))), "it had recovered"
    assert "no healthy job is reaped" in rules(replace(killed, worker="w1-1")), "another worker was killed"


def test_who_did_not_get_to_run_may_stop_when_it_does() -> None:
    frozen = Window(begin=at(3.5), end=at(6.0), worker="w0-1", stops=True)
    late = first_went_on_until(6.5, faults=[frozen])(RIGHT)
    assert judge(late).violations == []
    assert judge(late).counts["overlapping executions"] == 1


def test_arguments_may_change_while_a_job_waits() -> None:
    amended = {"args": [1]}
    wait = life(
        LIFE[0],
        (0.5, NEW, replace(NEW, **amended)),
        *(
            (when, before and replace(before, **amended), after and replace(after, **amended))
            for when, before, after in LIFE[1:]
        ),
    )
    verdict = judge(wait(RIGHT))
    assert verdict.violations == []
    assert verdict.counts["changes of arguments"] == 1


BROKEN: list[tuple[str, Changed]] = [
    ("nothing is lost", lambda history: replace(history, acknowledged=frozenset({1, 2}))),
    ("nothing is lost", life(*LIFE[:2], (2.0, RUNS, None))),
    ("quiescent at the end", life(*LIFE[:3])),
    ("no illegal transition", life(LIFE[0], (1.0, NEW, replace(NEW, status="COMPLETED")))),
    ("terminal once", life(*LIFE, (9.0, DONE, replace(DONE, status="PENDING")))),
    ("terminal once", life(*LIFE, (9.0, DONE, replace(DONE, result="other")))),
    ("attempts only rise", life(*LIFE[:3], (4.5, BEATEN, replace(LOST, attempts=0)))),
    ("attempts rise by one for each claim", life(LIFE[0], (1.0, NEW, replace(RUNS, attempts=2)))),
    ("tokens rise", life(*LIFE[:4], (6.0, LOST, replace(AGAIN, token=1)))),
    ("a running job has a lease", life(LIFE[0], (1.0, NEW, replace(RUNS, lease_until=None)))),
    ("no live lease is stolen", life(*LIFE[:2], (2.0, RUNS, STOLEN))),
    ("a heartbeat never shortens", life(*LIFE[:2], (2.0, RUNS, replace(RUNS, lease_until=at(2.5))))),
    ("no reap before its time", life(*LIFE[:3], (3.5, BEATEN, LOST), *LIFE[4:])),
    ("recovery is in time", life(*LIFE[:3], (5.5, BEATEN, LOST), *LIFE[4:])),
    ("no healthy job is reaped", without("faults")),
    ("no healthy job is reaped", lambda history: replace(history, faults=[Window(begin=at(1), end=at(4))])),
    ("no stale write is accepted", life(*LIFE[:5], (7.0, AGAIN, BELIEVED_FIRST))),
    ("no stale write is accepted", life(*LIFE[:5], (7.0, AGAIN, replace(DONE, result="nobody's")))),
    ("every run has its entry", without("ledger")),
    ("a lost worker costs an attempt", life(*LIFE[:3], (4.5, BEATEN, replace(LOST, refunds=1)))),
    ("attempts stay within the budget", life(LIFE[0], (1.0, NEW, replace(RUNS, attempts=4)))),
    (
        "every dead letter has its reason",
        life(*LIFE[:3], (4.5, BEATEN, replace(LOST, status="DEAD_LETTERED", last_error=""))),
    ),
    (
        "no execution without a claim",
        lambda h: replace(h, executions=[*h.executions, execution("x", 3, SECOND, 9)]),
    ),
    ("no fence is minted twice", life(*LIFE[:4], (6.0, LOST, RUNS), (7.0, RUNS, LOST))),
    ("only its holder extends a lease", written_by("w1-1")),
    ("only its holder reports", written_by("w0-1")),
    ("who loses its lease stops", first_went_on_until(5.1)),
    ("nobody runs twice for nothing", first_went_on_until(6.5, faults=[Window(begin=at(1), end=at(4))])),
    ("no deadlock", lambda history: replace(history, deadlocks=["two processes"])),
    ("arguments change only while a job waits", life(*LIFE[:2], (2.0, RUNS, replace(BEATEN, args=[1])))),
    ("arguments change only while a job waits", life(LIFE[0], (1.0, NEW, replace(RUNS, args=[1])))),
    ("arguments change only while a job waits", life(*LIFE[:5], (7.0, AGAIN, replace(DONE, args=[1])))),
]


@each_of(*BROKEN)
def test_each_rule_is_found_broken(*, rule: Any, change: Any) -> None:
    assert rule in {violation.rule for violation in judge(change(RIGHT)).violations}


HOUR = timedelta(hours=1)


def test_what_a_clock_showed_while_it_was_wrong_is_told_as_it_really_was(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock", None)
    right = _passing()
    clock.jump_to(HOUR.total_seconds())
    ahead = _passing()
    clock.jump_to(-HOUR.total_seconds())
    behind = _passing()
    clock.jump_to(0.0)
    again = _passing()
    assert clock.really(right) == right
    assert clock.really(ahead + HOUR) == ahead
    assert clock.really(behind - HOUR) == behind
    assert clock.really(again) == again
    assert clock.really(ahead - HOUR) == ahead - HOUR, "it never showed that"


def _passing() -> datetime:
    """An instant with some time before and after it: clocks have ticks."""
    time.sleep(0.001)
    now = datetime.now(UTC)
    time.sleep(0.001)
    return now


def of_shard(when: float, shard: str, before: Row | None, after: Row | None) -> Change:
    op = "INSERT" if before is None else "DELETE" if after is None else "UPDATE"
    by = ((before and before.locked_by) or (after and after.locked_by) or "").partition(":")[0]
    return Change(seq=0, at=at(when), op=op, by=by, job=1, before=before, after=after, shard=shard)


BORN = of_shard(0.0, "a", None, NEW)
GONE = of_shard(0.3, "a", NEW, None)
THERE = of_shard(0.4, "b", None, NEW)
LIFE_THERE = [replace(one, shard="b") for one in RIGHT.changes[1:]]


def rules_of(*shards: list[Change]) -> set[str]:
    return {one.rule for one in judge(replace(RIGHT, changes=joined(shards))).violations}


def test_a_job_that_moves_breaks_nothing() -> None:
    """Each job is in one shard at a time, and a move changes nothing else."""
    verdict = judge(replace(RIGHT, changes=joined([[THERE, *LIFE_THERE], [BORN, GONE]])))
    assert verdict.violations == []
    assert verdict.counts["moves"] == 1


def test_a_job_that_comes_back_breaks_nothing() -> None:
    back = [of_shard(0.5, "b", NEW, None)], [of_shard(0.6, "a", None, NEW)]
    assert rules_of([BORN, GONE, *back[1], *RIGHT.changes[1:]], [THERE, *back[0]]) == {"a job is in one shard"}
    stays = [replace(one, shard="a") for one in RIGHT.changes[1:]]
    assert rules_of([BORN, GONE, *back[1], *stays], [THERE, *back[0]]) == set()


@pytest.mark.parametrize(
    ("shards", "broken"),
    [
        pytest.param(([BORN, GONE], []), "nothing is lost", id="never arrives"),
        pytest.param(([BORN], [THERE, *LIFE_THERE]), "a job is in one shard", id="stays as well"),
        pytest.param(
            ([BORN, GONE], [THERE, replace(THERE, at=at(0.5)), *LIFE_THERE]), "a job is in one shard", id="twice"
        ),
        pytest.param(([BORN, GONE, *RIGHT.changes[1:]], [THERE]), "a job is in one shard", id="goes on where it left"),
        pytest.param(
            ([BORN, GONE], [replace(THERE, after=replace(NEW, max_attempts=9)), *LIFE_THERE]),
            "a move changes nothing",
            id="is changed",
        ),
    ],
)
def test_what_is_wrong_is_found(shards: tuple[list[Change], list[Change]], broken: str) -> None:
    assert broken in rules_of(*shards)


def test_tokens_rise_over_shards() -> None:
    again = replace(RUNS, attempts=2, token=1, lease_until=at(8))
    moved = [of_shard(4.6, "a", LOST, None), of_shard(4.7, "b", None, LOST), of_shard(6.0, "b", LOST, again)]
    here = [BORN, *(replace(one, shard="a") for one in RIGHT.changes[1:4]), moved[0]]
    assert "tokens rise" in rules_of(here, moved[1:])


def test_what_is_the_matter_with_one_shard_excuses_nothing_in_another() -> None:
    struck = Window(begin=at(1.5), end=at(2.0), worker="w0-1", shard="default")
    assert BEATEN in [one.before for one in RIGHT.changes]
    assert judge(replace(RIGHT, faults=[struck])).violations == []
    elsewhere = judge(replace(RIGHT, faults=[replace(struck, shard="b")]))
    assert {one.rule for one in elsewhere.violations} == {"no healthy job is reaped"}

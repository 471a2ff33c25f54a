"""The judge knows jobs that move between shards: each is in one at a time, and a move changes nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaos.checker import Window, judge
from chaos.shards import joined
from chaos.witness import Change, Row
from tests.harness.test_checker import BEATEN, LOST, NEW, RIGHT, RUNS, at


def change(when: float, shard: str, before: Row | None, after: Row | None) -> Change:
    op = "INSERT" if before is None else "DELETE" if after is None else "UPDATE"
    by = ((before and before.locked_by) or (after and after.locked_by) or "").partition(":")[0]
    return Change(seq=0, at=at(when), op=op, by=by, job=1, before=before, after=after, shard=shard)


BORN = change(0.0, "a", None, NEW)
GONE = change(0.3, "a", NEW, None)
THERE = change(0.4, "b", None, NEW)
LIFE_THERE = [replace(one, shard="b") for one in RIGHT.changes[1:]]


def rules(*shards: list[Change]) -> set[str]:
    return {one.rule for one in judge(replace(RIGHT, changes=joined(shards))).violations}


def test_a_job_that_moves_breaks_nothing() -> None:
    verdict = judge(replace(RIGHT, changes=joined([[THERE, *LIFE_THERE], [BORN, GONE]])))
    assert verdict.violations == []
    assert verdict.counts["moves"] == 1


def test_a_job_that_comes_back_breaks_nothing() -> None:
    back = [change(0.5, "b", NEW, None)], [change(0.6, "a", None, NEW)]
    assert rules([BORN, GONE, *back[1], *RIGHT.changes[1:]], [THERE, *back[0]]) == {"a job is in one shard"}
    stays = [replace(one, shard="a") for one in RIGHT.changes[1:]]
    assert rules([BORN, GONE, *back[1], *stays], [THERE, *back[0]]) == set()


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
    assert broken in rules(*shards)


def test_tokens_rise_over_shards() -> None:
    again = replace(RUNS, attempts=2, token=1, lease_until=at(8))
    moved = [change(4.6, "a", LOST, None), change(4.7, "b", None, LOST), change(6.0, "b", LOST, again)]
    here = [BORN, *(replace(one, shard="a") for one in RIGHT.changes[1:4]), moved[0]]
    assert "tokens rise" in rules(here, moved[1:])


def test_what_is_the_matter_with_one_shard_excuses_nothing_in_another() -> None:
    struck = Window(begin=at(1.5), end=at(2.0), worker="w0-1", shard="default")
    assert BEATEN in [one.before for one in RIGHT.changes]
    assert judge(replace(RIGHT, faults=[struck])).violations == []
    elsewhere = judge(replace(RIGHT, faults=[replace(struck, shard="b")]))
    assert {one.rule for one in elsewhere.violations} == {"no healthy job is reaped"}

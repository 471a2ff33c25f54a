"""Limits as people see them, on the command line and in the conditions."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError

from pulse_django.limits.facts import limits
from pulse_django.limits.rules import Limit, Rate, in_words, override_of
from pulse_django.models import Job, Limiter
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lane_keys import lane_key
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Identity
from tests.database import empty_tables
from tests.faults import each_of
from tests.operations.steps import run as done
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")

MINUTE = timedelta(minutes=1)


def declare(name: str = "stripe", **numbers: Any) -> None:
    Limiter.objects.declare_new("project", {name: Limit(name, **numbers).numbers()})


def enqueue(count: int, *, limiter: str = "stripe", key: str | None = None, **fields: Any) -> Lane:
    lane = Lane("default", 0, lane_key(limiter, key))
    Job.objects.enqueue_many([NewJob(task="t", lane_key=lane.key, **fields)] * count)
    return lane


def start(*lanes: Lane, limit: int = 9, limiter: str = "stripe") -> None:
    assert Job.objects.claim_limited(Identity("me"), limiter, lanes, dict.fromkeys(lanes, limit), limit=limit).claims


run = partial(done, "pulse_limits")


class TestFacts:
    def test_use_keys_and_what_waits(self) -> None:
        declare(max_running=5, max_running_per_key=2)
        start(enqueue(3, key="a"), enqueue(1, key="b"))
        enqueue(4, limiter="other")
        sql("UPDATE pulse_django_job SET next_run_at = clock_timestamp() - interval '60 s'")
        [one] = limits("default")
        assert (one.name, one.state, one.running, one.waiting, one.is_more) == ("stripe", "open", 3, 1, False)
        assert (one.keys, one.full_keys) == ([("a", 2), ("b", 1)], ["a"])
        assert one.waiting_for is not None
        assert 60 <= one.waiting_for < 120
        assert one.in_words == "5 running, 2 of each key"

    def test_a_limit_that_is_full(self) -> None:
        declare(max_running=1)
        start(enqueue(2))
        assert limits("default", "stripe")[0].state == "full"

    def test_what_people_changed_is_in_force_until_its_end(self) -> None:
        declare(max_running=5, rate=Rate(10, per=MINUTE))
        Limiter.objects.override("stripe", {"max_running": None}, duration=MINUTE, by="ann", reason="slow")
        [one] = limits("default")
        assert one.in_words == "10 in 1m"
        assert (one.override, one.overridden_by, one.override_reason) == ({"max_running": None}, "ann", "slow")
        sql("UPDATE pulse_django_limiter SET override_until = clock_timestamp()")
        [one] = limits("default")
        assert (one.override, one.numbers["max_running"]) == (None, 5)

    def test_many_waiting_jobs_are_counted_to_a_bound(self) -> None:
        declare(max_running=1)
        enqueue(10_050)
        [one] = limits("default")
        assert (one.waiting, one.is_more) == (10_001, True)

    def test_there_may_be_none(self) -> None:
        assert limits("default") == []
        assert limits("default", "stripe") == []


class TestWords:
    def test_an_override_has_the_same_numbers_as_a_limit(self) -> None:
        rate = Rate(100, per=MINUTE)
        assert (
            override_of({"max_running": 3, "rate_per_key": rate})
            == Limit("x", max_running=3, rate_per_key=rate).numbers()
        )
        assert override_of({"rate": None, "rate_per_key": None}) == {"rate": None, "key_rate": None}

    def test_numbers_in_words(self) -> None:
        numbers = Limit("x", max_running=3, rate=Rate(100, per=MINUTE), rate_per_key=Rate(1, per=MINUTE)).numbers()
        assert in_words(numbers) == "3 running, 100 in 1m, 1 of each key in 1m"
        assert in_words({}) == "no limit"


class TestCommand:
    def test_the_list(self) -> None:
        assert run() == "There are no limits.\n"
        declare(max_running=5)
        start(enqueue(7), limit=2)
        assert "stripe  open   5 running        2  5, the first for" in run()
        [one] = json.loads(run("list", "--json"))["limits"]
        assert (one["name"], one["running"], one["waiting"]) == ("stripe", 2, 5)

    def test_change_for_a_time_and_reset(self) -> None:
        declare(max_running=5)
        said = run("set", "stripe", "--max-running", "2", "--rate", "100/1m", "--for", "1h", "--reason", "slow")
        assert "stripe: open, allows 2 running, 100 in 1m" in said
        assert ": slow" in said
        assert "the code says: 5 running" in run("show", "stripe")
        assert "allows no limit" in run("set", "stripe", "--max-running", "none")
        assert run("reset", "stripe") == "stripe: open, allows 5 running\n"

    def test_pause_and_resume(self) -> None:
        declare(max_running=5)
        assert "stripe: paused" in done("pulse_pause", "--limit", "stripe", "--for", "10m", "--reason", "maintenance")
        with pytest.raises(CommandError, match="paused for longer"):
            done("pulse_pause", "--limit", "stripe", "--for", "1m")
        assert "maintenance" in run("show", "stripe")
        assert done("pulse_resume", "--limit", "stripe") == "stripe: open, allows 5 running\n"

    def test_pause_and_resume_a_key(self) -> None:
        declare(max_running_per_key=5)
        seven = ("--limit", "stripe", "--key", "7")
        assert "key 7 of stripe: paused until" in done("pulse_pause", *seven, "--for", "1h")
        with pytest.raises(CommandError, match="paused for longer"):
            done("pulse_pause", *seven, "--for", "1m")
        assert "share acme: paused until it is resumed by" in done(
            "pulse_pause", "--fair-key", "acme", "--reason", "owes us"
        )
        assert "share acme" not in run("show", "stripe")
        assert "key 7" in run("show", "stripe")
        paused = json.loads(run("list", "--json"))["paused_keys"]
        assert [(one["limit"], one["key"], one["reason"]) for one in paused] == [
            ("", "acme", "owes us"),
            ("stripe", "7", ""),
        ]
        assert done("pulse_resume", *seven) == "7: resumed\n"
        with pytest.raises(CommandError, match="not paused"):
            done("pulse_resume", *seven)

    @each_of(
        ("--limit", "task=x", "--key", "7"),
        ("--limit", "stripe"),
        ("--limit", "strange", "--for", "1m"),
        ("--key", "7"),
        ("--limit", "stripe", "--key", "7", "--fair-key", "7"),
        ("--limit", "stripe", "--queue", "mail", "--for", "1m"),
        ("--fair-key", "7", "--task", "x", "--force"),
    )
    def test_what_cannot_be_paused(self, *, args: Any) -> None:
        empty_tables()
        declare(max_running=5)
        with pytest.raises(CommandError):
            done("pulse_pause", *args)

    @each_of(
        ("show",),
        ("show", "strange"),
        ("set", "stripe"),
        ("set", "stripe", "--max-running", "0"),
        ("set", "stripe", "--rate", "100"),
        ("set", "stripe", "--rate", "0/1m"),
    )
    def test_what_it_refuses(self, *, args: Any) -> None:
        empty_tables()
        declare(max_running=5)
        with pytest.raises(CommandError):
            run(*args)

    def test_keys_cannot_move_the_cursor(self) -> None:
        declare(max_running_per_key=5)
        start(enqueue(1, key='"\\u001b[2J\u202e"'))
        assert "\x1b" not in run("show", "stripe")
        assert "\u202e" not in run("show", "stripe")

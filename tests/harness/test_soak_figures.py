"""A soak's judge finds what grows, and lets be what does not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.faults import each_of

with patch.dict(os.environ):  # benchmarks set DEBUG for themselves
    from benchmarks.soak_figures import BEGIN, END, Series, growth, markdown, ratio, table, verdicts, write_into

MINUTES = 25


def points(*, start: float, slope_per_hour: float = 0.0, wave: float = 0.0) -> Series:
    """A value every five seconds; ``wave`` goes up and down each minute, as retention does."""
    at = [5.0 * n for n in range(MINUTES * 12)]
    return [(t, start + slope_per_hour * t / 3600 + wave * (n % 12 - 5.5) / 5.5) for n, t in enumerate(at)]


MEANS = [
    (points(start=50), True),
    (points(start=50, wave=10), True),  # up and down is no growth
    (points(start=50, slope_per_hour=-20), True),  # nor is less
    (points(start=50, slope_per_hour=4), True),  # 3 % in 25 minutes: an allocator's steps
    (points(start=50, slope_per_hour=10), False),  # 8 %
    (points(start=50, slope_per_hour=12, wave=10), False),  # also behind waves
    (points(start=0), True),  # an index that is not used yet
    (points(start=50)[:5], None),  # too few to say anything
]


@each_of(*MEANS)
def test_growth_is_of_the_mean(*, series: Any, holds: Any) -> None:
    assert growth("memory", series, "MiB", 1.0).holds is holds


def test_a_few_pages_are_no_growth() -> None:
    series = points(start=16_384, slope_per_hour=40_000)
    assert growth("an index", series, "MB", 1e6).holds is False
    assert growth("an index", series, "MB", 1e6, least=1e6).holds is True


def test_growth_is_told_per_hour() -> None:
    assert growth("memory", points(start=50, slope_per_hour=12), "MiB", 1.0).change.startswith("+12.00 MiB/h, +9.5%")


@each_of((1.0, True), (1.2, True), (1.3, False))
def test_the_last_third_is_compared_with_the_first(*, times: Any, holds: Any) -> None:
    series = [(float(at), 5.0 if at < 200 else 5.0 * times) for at in range(300)]
    assert ratio("claims", series).holds is holds


def a_sample(at: float, pss: float) -> dict[str, Any]:
    return {
        "at": at,
        "memory": {"keeper": {"pid": 1, "pss": pss, "rss": pss}, "child 1": {"pid": 2, "pss": 40.0, "rss": 50.0}},
        "bytes": {"pulse_django_job_hot": 1_000_000},
        "backlog": 3,
        "wal_bytes_per_s": 1_000,
        "claims": None if at % 2 else {"p50_ms": 2.0, "p99_ms": 5.0},
        "waits": {"ended_per_s": 101.0, "failed_per_s": 1.0, "p50_ms": 3.0, "p99_ms": 9.0},
    }


@pytest.fixture
def results() -> dict[str, Any]:
    """A soak whose keeper leaks after the warm-up; before it everything does."""
    return {
        "command": "python benchmarks/soak.py",
        "about": {"server": "18", "python": "3.11", "django": "5.2", "cores": 2},
        "processes": 1,
        "keep_s": 90,
        "warm_up_s": 100,
        "drained_per_s": 300,
        "max_per_s": 200,
        "rate": 100,
        "samples": [a_sample(float(at), max(20.0, at / 10)) for at in range(600)],
        "end": None,
    }


def test_only_what_leaks_after_the_warm_up_is_found(results: dict[str, Any]) -> None:
    assert {one.what: one.holds for one in verdicts(results)} == {
        "memory of keeper, PSS": False,
        "memory of child 1, PSS": True,
        "pulse_django_job_hot": True,
        "claim statement, p50": True,
        "claim statement, p99": True,
        "due to claimed, p50": True,
        "due to claimed, p99": True,
    }
    assert table(results).count("NOT flat") == 1


def test_the_figures_stand_between_the_marks_of_their_page(results: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_into(page, markdown(json.loads(json.dumps(results))))
    written = page.read_text()
    assert written.startswith("before\n")
    assert written.endswith("after\n")
    assert "old" not in written
    assert "| memory of keeper, PSS |" in written
    assert "It was broken off." in written

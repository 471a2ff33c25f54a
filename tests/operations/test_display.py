"""What needs no database: durations, and what a terminal gets to see."""

from __future__ import annotations

import argparse
import io
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from django.core.management import CommandError

from pulse_django.operations.arguments import duration
from pulse_django.operations.batches import Progress
from pulse_django.operations.terminal import Screen, bar, cut_to, painted, showable, table
from pulse_django.queue.words.display import in_words, inert
from tests.faults import all_faults, each_of
from tests.operations.steps import Terminal, Time, run


@each_of(
    ("7d", 604_800),
    ("12h", 43_200),
    ("30m", 1_800),
    ("45s", 45),
    ("90", 90),  # plain seconds
    ("1d12h", 129_600),
    ("1.5h", 5_400),
    (" 2D ", 172_800),
    ("0", 0),
)
def test_durations_are_read_as_operators_write_them(*, text: Any, seconds: Any) -> None:
    assert duration(text) == timedelta(seconds=seconds)


@each_of("", "d", "-1d", "7 days", "1h1d", "1h30", "nan", "inf", "1e9", "٣d", "999999999d", "9" * 400)
def test_what_is_no_duration_is_refused_with_what_would_be(*, text: Any) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"is not a duration: use 7d|is longer than"):
        duration(text)


@each_of(0, 0.04, 5, 75, 3_725, 200_000)
def test_what_is_said_in_words_can_be_read_again(*, seconds: Any) -> None:
    said = in_words(seconds).replace(" ", "")
    assert abs(duration(said).total_seconds() - seconds) <= 60 * 60


@each_of(
    ("a\x1b[2Jb", "a\\x1b[2Jb"),  # clears the screen
    ("a\r\nb", "a\\r\\nb"),  # forges a line
    ("a\u202eb", "a\\u202eb"),  # turns the text around
    ("a\u200bb", "a\\u200bb"),  # hides
    ("a\x9b31mb", "a\\x9b31mb"),  # ESC [ in one character
    ("a\ud800b", "a\\ud800b"),  # cannot even be encoded
    ("über 税", "über 税"),  # honest text stays,
)
def test_text_from_rows_comes_out_inert(*, hostile: Any, shown: Any) -> None:
    assert inert(hostile) == shown


def test_long_text_is_cut() -> None:
    assert inert("x" * 50, 10) == "xxxxxxx..."
    assert inert("x" * 10, 10) == "x" * 10


def test_a_stream_that_knows_ascii_only_gets_ascii() -> None:
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert showable(f"{bar(0.5, 4)} für", ascii_only) == "##.. f\\xfcr"
    assert showable(f"{bar(0.5, 4)} für", io.StringIO()) == "██░░ für"


def test_a_table_lines_up_and_its_cells_cannot_break_out() -> None:
    lines = table(("jobs", "task"), [(5, "a\nb"), (1_000, "c")])
    assert lines == ["  jobs  task", "     5  a\\nb", "  1000  c"]


@each_of(80, 40, 30)
def test_a_table_fits_by_cutting_its_columns_of_text(*, within: Any) -> None:
    lines = table(("n", "worker", "host"), [(5, "w" * 60, "h" * 30), (12, "x", "y")], within=within)
    assert max(map(len, lines)) == within
    assert lines[1].startswith("   5  www")
    assert "…" in lines[1]
    assert lines[1].rstrip("…").endswith("hhh")


def test_a_table_that_cannot_be_narrower_keeps_its_numbers() -> None:
    assert "123456" in table(("number", "text"), [(123456, "w" * 60)], within=10)[1]


def test_a_screen_shows_the_first_lines_and_how_many_are_left() -> None:
    lines = ["Problems:", *map(str, range(40))]
    shown = cut_to(lines, Screen(80, 24))
    assert shown[0] == "Problems:"
    assert len(shown) == 23
    assert shown[-1] == "(19 more lines: make the window larger)"
    assert cut_to(lines, Screen()) == lines
    assert cut_to(["x" * 100], Screen(80, 24)) == ["x" * 79 + "…"]


def test_a_terminal_sees_colours_unless_it_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Problems:\n  ! lease-not-reaped (stuck): 7\n  ! worker-silent (risk): x"
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    shown = painted(text, Terminal())
    assert shown.startswith("\x1b[1;31mProblems:\x1b[0m")
    assert "\x1b[31m  ! lease-not-reaped (stuck)\x1b[0m: 7" in shown
    assert "\x1b[33m  ! worker-silent (risk)\x1b[0m: x" in shown
    assert painted("No problems found.", Terminal()) == "\x1b[1;32mNo problems found.\x1b[0m"
    assert painted(text, io.StringIO()) == text
    monkeypatch.setenv("NO_COLOR", "1")
    assert painted(text, Terminal()) == text
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert painted(text, Terminal()) == text


def test_a_terminal_sees_a_bar_with_rate_and_what_is_left() -> None:
    stream, clock = Terminal(), Time()
    progress = Progress(stream, 100, clock)
    clock.now += 5
    progress.show(50)
    assert stream.getvalue().endswith("████████████░░░░░░░░░░░░ 50 of 100, 10 a second, about 5.0s left")
    progress.end(100)
    assert stream.getvalue().endswith(" 100 of 100, 20 a second\n")


def test_what_is_left_is_not_promised_faster_than_the_throttle() -> None:
    stream, clock = Terminal(), Time()
    progress = Progress(stream, 100, clock, per_minute=60)
    clock.now += 1
    progress.show(10)
    assert stream.getvalue().endswith("10 of 100, 60 a minute, about 1m 30s left")


def test_a_log_gets_a_line_now_and_then() -> None:
    stream, clock = io.StringIO(), Time()
    progress = Progress(stream, 1_000, clock)
    for done in range(1, 26):
        clock.now += 1
        progress.show(done)
    progress.end(25)
    assert [line.partition(",")[0] for line in stream.getvalue().splitlines()] == ["10 of 1000", "20 of 1000"]
    assert "\x1b" not in stream.getvalue()


def test_arguments_that_make_no_sense_are_refused() -> None:
    arguments = [
        ["--older-than", "soon"],
        ["--batch", "0"],
        ["--batch", "99999999"],
        ["--per-minute", "-1"],
        ["--limit", "1.5"],
        ["--queue", ""],  # a variable of a script that was not set
        ["--task", "a\0b"],
        ["--error", "\ud800"],
        ["0"],
        [str(2**63)],
        ["--shard", "nowhere", "--all"],
    ]
    with all_faults() as about:
        for command, wrong in product(["pulse_retry", "pulse_cancel", "pulse_prune"], arguments):
            with about((command, wrong)), pytest.raises(CommandError):
                run(command, *wrong)

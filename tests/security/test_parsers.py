"""Text that people and rows bring is read in no time, whatever it is."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from pulse_django.console.dead_letters.groups import Place
from pulse_django.console.queues.admin import _instant_of
from pulse_django.console.search_terms import id_in, number_in, search_in
from pulse_django.exceptions import InvalidSchedule
from pulse_django.operations.arguments import duration, whole_number
from pulse_django.queue.words.display import inert
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.payloads import ErrorReport, clean_text
from pulse_django.schedules.timings import EPOCH, Cron, next_of, zone_of
from tests.faults import combined, each_of

AT_ONCE = 0.05  # seconds of the processor, for a hundred thousand characters
LONG = 100_000
HOSTILE = {
    "digits": "1" * LONG,
    "digits and an end that does not fit": "1" * LONG + "x",
    "dots": "1." * (LONG // 2),
    "fractions": "1.5d" * (LONG // 4),
    "units": "dhms" * (LONG // 4),
    "nested": "(a+)+$" + "a" * LONG + "!",
    "a date without end": "2026-01-01T" + "0" * LONG,
    "dashes": "-" * LONG,
    "quotes": "'" * LONG + '"',
    "backslashes": "\\" * LONG,
    "spaces": " " * LONG + "x",
    "nul and escapes": "\0\x1b[2J" * (LONG // 5),
    "other digits": "\u0661" * LONG,
    "surrogates": "\ud800" * LONG,
    "bidi": "\u202e" * LONG,
    "cron": "*/0 1-99999999 * * *",
}
PARSERS: dict[str, Callable[[str], Any]] = {
    "a duration": duration,
    "a whole number": whole_number(1, 2**63 - 1),
    "an id": id_in,
    "words": search_in,
    "an instant": _instant_of,
    "a place": Place.named,
    "a number": number_in,
    "a holder": lambda text: Identity(text).mint_holder(),
    "an error": lambda text: ErrorReport.of(ValueError(text)).summary,
    "a text": lambda text: clean_text(text, 2_000),
    "a cell": lambda text: inert(text, 80),
    "a cron expression": Cron,
    "a time zone": zone_of,
}


@each_of(*combined(PARSERS.items(), HOSTILE.items()))
def test_a_hundred_thousand_characters_are_read_or_refused_at_once(
    *, kind: Any, parse: Any, text_of: Any, text: Any
) -> None:
    took = []
    for _ in range(3):
        began = time.thread_time()
        with suppress(argparse.ArgumentTypeError, ValueError):
            parse(text)
        took.append(time.thread_time() - began)
    assert min(took) < AT_ONCE


@each_of("*/0", "1-99999999", "* * * * *", "@every 1s", "-1s", "1e9", "nan", "inf", "9" * 400)
def test_what_is_no_duration_or_beyond_all_reason_is_refused(*, text: Any) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        duration(text)


@each_of("0" * 19 + "1" + "9" * 30, "9" * 5_000, "1" * 21, "-1", "1.0", "\u0661")
def test_what_is_no_number_within_its_range_is_refused(*, text: Any) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        whole_number(1, 2**63 - 1)(text)


SPARSE = [
    "0 0 29 2 1#5",
    "0 0 */29 2 1#5",
    "0 0 30 2 *",
    "*/59 */59 */23 */31 */12 */7",
    ",".join(["1"] * 90) + " * * * *",
]


@each_of(*SPARSE, "1" * 150 + " * * * *", "1/2/3 * * * *", "*/0 * * * *", "1-0 * * * *")
def test_an_expression_that_is_seldom_or_never_due_is_read_or_refused_at_once(*, expression: Any) -> None:
    took = []
    for _ in range(3):
        began = time.thread_time()
        with suppress(InvalidSchedule):
            next_of(Cron(expression), EPOCH)
        took.append(time.thread_time() - began)
    assert min(took) < AT_ONCE

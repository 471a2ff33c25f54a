"""Hostile values: arguments are refused with the place of the fault, results mended, error texts made to fit."""

from __future__ import annotations

import json
import math
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse_django.errors import MAX_MESSAGE, MAX_TRACEBACK, ErrorReport
from pulse_django.exceptions import InvalidJob, PayloadError, UnstorableResult
from pulse_django.payloads import clean_text, encode_arguments, encode_result

LIMIT = 1_000_000


def deep_list(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def endless_list() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


class Shifty(dict):  # type: ignore[type-arg]
    def items(self) -> Any:
        raise RuntimeError("dictionary changed size during iteration")


REFUSED = [
    ([{"name": ["ok", "nul\x00"]}], r"args\[0\]\['name'\]\[1\]: contains a NUL"),
    ([{"bad\x00key": 1}], r"args\[0\], a key: contains a NUL"),
    (["\ud800"], r"args\[0\]: contains a lone surrogate"),
    ([math.nan], "JSON cannot hold"),
    ([math.inf], "JSON cannot hold"),
    ([object()], "JSON cannot hold .* object"),
    ([b"bytes"], "JSON cannot hold"),
    ([10**5000], "JSON cannot hold"),
    (deep_list(100_000), "nested too deeply"),
    (endless_list(), "JSON cannot hold|nested too deeply"),
    (deep_list(100), "nested more than 100 levels deep"),
    ([Shifty(a=1)], "JSON cannot hold"),
    (["x" * LIMIT], "over the limit of 1000000"),
]


@pytest.mark.parametrize(("value", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_arguments_that_cannot_be_stored_are_refused_with_the_place(value: list[Any], message: str) -> None:
    with pytest.raises(PayloadError, match=message):
        encode_arguments(value, limit=LIMIT, what="args")


def test_a_refusal_can_be_caught_as_what_it_is() -> None:
    assert issubclass(PayloadError, InvalidJob)
    assert issubclass(InvalidJob, ValueError)


@pytest.mark.parametrize("value", [["\\u0000"], ["\\ud800"], ["😀"], [{"a": None, "b": 1.5}], [[], {}, True]])
def test_honest_arguments_pass_unchanged(value: list[Any]) -> None:
    assert json.loads(encode_arguments(value, limit=LIMIT, what="args")) == value


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("a\x00b", "a\ufffdb"),
        ({"k\x00": ["\ud800"]}, {"k\ufffd": ["\ufffd"]}),
        ([math.nan, math.inf, 1.5], [None, None, 1.5]),
        ((1, 2), [1, 2]),
        ("\\u0000", "\\u0000"),
    ],
)
def test_results_are_mended_because_their_effects_stand(value: Any, stored: Any) -> None:
    text = encode_result(value, limit=LIMIT)
    assert text is not None
    assert json.loads(text) == stored


BEYOND_MENDING = {
    "object": object(),
    "set": {1},
    "deep": deep_list(100_000),
    "endless": endless_list(),
    "long": "x" * LIMIT,
    "huge number": 10**5000,
}


@pytest.mark.parametrize("value", BEYOND_MENDING.values(), ids=BEYOND_MENDING)
def test_results_beyond_mending_are_refused(value: Any) -> None:
    with pytest.raises(UnstorableResult):
        encode_result(value, limit=LIMIT)


@given(st.text(), st.integers(min_value=100, max_value=200))
def test_cleaned_text_always_fits_and_is_always_storable(text: str, limit: int) -> None:
    cleaned = clean_text(text * 20, limit)
    assert len(cleaned) <= limit
    assert "\x00" not in cleaned
    cleaned.encode("utf-8")


def test_a_cut_keeps_both_ends() -> None:
    cleaned = clean_text("begin" + "x" * 10_000 + "end", 200)
    assert cleaned.startswith("begin")
    assert cleaned.endswith("end")
    assert "characters left out" in cleaned


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Fatal(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


class NotText(Exception):
    def __str__(self) -> str:
        return 42  # type: ignore[return-value]


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


class TestErrorReport:
    @pytest.mark.parametrize("error", [Unspeakable(), Fatal(), NotText()])
    def test_an_exception_whose_str_raises_still_makes_a_report(self, error: Exception) -> None:
        report = ErrorReport.of(raised(error))
        assert report.error_class.endswith(type(error).__name__)
        assert "could not be read" in report.message
        assert report.summary

    def test_a_huge_hostile_message_is_cut_and_cleaned(self) -> None:
        report = ErrorReport.of(raised(ValueError("\x00\ud800" * 5_000_000)))
        assert len(report.message) <= MAX_MESSAGE
        assert len(report.traceback) <= MAX_TRACEBACK
        assert not set(report.message) & {"\x00", "\ud800"}

    def test_the_summary_is_one_line(self) -> None:
        report = ErrorReport.of(ValueError("first\r\nsecond\n2026-01-01 CRITICAL forged"))
        assert report.summary == "ValueError: first second 2026-01-01 CRITICAL forged"

    def test_the_summary_holds_no_escape_sequences(self) -> None:
        assert ErrorReport.of(ValueError("\x1b[31mred\x1b[0m")).summary == "ValueError: [31mred [0m"

    def test_the_summary_is_never_empty(self) -> None:
        assert ErrorReport.of(ValueError()).summary == "builtins.ValueError"
        assert ErrorReport(error_class="", message="").summary == "unknown error"

    def test_the_traceback_holds_no_local_variables(self) -> None:
        secret = "hunter2" + string.ascii_letters
        error = raised_beside(secret)
        assert "raised_beside" in ErrorReport.of(error).traceback
        assert secret not in ErrorReport.of(error).traceback


def raised_beside(secret: str) -> BaseException:
    try:
        raise ValueError(len(secret))
    except ValueError as error:
        return error

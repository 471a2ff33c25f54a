"""Hostile values: they are refused with the place of the fault, and error texts are made to fit."""

from __future__ import annotations

import json
import math
import string
import sys
from datetime import datetime
from enum import StrEnum
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, strategies

from pulse_django.exceptions import InvalidJob, PayloadError, UnstorableResult
from pulse_django.queue.words.payloads import (
    MAX_MESSAGE,
    MAX_TRACEBACK,
    ErrorReport,
    clean_text,
    encode_arguments,
    encode_result,
)
from tests.faults import each_of

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


class Colour(StrEnum):
    RED = "red"


REFUSED = [
    ([{"name": ["ok", "nul\x00"]}], r"args\[0\]\['name'\]\[1\]: contains a NUL"),
    ([{"bad\x00key": 1}], r"args\[0\]: has a key that contains a NUL"),
    (["\ud800"], r"args\[0\]: contains a lone surrogate"),
    (["\ud83d\ude00"], r"args\[0\]: contains a lone surrogate"),  # JSON would join the two
    ([math.nan], "JSON cannot hold"),
    ([math.inf], "JSON cannot hold"),
    ([object()], r"args\[0\]: object is not JSON"),
    ([{"when": [datetime(2026, 1, 1)]}], r"args\[0\]\['when'\]\[0\]: datetime is not JSON.*isoformat"),  # noqa: DTZ001
    ([b"bytes"], r"args\[0\]: bytes is not JSON.*base64"),
    ([bytearray(b"bytes")], r"args\[0\]: bytearray is not JSON"),
    ([{1: "a", "1": "b"}], r"args\[0\]: has a key of type int"),
    ([{True: "a"}], r"args\[0\]: has a key of type bool"),
    ([{None: "a"}], r"args\[0\]: has a key of type NoneType"),
    ([{(1, 2): "a"}], r"args\[0\]: has a key of type tuple"),
    ([10**5000], "JSON cannot hold"),
    (deep_list(100_000), "nested more than 100 levels deep"),
    (endless_list(), "nested more than 100 levels deep, or contains itself"),
    (deep_list(100), "nested more than 100 levels deep"),
    ([Shifty(a=1)], "JSON cannot hold"),
    (["x" * LIMIT], "over the limit of 1000000"),
    ([1e308] * 5000, "1560001 bytes of JSON, over the limit of 1000000"),  # as it will be read back
]


@each_of(*REFUSED)
def test_arguments_that_cannot_be_stored_are_refused_with_the_place(*, value: Any, message: Any) -> None:
    with pytest.raises(PayloadError, match=message):
        encode_arguments(value, limit=LIMIT, what="args")


def test_a_refusal_can_be_caught_as_what_it_is() -> None:
    assert issubclass(PayloadError, InvalidJob)
    assert issubclass(InvalidJob, ValueError)


@each_of("\\u0000", "\\ud800", "😀", {"a": None, "b": 1.5}, [], True, "1e5 -0.0", '"1e5')
def test_honest_arguments_pass_unchanged(*, value: Any) -> None:
    assert json.loads(encode_arguments([value], limit=LIMIT, what="args")) == [value]


NUMBERS = [1e16, 1e22, 1e23, 1.7976931348623157e308, 5e-324, 1e-7, -0.0, 0.0, -1e17, 10**16, 2**63, 10**4299]


@each_of(*NUMBERS)
def test_a_number_is_spelled_so_that_it_keeps_its_type(*, number: Any) -> None:
    text = encode_arguments([number, {"k": [number]}], limit=LIMIT, what="args")
    assert "e" not in text, "jsonb knows no exponent, and a whole number would be read back"
    [read, inner] = json.loads(text)
    for one in (read, inner["k"][0]):
        assert (type(one), repr(one)) == (type(number), repr(number))


def test_a_whole_number_beyond_what_readers_accept_is_refused_though_this_process_could_write_it() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        with pytest.raises(PayloadError, match=r"args\[1\]: a whole number of more than 4300 digits"):
            encode_arguments(["7" * 5000, 10**4300], limit=LIMIT, what="args")
        assert json.loads(encode_arguments(["7" * 5000], limit=LIMIT, what="args")) == ["7" * 5000]
    finally:
        sys.set_int_max_str_digits(before)


NEAREST: list[tuple[Any, Any]] = [
    ((1, (2,)), [1, [2]]),
    (range(3), [0, 1, 2]),
    (MappingProxyType({"a": 1}), {"a": 1}),
    ({Colour.RED: Colour.RED}, {"red": "red"}),
    (HTTPStatus.OK, 200),
]


@each_of(*NEAREST)
def test_what_json_has_no_type_for_becomes_the_nearest_built_in(*, value: Any, read: Any) -> None:
    assert json.loads(encode_arguments([value], limit=LIMIT, what="args")) == [read]


CHANGED: list[tuple[Any, str]] = [
    ("a\x00b", "result: contains a NUL"),
    ({"k": ["\ud800"]}, r"result\['k'\]\[0\]: contains a lone surrogate"),
    ([math.nan], "result: JSON cannot hold"),
    ({"a": {1: 2}}, r"result\['a'\]: has a key of type int"),
    *(({1}, "result: set is not JSON"), (object(), "result: object is not JSON"), (10**5000, "result: ")),
    *((deep_list(100_000), "result: nested"), (endless_list(), "result: nested"), ("x" * LIMIT, "over the limit")),
]


@each_of(*CHANGED)
def test_a_result_that_would_be_read_back_changed_or_cannot_be_stored_is_refused(*, value: Any, message: Any) -> None:
    with pytest.raises(UnstorableResult, match=message):
        encode_result(value, limit=LIMIT)


@given(strategies.text(), strategies.integers(min_value=100, max_value=200))
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
    @each_of(Unspeakable(), Fatal(), NotText())
    def test_an_exception_whose_str_raises_still_makes_a_report(self, *, error: Any) -> None:
        report = ErrorReport.of(raised(error))
        assert report.error_class.endswith(type(error).__name__)
        assert "the message is not available" in report.message
        assert report.summary

    def test_a_huge_hostile_message_is_cut_and_cleaned(self) -> None:
        report = ErrorReport.of(raised(ValueError("\x00\ud800" * 5_000_000)))
        assert len(report.message) <= MAX_MESSAGE
        assert len(report.traceback) <= MAX_TRACEBACK
        assert not set(report.message) & {"\x00", "\ud800"}

    def test_the_summary_is_one_line_without_escape_sequences_and_never_empty(self) -> None:
        report = ErrorReport.of(ValueError("first\r\nsecond\n2026-01-01 CRITICAL forged"))
        assert report.summary == "ValueError: first second 2026-01-01 CRITICAL forged"
        assert ErrorReport.of(ValueError("\x1b[31mred\x1b[0m")).summary == "ValueError: [31mred [0m"
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

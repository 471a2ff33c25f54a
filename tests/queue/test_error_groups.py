"""The same error with other values is one group; another class, another place or other words are another."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pulse_django.queue.database.sql_functions import Fingerprint
from pulse_django.queue.words.payloads import MAX_FRAME, MAX_SUMMARY, ErrorReport
from tests.faults import each_of
from tests.undoing import undone

pytestmark = pytest.mark.django_db

WORDS = st.sampled_from(
    ["order", "could not be shipped", "refused", "is not open", "gave up on", "no route to", "déjà"]
)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=8)
UUIDS = st.uuids()
VALUES = st.one_of(
    st.integers(-(10**18), 10**18).map(str),
    st.floats(-1e15, 1e15).map(lambda one: f"{one:.3f}"),
    UUIDS.map(str),
    UUIDS.map(lambda one: str(one).upper()),
    st.binary(min_size=16, max_size=16).map(lambda one: f"{one.hex()}0"),
    st.integers(0, 2**64).map(hex),
    st.builds("{}.{}@{}.example".format, NAMES, NAMES, NAMES),
    st.builds("/{}/{}.txt".format, NAMES, NAMES),
    st.builds("https://{}.example/{}?q={}".format, NAMES, NAMES, NAMES),
    st.text("abc xyz-é", max_size=12).map(lambda one: f"'{one}'"),
    st.text("abc xyz-é", max_size=12).map(lambda one: f'"{one}"'),
)
FRAMES = st.builds("{}.py:{}".format, NAMES, NAMES)
A_FEW = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def fingerprints(*texts: str) -> list[str]:
    sql = Fingerprint.template % {"expressions": "one.error"}
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {sql} FROM unnest(%s::text[]) WITH ORDINALITY AS one (error, n) ORDER BY n", [list(texts)]
        )
        return [fingerprint for (fingerprint,) in cursor.fetchall()]


@A_FEW
@given(st.lists(st.tuples(WORDS, VALUES, VALUES), min_size=1, max_size=3), FRAMES)
def test_the_same_error_with_other_values_is_one_group(parts: list[tuple[str, str, str]], frame: str) -> None:
    one, other = (f"ValueError: {' '.join(f'{part[0]} {part[place]}' for part in parts)} [{frame}]" for place in (1, 2))
    first, second = fingerprints(one, other)
    assert first == second


@A_FEW
@given(WORDS, VALUES, st.tuples(NAMES, NAMES), st.tuples(FRAMES, FRAMES))
def test_other_classes_and_frames_are_other_groups(
    word: str, value: str, classes: tuple[str, str], frames: tuple[str, str]
) -> None:
    texts = [f"{kind}Error: {word} {value} [{frame}]" for kind in set(classes) for frame in set(frames)]
    assert len(set(fingerprints(*texts))) == len(texts)


def raised() -> BaseException:
    try:
        UUID("no uuid")
    except ValueError as error:
        return error
    raise AssertionError


class TestTheFrame:
    def test_it_is_the_file_and_the_function_that_raised_it(self) -> None:
        error = raised()
        report = ErrorReport.of(error)
        assert report.frame == "uuid.py:__init__"
        assert report.last_error == "ValueError: badly formed hexadecimal UUID string [uuid.py:__init__]"
        assert fingerprints(report.last_error) == [
            "[uuid.py:__init__] ValueError: badly formed hexadecimal UUID string"
        ]
        assert ErrorReport.of(error, places_only=True).last_error == "ValueError: (encrypted) [uuid.py:__init__]", (
            "encrypted"
        )
        error.args = ("x" * 9_000,)
        said = ErrorReport.of(error).last_error
        assert len(said) <= MAX_SUMMARY, "a long message leaves room for it"
        assert said.endswith(" [uuid.py:__init__]")
        assert ErrorReport.of(ValueError("no")).last_error == "ValueError: no", "it was never raised"

    @each_of("a b].py", "x" * 500, "naïve.py", "/srv/app/\u202eorders.py")
    def test_any_name_of_a_file_fits(self, *, name: Any) -> None:
        with undone():
            scope: dict[str, Any] = {}
            exec(compile("def f():\n    raise KeyError('k')", name, "exec"), scope)
            with pytest.raises(KeyError) as raised:
                scope["f"]()
            said = ErrorReport.of(raised.value).last_error
            assert len(said) <= len("KeyError: 'k' []") + MAX_FRAME
            [fingerprint] = fingerprints(said)
            assert fingerprint == f"{said.partition(' ')[2].partition(' ')[2]} KeyError: #"

"""JSON and text that PostgreSQL can store. Values are stored exactly or refused; error texts are cleaned and cut.

An accepted value is read back equal and with the same built-in type. Three things change, as in Django's own backends,
and ``TaskResult.args`` shows them right after enqueueing: tuples and other sequences become lists, mappings become
dicts, and instances of subclasses (a ``TextChoices`` member) become the built-in value.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any
from uuid import UUID

from pulse_django.exceptions import PayloadError, UnstorableResult, UnsupportedValue

from .masks import HIDDEN
from .retry_policies import dotted_path

# Every reader of a job must be able to decode it, whatever its own stack depth and recursion limit.
MAX_DEPTH = 100
MAX_DIGITS = 4_300  # of a whole number: Python's default limit
_TOO_LONG = 10**MAX_DIGITS
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode  # json.dumps() makes one for each value
_canonical = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode

Path = tuple[str | int, ...]  # to a value: "args", then positions and keys

_ATOMS = frozenset({str, int, float, bool, NoneType})
_BYTES = (bytes, bytearray, memoryview)
# Types that JSON does not have, the expression to pass instead, and the one that restores the value. The first match
# is used.
_MENDS: tuple[tuple[type | tuple[type, ...], str, str], ...] = (
    (UUID, "str(value)", "UUID(text)"),
    (datetime, "value.isoformat()", "datetime.fromisoformat(text)"),
    (date, "value.isoformat()", "date.fromisoformat(text)"),
    (time, "value.isoformat()", "time.fromisoformat(text)"),
    (timedelta, "value.total_seconds()", "timedelta(seconds=number)"),
    (Decimal, "str(value)", "Decimal(text)"),
    ((set, frozenset), "list(value)", "set(items)"),
    (_BYTES, "base64.b64encode(value).decode()", "base64.b64decode(text)"),
)
_LONG_NUMBER = re.compile(rf"(?<!\d)\d{{{MAX_DIGITS + 1}}}")
# jsonb stores numbers as numeric, which has neither exponents (1e16 is read back as a whole number) nor -0.0.
_MAYBE_REWRITTEN = re.compile(r"\de[+-]\d|-0\.0(?!\d)")
_REWRITTEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?e[+-]\d+|-0\.0(?!\d)')
# A number so close to zero that Python reads it as -0.0.
_NEGATIVE_ZERO = f"-0.{'0' * 323}1"


def encode_arguments(value: Any, *, limit: int, what: str) -> str:
    """Return ``value`` as JSON that PostgreSQL returns unchanged. Refuse others with the place of the first fault."""
    text = _with_exact_numbers(_dumped(_plain_or_refused(value, what), what))
    # json.dumps writes NUL as \u0000 and a lone surrogate as \udXXX. Both are rare, so look closer only then.
    if "\\u0000" in text or "\\ud" in text or _may_hold_a_long_number(text):
        _refuse_unstorable(value, (what,))
    if len(text) > limit:  # ASCII only, so that characters are bytes
        raise _refusal((what,), f"{len(text)} bytes of JSON, over the limit of {limit} (PULSE['MAX_PAYLOAD_BYTES'])")
    return text


def canonical(value: Any, *, what: str) -> str:
    """Return ``value`` as JSON that is the same for all equal values. The rules are the same as for arguments."""
    return _canonical(json.loads(_dumped(_plain_or_refused(value, what), what)))


def encode_result(value: Any, *, limit: int, sensitive: bool = False) -> str | None:
    """Return a handler's return value as JSON, or None for None. The rules are the same as for arguments.

    If it is ``sensitive``, the error does not name the place of a fault, which could contain secret keys.
    """
    if value is None:
        return None
    try:
        return encode_arguments(value, limit=limit, what="result")
    except PayloadError as error:
        if sensitive:
            raise UnstorableResult(f"result: {error.fault}") from None
        raise UnstorableResult(str(error)) from error
    except Exception as error:  # a value of a custom class may raise anything
        cause = None if sensitive else error
        raise UnstorableResult(f"result: reading it raised {type(error).__name__}") from cause


def encode_progress(value: dict[str, Any], *, limit: int) -> str:
    """Return a handler's progress as JSON. The rules are the same as for arguments."""
    return encode_arguments(value, limit=limit, what="progress")


def clean_text(text: str, limit: int) -> str:
    """Return ``text`` without characters that PostgreSQL refuses. Cut its middle out if it is longer than ``limit``."""
    if len(text) > limit:
        half = (limit - 40) // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"[:limit]
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str) -> str:
    """Return ``text`` in one line, without characters that move the cursor or reverse the text direction."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def error_in_one_line(error: BaseException) -> str:
    """Return the message of an error in one line, or its class if it has no message."""
    return one_line(str(error)) or type(error).__name__


def _plain_or_refused(value: Any, what: str) -> Any:
    try:
        try:
            return _plain(value, 1)
        except _Refused:
            _refuse(value, (what,), 1)
        raise _refusal((what,), "changed while it was read")
    except PayloadError as error:
        raise error from None
    except Exception as error:  # its keys, its items() or its length may raise anything
        # The message may contain the value.
        fault = f"JSON cannot hold this value: reading it raised {type(error).__name__}"
        raise _refusal((what,), fault) from error


def _refusal(path: Path, fault: str, kind: type[PayloadError] = PayloadError) -> PayloadError:
    error = kind(f"{spelt_path(path)}: {fault}")
    error.path, error.fault = path, fault
    return error


def spelt_path(path: Path) -> str:
    """Return a path as a Python expression."""
    return f"{path[0]}{''.join(f'[{step!r}]' for step in path[1:])}"


class _Refused(Exception):
    """A value has a part that cannot be stored. Its place is found in a second pass."""


def _plain(value: Any, level: int) -> Any:
    """Return a value converted to JSON's types."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if level > MAX_DEPTH:
        raise _Refused
    if kind is list or kind is tuple:
        return [item if type(item) in _ATOMS else _plain(item, level + 1) for item in value]
    if kind is dict or isinstance(value, Mapping):
        return {_key(key): item if type(item) in _ATOMS else _plain(item, level + 1) for key, item in value.items()}
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, Sequence) and not isinstance(value, _BYTES):
        return [_plain(item, level + 1) for item in value]
    raise _Refused


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    raise _Refused


def _refuse(value: Any, path: Path, level: int) -> None:
    """Raise for the first fault of a value, and name its place."""
    if value is None or isinstance(value, str | int | float):
        return
    if isinstance(value, _BYTES) or not isinstance(value, Mapping | Sequence):
        # "Unsupported type" is the wording of Django's own backends, and its tests look for it.
        fault = f"{type(value).__name__} is not JSON serializable (Unsupported type). {_mend_of(value)}"
        raise _refusal(path, fault, UnsupportedValue)
    if level > MAX_DEPTH:
        raise _refusal(path[:1], f"nested more than {MAX_DEPTH} levels deep, or contains itself")
    if isinstance(value, Sequence):
        for index, item in enumerate(value):
            _refuse(item, (*path, index), level + 1)
        return
    for key, item in value.items():
        if not isinstance(key, str):
            fault = (
                f"has a key of type {type(key).__name__}, but JSON keys must be of type str; use str(key), and "
                f"convert it back when reading"
            )
            raise _refusal(path, fault)
        _refuse(item, (*path, key), level + 1)


def _mend_of(value: Any) -> str:
    """Return advice: what to store instead, and how to restore the value."""
    for known, instead, back in _MENDS:
        if isinstance(value, known):
            return f"Pass {instead}, and restore it with {back}."
    return "Pass value.pk, and query the row in the task." if hasattr(value, "pk") else "Pass str(value) or its parts."


def _dumped(value: Any, what: str) -> str:
    try:
        return _encode(value)
    except Exception as error:  # NaN, infinity, a number of too many digits
        raise _refusal((what,), f"JSON cannot hold this value: {error}") from error


def _with_exact_numbers(text: str) -> str:
    """Write numbers so that jsonb returns the same value with the same type."""
    if "e+" not in text and "e-" not in text and "-0.0" not in text:
        return text  # takes a thirtieth of the time of the search
    if _MAYBE_REWRITTEN.search(text) is None:
        return text
    return _REWRITTEN.sub(_exact_number, text)


def _exact_number(found: re.Match[str]) -> str:
    piece = found.group()
    if piece.startswith('"'):
        return piece
    if piece == "-0.0":
        return _NEGATIVE_ZERO
    digits = format(Decimal(piece), "f")
    return digits if "." in digits else f"{digits}.0"


def _may_hold_a_long_number(text: str) -> bool:
    if 0 < sys.get_int_max_str_digits() <= MAX_DIGITS:
        return False  # Python could not have written it
    return len(text) > MAX_DIGITS and _LONG_NUMBER.search(text) is not None


def _refuse_unstorable(value: Any, path: Path, what: str = "contains") -> None:
    if isinstance(value, str):
        if found := _UNSTORABLE.search(value):
            kind = "a NUL character" if found.group() == "\x00" else "a lone surrogate"
            raise _refusal(path, f"{what} {kind}, which PostgreSQL's jsonb cannot hold")
    elif isinstance(value, int):
        if abs(value) >= _TOO_LONG:
            raise _refusal(path, f"a whole number of more than {MAX_DIGITS} digits, which Python cannot parse")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _refuse_unstorable(key, path, "has a key that contains")
            _refuse_unstorable(item, (*path, key))
    elif isinstance(value, Sequence):
        for index, item in enumerate(value):
            _refuse_unstorable(item, (*path, index))


# An exception as values that can be stored. Reading them never fails, whatever the exception does.

# Enough for normal messages. A longer one is cut in the middle, where it matters least.
MAX_MESSAGE = 10_000
MAX_TRACEBACK = 64_000
MAX_SUMMARY = 2_000
MAX_CLASS = 200
MAX_FRAME = 80


_PULSE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "")
# The code that calls a handler. Its frames are left out of tracebacks, but not the handler's own calls into Pulse.
CALLS_HANDLERS = tuple(os.path.join(_PULSE, room, "") for room in ("run", "chunks"))
_UNFIT = re.compile(r"[\[\]\s]|[^\x21-\x7e]")  # characters that a frame in brackets cannot contain


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReport:
    """The facts of an exception."""

    error_class: str  # dotted path
    message: str
    traceback: str = ""  # without local variables, which may contain secrets
    lineage: tuple[str, ...] = ()  # dotted paths of its class and all bases, for retry policies
    frame: str = ""  # where it was raised, as ``orders.py:ship``

    @classmethod
    def of(cls, error: BaseException, *, places_only: bool = False) -> ErrorReport:
        """Read an exception. With ``places_only``, leave out its messages, which may contain secrets."""
        kind = type(error)
        lines_of: Callable[[BaseException], Iterable[str]] = _places if places_only else traceback.format_exception
        return cls(
            error_class=clean_text(dotted_path(kind), MAX_CLASS),
            message=HIDDEN if places_only else _read(lambda: str(error), MAX_MESSAGE, "message", "str()"),
            traceback=_read(lambda: "".join(lines_of(error)), MAX_TRACEBACK, "traceback", "formatting"),
            lineage=tuple(clean_text(dotted_path(base), MAX_CLASS) for base in kind.__mro__),
            frame=_frame(error),
        )

    @property
    def summary(self) -> str:
        """Return its class and message in one line. It is never empty."""
        text = f"{self.error_class.rpartition('.')[2]}: {self.message}" if self.message else self.error_class
        return one_line(clean_text(text, MAX_SUMMARY)) or "unknown error"

    @property
    def last_error(self) -> str:
        """Return the text for the job: the summary, and where it was raised. Dead letters are grouped by both."""
        where = f" [{self.frame}]" if self.frame else ""
        return one_line(clean_text(self.summary, MAX_SUMMARY - len(where))) + where


def begin_at_handler(error: BaseException) -> None:
    """Remove the frames that called the handler from a traceback, unless the call itself failed.

    Frames of asgiref and contextlib before the handler stay, as with async handlers in tests and with middleware.
    """
    with suppress(Exception):  # an exception class of the project may have another traceback
        link = error.__traceback__
        while link is not None and link.tb_frame.f_code.co_filename.startswith(CALLS_HANDLERS):
            link = link.tb_next
        if link is not None:
            BaseException.with_traceback(error, link)


def _read(read: Callable[[], str], most: int, what: str, how: str) -> str:
    try:
        return clean_text(read(), most)
    except BaseException as second:  # __str__ may raise anything, and the run must end all the same
        return f"(the {what} is not available: {how} raised {type(second).__name__})"


def _frame(error: BaseException) -> str:
    """Return the file and the function that raised an error: the innermost frame outside of Pulse, if there is one.

    It is empty without a traceback, as of an error that was never raised or comes from another process.
    """
    try:
        codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
        code = next((one for one in reversed(codes) if not one.co_filename.startswith(_PULSE)), codes[-1])
        file = code.co_filename.replace("\\", "/").rpartition("/")[2]
        return _UNFIT.sub("_", clean_text(f"{file}:{code.co_name}", MAX_FRAME))
    except Exception:  # no traceback, or one of the project's own class
        return ""


def _places(error: BaseException) -> Iterable[str]:
    """Yield the lines of the tracebacks of an error and its causes, without their messages."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and all(link is not one for one in chain):
        chain.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    for one in reversed(chain):
        yield "Traceback (most recent call last):\n"
        yield from traceback.format_tb(one.__traceback__)
        yield f"{dotted_path(type(one))}: {HIDDEN}\n"

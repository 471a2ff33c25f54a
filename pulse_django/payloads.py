"""JSON and text that PostgreSQL can hold: arguments are refused, results mended, error texts always made to fit."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from .exceptions import PayloadError, UnstorableResult

# Every reader of a job must be able to decode it, however deep its own stack and whatever its Python's limit.
MAX_DEPTH = 100
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode  # json.dumps() would make one for each value


def encode_arguments(value: list[Any] | dict[str, Any], *, limit: int, what: str) -> str:
    """Return ``value`` as JSON, or refuse it with the place of the first fault. It is stored as JSON spells it: tuples
    become lists, and number keys text."""
    text = _dumps(value, what)
    # json.dumps writes NUL as \u0000 and a lone surrogate as \udXXX: rare in honest text, so look closer only then.
    if "\\u0000" in text or "\\ud" in text:
        _refuse_unstorable(value, what)
    return _within(text, limit, what)


def encode_result(value: Any, *, limit: int) -> str | None:
    """Return a handler's return value as JSON; None needs no column.

    The work is done and its effects stand, so a value that jsonb cannot hold to the letter is mended (NUL and lone
    surrogates become U+FFFD, NaN and infinities null) and only what JSON does not know at all is refused.
    """
    if value is None:
        return None
    try:
        return _within(_dumps_mended(value), limit, "result")
    except Exception as error:  # a value of a class of its own may raise anything
        raise UnstorableResult(str(error)) from error


def encode_progress(value: dict[str, Any], *, limit: int) -> str:
    """Return a handler's progress as JSON. It is the handler's to mend: it is still there to be told."""
    return encode_arguments(value, limit=limit, what="progress")


def clean_text(text: str, limit: int) -> str:
    """Return ``text`` without what PostgreSQL refuses, cut in the middle when it is longer than ``limit``."""
    if len(text) > limit:
        half = (limit - 40) // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"[:limit]
    return _UNSTORABLE.sub(_REPLACEMENT, text)


def one_line(text: str) -> str:
    """Return ``text`` without what breaks a line, moves a cursor or turns the writing around."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def error_in_one_line(error: BaseException) -> str:
    """Return what an error says, or its kind if it says nothing."""
    return one_line(str(error)) or type(error).__name__


def _dumps(value: Any, what: str) -> str:
    text = _dumped(value, what)
    # Only what opens that many brackets can be that deep; honest payloads are not walked.
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth_exceeds(value, MAX_DEPTH):
        raise PayloadError(f"{what}: nested more than {MAX_DEPTH} levels deep")
    return text


def _depth_exceeds(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.values()
            elif isinstance(item, list | tuple):
                inner += item
        level = [item for item in inner if isinstance(item, dict | list | tuple)]
        if not level:
            return False
    return True


def _dumped(value: Any, what: str) -> str:
    try:
        return _encode(value)
    except RecursionError:
        raise PayloadError(f"{what}: nested too deeply, or contains itself") from None
    except Exception as error:  # its keys, its items() or its length may raise anything
        raise PayloadError(f"{what}: JSON cannot hold this value: {error}") from error


def _within(text: str, limit: int, what: str) -> str:
    # ASCII only, so that characters are bytes.
    if len(text) > limit:
        raise PayloadError(f"{what}: {len(text)} bytes of JSON, over the limit of {limit} (PULSE['MAX_PAYLOAD_BYTES'])")
    return text


def _refuse_unstorable(value: Any, path: str) -> None:
    if isinstance(value, str):
        if found := _UNSTORABLE.search(value):
            kind = "a NUL character" if found.group() == "\x00" else "a lone surrogate"
            raise PayloadError(f"{path}: contains {kind}, which PostgreSQL's jsonb cannot hold")
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_unstorable(key, f"{path}, a key")
            _refuse_unstorable(item, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _refuse_unstorable(item, f"{path}[{index}]")


def _dumps_mended(value: Any) -> str:
    try:
        text = _dumps(value, "result")
        if "\\u0000" not in text and "\\ud" not in text:
            return text
    except PayloadError:
        pass  # perhaps only a NaN, which can be mended
    try:
        return _dumps(_mend(value), "result")
    except RecursionError:
        raise PayloadError("result: nested too deeply, or contains itself") from None


def _mend(value: Any) -> Any:
    if isinstance(value, str):
        return _UNSTORABLE.sub(_REPLACEMENT, value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {_mend(key): _mend(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mend(item) for item in value]
    return value

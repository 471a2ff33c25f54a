"""Read from an exception for how long an HTTP server wants no more requests."""

from __future__ import annotations

from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import Any

TOO_MANY_REQUESTS, UNAVAILABLE = 429, 503
WITHOUT_HEADER = timedelta(seconds=30)  # of 429; without the header 503 is an error like any other
LONGEST = timedelta(days=1)


def retry_after(error: BaseException) -> timedelta | None:
    """Return how long to wait if the exception is of an answer 429, or of 503 with ``Retry-After``; otherwise None.

    It understands exceptions with a ``response``, as requests, httpx and aiohttp clients raise them, and those that are
    the answer, as of urllib. The header has seconds or a date. The date is compared with the ``Date`` of the answer,
    because clocks of two hosts differ.
    """
    answer = getattr(error, "response", None)
    answer = error if answer is None else answer
    status = next(
        (code for name in ("status_code", "status", "code") if type(code := getattr(answer, name, None)) is int), 0
    )
    if status not in (TOO_MANY_REQUESTS, UNAVAILABLE):
        return None
    headers = getattr(answer, "headers", None)
    said, now = _header(headers, "Retry-After"), _header(headers, "Date")
    wait = None if said is None else _read(said, now)
    if wait is None:
        return WITHOUT_HEADER if status == TOO_MANY_REQUESTS else None
    return min(max(wait, timedelta()), LONGEST)


def _header(headers: Any, name: str) -> str | None:
    try:
        found = headers.get(name)
        found = headers.get(name.lower()) if found is None else found
    except Exception:
        return None
    return None if found is None else str(found)


def _read(text: str, now: str | None) -> timedelta | None:
    try:
        return timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        pass
    try:
        return None if now is None else parsedate_to_datetime(text) - parsedate_to_datetime(now)
    except (TypeError, ValueError):
        return None

"""Lane keys: one text for the limiter and the key of a job with a limit or a share.

``<limiter>:<four digits of a hash><key>``, or ``<limiter>`` alone if its jobs have no key. A share (``fair_by``) has no
limiter, so its lane keys begin with the colon. Jobs without a limit or a share have an empty lane key.

If a task with chunks has neither, its jobs have the lane key ``:chunk=<task>``, so that one claim can take a whole
chunk. No share has such a key, because ``chun`` are not hexadecimal digits.

The hash in front of the key spreads the keys: a worker that searches from some lane on does not always find the same
keys first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container

from pulse_django.exceptions import InvalidJob

from .bounds import MAX_LANE_KEY, MAX_LIMITER_NAME
from .payloads import canonical

SEPARATOR = ":"
OF_QUEUE = "queue="  # prefix of a queue's name, in the name of its limiter
_DIGITS = 4
_OF_CHUNKS = "chunk="
# A longer key is replaced by its hash, so that it fits with the longest limiter name.
LONGEST_KEY = MAX_LANE_KEY - MAX_LIMITER_NAME - len(SEPARATOR) - _DIGITS


def check_limiter_name(name: object) -> None:
    if not (isinstance(name, str) and 0 < len(name) <= MAX_LIMITER_NAME and name.isprintable()) or SEPARATOR in name:
        raise InvalidJob(f"limit: {name!r} is not a name of at most {MAX_LIMITER_NAME} characters without colons")


def limiter_of_task(key: str) -> str:
    """Return the name of a task's own limiter: the task's key, or a hash of it if it is no valid name."""
    try:
        check_limiter_name(key)
    except InvalidJob:
        return f"task-{_digest(key)[:32]}"
    return key


def limiter_of_queue(queue: str) -> str:
    return f"{OF_QUEUE}{queue}"


def lane_of_chunks(task: str) -> str:
    """Return the lane key for jobs of a task with chunks, but without a limit or a share."""
    longest = LONGEST_KEY + _DIGITS - len(_OF_CHUNKS)
    return f"{SEPARATOR}{_OF_CHUNKS}{task if len(task) <= longest else _digest(task)}"


def lane_of_share(share: str) -> str:
    """Return the lane key of a share, which is written as ``key_of`` returns it."""
    return f"{SEPARATOR}{share}" if share.startswith(_OF_CHUNKS) else lane_key("", text_of_key(share))


def is_of_chunks(lane_key: str) -> bool:
    return lane_key.startswith(f"{SEPARATOR}{_OF_CHUNKS}")


def limiters_of_lane(queue: str, lane_key: str, limited: Container[str]) -> tuple[str, ...]:
    """Return the names of the limits for a claim from the lane. ``limited`` are the queues with a limit."""
    if not lane_key:
        return ()
    own, of_queue = limiter_of(lane_key), limiter_of_queue(queue)
    if own == of_queue or not own:
        return (of_queue,) if own or queue in limited else ()
    return (own, of_queue) if queue in limited else (own,)


def text_of_key(value: object) -> str:
    """Return the text of a value in a lane key: a text as it is, and anything else as JSON."""
    text = value if isinstance(value, str) and value.isprintable() else canonical(value, what="key")
    return text if len(text) <= LONGEST_KEY else _digest(text)


def lane_key(limiter: str, key: str | None) -> str:
    """Return a lane key. ``key`` comes from ``text_of_key``; None: the jobs of the limiter have no key."""
    if key is None:
        return limiter
    return f"{limiter}{SEPARATOR}{_digest(key)[:_DIGITS]}{key}"


def limiter_of(lane_key: str) -> str:
    """Return the limiter's name. It is empty for a share, and for a job without a lane key."""
    return lane_key.partition(SEPARATOR)[0]


def key_of(lane_key: str) -> str | None:
    _, separator, rest = lane_key.partition(SEPARATOR)
    if rest.startswith(_OF_CHUNKS):
        return rest
    return rest[_DIGITS:] if separator else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

"""Lane keys: the limiter and the key of a job that has a limit or a share, as one text.

``<limiter>:<four digits of a hash><key>``, or ``<limiter>`` alone if its jobs have no key. A share has no limiter,
so its lane keys begin with the colon. Jobs without either have an empty lane key.

Jobs of a task with chunks that have neither are a lane as well, so that a claim can bring a whole chunk:
``:chunk=<task>``. No share is spelt like that, because ``chun`` are no digits of a hash.

The digits stand in front of the key so that a worker which looks from some lane on does not always meet the same
keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container

from pulse_django.exceptions import InvalidJob

from .bounds import MAX_LANE_KEY, MAX_LIMITER_NAME
from .payloads import canonical

SEPARATOR = ":"
OF_QUEUE = "queue="  # in front of a queue's name: its limit
_DIGITS = 4
_OF_CHUNKS = "chunk="
# A longer one is replaced by its hash, which fits beside the longest name.
LONGEST_KEY = MAX_LANE_KEY - MAX_LIMITER_NAME - len(SEPARATOR) - _DIGITS


def check_limiter_name(name: object) -> None:
    if not (isinstance(name, str) and 0 < len(name) <= MAX_LIMITER_NAME and name.isprintable()) or SEPARATOR in name:
        raise InvalidJob(f"limit: {name!r} is not a name of at most {MAX_LIMITER_NAME} characters without colons")


def limiter_of_task(key: str) -> str:
    """Return the name of a task's own limiter: the task's, if it can be one."""
    try:
        check_limiter_name(key)
    except InvalidJob:
        return f"task-{_digest(key)[:32]}"
    return key


def limiter_of_queue(queue: str) -> str:
    return f"{OF_QUEUE}{queue}"


def lane_of_chunks(task: str) -> str:
    """Return the lane key of the jobs of a task with chunks that has no limit and no share."""
    longest = LONGEST_KEY + _DIGITS - len(_OF_CHUNKS)
    return f"{SEPARATOR}{_OF_CHUNKS}{task if len(task) <= longest else _digest(task)}"


def lane_of_share(share: str) -> str:
    """Return the lane key of a share as people write it: as ``key_of`` shows it."""
    return f"{SEPARATOR}{share}" if share.startswith(_OF_CHUNKS) else lane_key("", text_of_key(share))


def is_of_chunks(lane_key: str) -> bool:
    return lane_key.startswith(f"{SEPARATOR}{_OF_CHUNKS}")


def limiters_of_lane(queue: str, lane_key: str, limited: Container[str]) -> tuple[str, ...]:
    """Return the names of the limits that a claim from the lane keeps; ``limited`` are the queues that have one."""
    if not lane_key:
        return ()
    own, of_queue = limiter_of(lane_key), limiter_of_queue(queue)
    if own == of_queue or not own:
        return (of_queue,) if own or queue in limited else ()
    return (own, of_queue) if queue in limited else (own,)


def text_of_key(value: object) -> str:
    """Return what stands for a value in a lane key. Text stands for itself, and anything else is spelt as JSON."""
    text = value if isinstance(value, str) and value.isprintable() else canonical(value, what="key")
    return text if len(text) <= LONGEST_KEY else _digest(text)


def lane_key(limiter: str, key: str | None) -> str:
    """Spell a lane key. ``key`` is a text of ``text_of_key``; None: the jobs of the limiter have no key."""
    if key is None:
        return limiter
    return f"{limiter}{SEPARATOR}{_digest(key)[:_DIGITS]}{key}"


def limiter_of(lane_key: str) -> str:
    """Return the limiter's name; it is empty for a share, and for a job without a lane key."""
    return lane_key.partition(SEPARATOR)[0]


def key_of(lane_key: str) -> str | None:
    _, separator, rest = lane_key.partition(SEPARATOR)
    if rest.startswith(_OF_CHUNKS):
        return rest
    return rest[_DIGITS:] if separator else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

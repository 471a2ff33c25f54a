"""Unique jobs: the rule of a task, and the key of a job."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, NamedTuple, get_args

from pulse_django.exceptions import InvalidJob
from pulse_django.queue.words.bounds import MAX_DELAY
from pulse_django.queue.words.display import in_words
from pulse_django.queue.words.durations import WANTED, Seconds, as_timedelta, seconds_of

KEY_LENGTH = 64  # hexadecimal digits of a SHA-256


Until = Literal["end", "start"]  # how long a job holds its key

# The treatment of a new job when another one holds its key:
OnConflict = Literal[
    "keep",  # the other one is returned
    "replace",  # the other one gets the new arguments and the new time
    "debounce",  # the same, and it is postponed
    "follow",  # as "keep", until the other one starts
    "raise",  # AlreadyEnqueued
]

# These change or rely on a job that has not started, so its key is free when it starts.
_UNTIL_START = ("replace", "debounce", "follow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """At most one job of a task for each key: unfinished at a time, or enqueued in each period.

    ``by`` defines the key: the names of parameters, or a function of the arguments. Without it, all arguments are the
    key.
    """

    # Durations are kept as a timedelta, and names as a tuple.
    by: str | Sequence[str] | Callable[..., object] = ()  # names of parameters, or a function of the arguments
    until: Until | None = None  # "end" or "start" of the job; None: what on_conflict implies
    on_conflict: OnConflict = "keep"  # or "replace", "debounce", "follow", "raise"
    per: Seconds | None = None  # one in each such period, however it ended
    max_delay: Seconds | None = None  # from the first call to the run, even if calls postpone it

    def __post_init__(self) -> None:
        if isinstance(self.by, str):
            object.__setattr__(self, "by", (self.by,))
        for name in ("per", "max_delay"):
            object.__setattr__(self, name, as_timedelta(getattr(self, name)))
        if not callable(self.by):
            if not isinstance(self.by, list | tuple) or not all(isinstance(name, str) for name in self.by):
                raise InvalidJob(f"unique: by={self.by!r} is neither a tuple of parameter names nor a function")
            object.__setattr__(self, "by", tuple(self.by))
        if self.on_conflict not in get_args(OnConflict):
            raise InvalidJob(f"unique: on_conflict={self.on_conflict!r} is none of {', '.join(get_args(OnConflict))}")
        if self.until not in (None, *get_args(Until)):
            raise InvalidJob(f"unique: until={self.until!r} is neither 'end' nor 'start'")
        if self.until == "end" and self.on_conflict in _UNTIL_START:
            raise InvalidJob(
                f"unique: on_conflict={self.on_conflict!r} requires until='start'; a call during the run would have "
                f"no job to change"
            )
        if self.per is not None:
            _check_duration("per", self.per)
            if self.until is not None:
                raise InvalidJob("unique: per and until cannot be combined; a period does not depend on the job's end")
            if self.on_conflict not in ("keep", "raise"):
                raise InvalidJob(
                    f"unique: per can be combined with on_conflict='keep' or 'raise', not {self.on_conflict!r}"
                )
        if self.max_delay is not None:
            _check_duration("max_delay", self.max_delay)
            if self.on_conflict != "debounce":
                raise InvalidJob("unique: max_delay requires on_conflict='debounce'")

    @property
    def until_start(self) -> bool:
        return self.until == "start" or self.on_conflict in _UNTIL_START

    @property
    def keeps_first(self) -> bool:
        """Say whether the first of several calls counts, instead of the last."""
        return self.on_conflict not in ("replace", "debounce")


class UniqueKey(NamedTuple):
    """The key of one job, and the rule that made it."""

    key: str
    rule: Unique

    @classmethod
    def of(cls, text: str, rule: Unique) -> UniqueKey:
        """Make a key of any text, such as the name of a schedule."""
        return cls(hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest(), rule)

    def check(self, run_after: object) -> None:
        """Raise InvalidJob for a key that cannot be stored, or a job to which its rule cannot be applied."""
        if not isinstance(self.key, str) or len(self.key) != KEY_LENGTH or not self.key.isalnum():
            raise InvalidJob("unique: the key is not a hash; make it with UniqueKey.of(text, rule)")
        if self.rule.on_conflict != "debounce":
            return
        if run_after is None:
            raise InvalidJob("unique: on_conflict='debounce' requires a delay: .using(run_after=...)")
        if isinstance(run_after, timedelta) and self.rule.max_delay is not None:
            delay, longest = run_after.total_seconds(), seconds_of(self.rule.max_delay)
            if delay > longest:
                raise InvalidJob(f"unique: run_after is {in_words(delay)}, over max_delay={in_words(longest)}")


def _check_duration(name: str, value: object) -> None:
    if not isinstance(value, timedelta):
        raise InvalidJob(f"unique: {name}={value!r} is not {WANTED}")
    if not timedelta() < value <= MAX_DELAY:
        raise InvalidJob(f"unique: {name}={value} must be positive and at most {MAX_DELAY.days} days")

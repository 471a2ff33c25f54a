"""The declaration of an option, and the kinds of values: a kind has the bounds and refuses other values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from pulse_django.exceptions import InvalidJob

from .display import in_words
from .job_ids import check_whole_number, shown
from .limits import MAX_DELAY
from .payloads import clean_text


class Kind(Protocol):
    """The values that an option takes, beside None where its type allows it."""

    @property
    def allowed(self) -> str:
        """Return the allowed values, for the reference."""

    def check(self, name: str, value: object) -> None:
        """Raise InvalidJob for a value that is not allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option. Its name, type and place are those of the entry that it annotates."""

    kind: Kind
    help: str  # for the reference, and with a label also for the page of a job
    label: str = ""  # on the page of a job
    column: str = ""  # of the jobs table
    default: Any = None
    setting_at_enqueue: str = ""  # that None becomes when the job is enqueued; without one, the column is NULL
    name: str = ""
    annotation: Any = None
    for_task: bool = False
    for_call: bool = False


def gettext_noop(text: str) -> str:
    """Mark a text for makemessages. The console translates it."""
    return text


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number within bounds. ``bool`` is none."""

    least: int
    most: int

    @property
    def allowed(self) -> str:
        return f"{self.least:,} to {self.most:,}"

    def check(self, name: str, value: object) -> None:
        check_whole_number(name, value, self.least, self.most)


@dataclass(frozen=True, slots=True)
class Duration:
    """A positive ``timedelta``."""

    least: timedelta = timedelta()
    most: timedelta = MAX_DELAY
    if_longer: str = ""  # what a longer one would lead to
    or_zero: bool = False

    @property
    def allowed(self) -> str:
        if self == Duration():
            return "a `timedelta` above 0"
        return f"{in_words(self.least.total_seconds())} to {in_words(self.most.total_seconds())}"

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, timedelta):
            raise InvalidJob(f"{name}: {value!r} is not a timedelta")
        if self.or_zero and value == timedelta():
            return
        if not timedelta() < value <= MAX_DELAY:
            raise InvalidJob(f"{name}: {value} must be positive and at most {MAX_DELAY.days} days")
        if value < self.least:
            raise InvalidJob(f"{name}: {value} is shorter than {self.least}, the minimum")
        if value > self.most:
            raise InvalidJob(f"{name}: {value} is longer than {self.most}. {self.if_longer}".rstrip())


@dataclass(frozen=True, slots=True)
class Text:
    """A printable text that is not empty."""

    longest: int

    @property
    def allowed(self) -> str:
        return f"1 to {self.longest} characters"

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, str) or not value:
            raise InvalidJob(f"{name}: {value!r} is not a non-empty string")
        if len(value) > self.longest:
            raise InvalidJob(f"{name}: {len(value)} characters, over the limit of {self.longest}")
        if not value.isprintable():
            raise InvalidJob(f"{name}: {value!r} contains unprintable characters")


@dataclass(frozen=True, slots=True)
class Note:
    """A text for people to read. It may be empty."""

    longest: int

    @property
    def allowed(self) -> str:
        return f"up to {self.longest} characters"

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, str):
            raise InvalidJob(f"{name}: {shown(value)} is not a str")
        if len(value) > self.longest:
            raise InvalidJob(f"{name}: {len(value)} characters, over the limit of {self.longest}")

    def cleaned(self, name: str, value: str) -> str:
        """Return it without what PostgreSQL refuses."""
        self.check(name, value)
        return clean_text(value, self.longest)


@dataclass(frozen=True, slots=True)
class Flag:
    @property
    def allowed(self) -> str:
        return "`True` or `False`"

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, bool):
            raise InvalidJob(f"{name}: {value!r} is neither True nor False")


@dataclass(frozen=True, slots=True)
class OneOfTwo:
    first: str
    second: str

    @property
    def allowed(self) -> str:
        return f'`"{self.first}"` or `"{self.second}"`'

    def check(self, name: str, value: object) -> None:
        if value not in (self.first, self.second):
            raise InvalidJob(f"{name}: {value!r} is neither {self.first!r} nor {self.second!r}.")


@dataclass(frozen=True, slots=True)
class Made:
    """An object of a class of Pulse's own."""

    of: type
    how: str  # what to write to get one

    @property
    def allowed(self) -> str:
        return f"a `{self.of.__name__}`"

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, self.of):
            raise InvalidJob(f"{name}: {value!r} is not a {self.of.__name__}; write {self.how}.")


@dataclass(frozen=True, slots=True)
class CheckedElsewhere:
    """A value that cannot be checked alone: an alias, or names that must fit the function."""

    allowed: str

    def check(self, name: str, value: object) -> None:
        """Leave it to ``tasks.py``, which knows the function and the backends."""

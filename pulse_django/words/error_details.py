"""An exception as facts that can be stored. Reading them never fails, whatever the exception does."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .envelopes import HIDDEN
from .payloads import clean_text, one_line
from .retry_policies import dotted_path

# Long enough for any honest message; a 10 MB one is cut in the middle, where the least is lost.
MAX_MESSAGE = 10_000
MAX_TRACEBACK = 64_000
MAX_SUMMARY = 2_000
MAX_CLASS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReport:
    """What is known of an exception after it is gone."""

    error_class: str  # dotted path
    message: str
    traceback: str = ""  # text without local variables: those hold secrets
    lineage: tuple[str, ...] = ()  # dotted paths of its class and all bases, for retry policies

    @classmethod
    def of(cls, error: BaseException, *, places_only: bool = False) -> ErrorReport:
        """Read an exception; with ``places_only`` nothing that it says, which may repeat what is secret."""
        kind = type(error)
        return cls(
            error_class=clean_text(dotted_path(kind), MAX_CLASS),
            message=HIDDEN if places_only else _message(error),
            traceback=_traceback(error, _places if places_only else traceback.format_exception),
            lineage=tuple(clean_text(dotted_path(base), MAX_CLASS) for base in kind.__mro__),
        )

    @property
    def summary(self) -> str:
        """The last error in one line; never empty."""
        text = f"{self.error_class.rpartition('.')[2]}: {self.message}" if self.message else self.error_class
        return one_line(clean_text(text, MAX_SUMMARY)) or "unknown error"


def _message(error: BaseException) -> str:
    try:
        return clean_text(str(error), MAX_MESSAGE)
    except BaseException as second:  # an __str__ may raise anything, and the attempt must end all the same
        return f"(the message is not available: str() raised {type(second).__name__})"


def _traceback(error: BaseException, lines_of: Callable[[BaseException], Iterable[str]]) -> str:
    try:
        return clean_text("".join(lines_of(error)), MAX_TRACEBACK)
    except BaseException as second:
        return f"(the traceback is not available: formatting raised {type(second).__name__})"


def _places(error: BaseException) -> Iterable[str]:
    """Return the lines of a traceback without the messages, for the error and those that led to it."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and all(link is not one for one in chain):
        chain.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    for one in reversed(chain):
        yield "Traceback (most recent call last):\n"
        yield from traceback.format_tb(one.__traceback__)
        yield f"{dotted_path(type(one))}: {HIDDEN}\n"

"""An exception as facts that can be stored. Reading them never fails, whatever the exception does."""

from __future__ import annotations

import os
import re
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
MAX_FRAME = 80


_PULSE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_UNFIT = re.compile(r"[\[\]\s]|[^\x21-\x7e]")  # for the brackets that a frame stands in


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReport:
    """What is known of an exception after it is gone."""

    error_class: str  # dotted path
    message: str
    traceback: str = ""  # text without local variables: those hold secrets
    lineage: tuple[str, ...] = ()  # dotted paths of its class and all bases, for retry policies
    frame: str = ""  # where it was raised, as ``orders.py:ship``

    @classmethod
    def of(cls, error: BaseException, *, places_only: bool = False) -> ErrorReport:
        """Read an exception; with ``places_only`` nothing that it says, which may repeat what is secret."""
        kind = type(error)
        return cls(
            error_class=clean_text(dotted_path(kind), MAX_CLASS),
            message=HIDDEN if places_only else _message(error),
            traceback=_traceback(error, _places if places_only else traceback.format_exception),
            lineage=tuple(clean_text(dotted_path(base), MAX_CLASS) for base in kind.__mro__),
            frame=_frame(error),
        )

    @property
    def summary(self) -> str:
        """What it is and says, in one line; never empty."""
        text = f"{self.error_class.rpartition('.')[2]}: {self.message}" if self.message else self.error_class
        return one_line(clean_text(text, MAX_SUMMARY)) or "unknown error"

    @property
    def last_error(self) -> str:
        """What stands on the job: the summary, and where it was raised. Dead letters are grouped by both."""
        where = f" [{self.frame}]" if self.frame else ""
        return one_line(clean_text(self.summary, MAX_SUMMARY - len(where))) + where


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


def _frame(error: BaseException) -> str:
    """Return the file and the function that raised it: the innermost that is not Pulse's own, if there is one.

    Without a traceback there is none: it was never raised, or comes from another process.
    """
    try:
        codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
        code = next((one for one in reversed(codes) if not one.co_filename.startswith(_PULSE)), codes[-1])
        file = code.co_filename.replace("\\", "/").rpartition("/")[2]
        return _UNFIT.sub("_", clean_text(f"{file}:{code.co_name}", MAX_FRAME))
    except Exception:  # there is none, or it is of the project's own making
        return ""


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

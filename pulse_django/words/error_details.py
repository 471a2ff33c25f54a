"""An exception as facts that can be stored. Reading them never fails, whatever the exception does."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

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
    def of(cls, error: BaseException) -> ErrorReport:
        kind = type(error)
        return cls(
            error_class=clean_text(dotted_path(kind), MAX_CLASS),
            message=_message(error),
            traceback=_traceback(error),
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


def _traceback(error: BaseException) -> str:
    try:
        return clean_text("".join(traceback.format_exception(error)), MAX_TRACEBACK)
    except BaseException as second:
        return f"(the traceback is not available: formatting raised {type(second).__name__})"

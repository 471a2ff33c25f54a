"""The codec for stored values of jobs: that of a capability, or plain JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pulse_django.queue.capability import Single, assembled, provided
from pulse_django.queue.words.leases import Claim

from .registry import Task

if TYPE_CHECKING:
    from pulse_django.queue.job import JobRow  # a model: importing it needs the apps


class Codec(Single):
    """Encodes and decodes the stored arguments, progress and results of jobs, and decides what may be shown."""

    def opened(self, claim: Claim) -> Claim:
        """Return the claim with decoded arguments."""
        return claim

    def stored(self, claim: Claim, text: str, field: str) -> str:
        """Encode a text for the column or the step of that name."""
        return text

    def read(self, claim: Claim, value: Any, field: str) -> Any:
        """Decode such a text."""
        return value

    def arguments_of(self, job: JobRow) -> tuple[list[Any], dict[str, Any]]:
        return job.args, job.kwargs

    def value_of(self, job: JobRow, field: str) -> Any:
        """Return the progress or the result of a job."""
        return getattr(job, field)

    def hides_result(self, task: Task, sensitive: str | None) -> bool:
        """Return whether the task, or the mask of the job, hides the result."""
        return False

    def shown(
        self, task: str, args: Sequence[Any], kwargs: Mapping[str, Any], sensitive: str | None
    ) -> tuple[list[Any], dict[str, Any]] | None:
        """Return arguments for logs and pages. None: the task is not known in this process."""
        return list(args), dict(kwargs)


@assembled
def codec() -> Codec:
    return provided(Codec) or Codec()

"""The codec for stored values of jobs: that of a capability, or plain JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulse_django.queue.capability import Codec, assembled, installed

if TYPE_CHECKING:
    from pulse_django.models import Job


def _arguments_of(job: Job) -> tuple[list[Any], dict[str, Any]]:
    return job.args, job.kwargs


_AS_THEY_ARE = Codec(
    opened=lambda claim: claim,
    stored=lambda claim, text, field: text,
    read=lambda claim, value, field: value,
    arguments_of=_arguments_of,
    value_of=lambda job, field: getattr(job, field),
    hides_result=lambda task, sensitive: False,
    shown=lambda task, args, kwargs, sensitive: (list(args), dict(kwargs)),
)


@assembled
def codec() -> Codec:
    return next((one.codec for one in installed() if one.codec is not None), _AS_THEY_ARE)

"""The codec for stored values of jobs: that of a capability, or plain JSON."""

from __future__ import annotations

from pulse_django.queue.capability import Codec, assembled, installed


@assembled
def codec() -> Codec:
    return next((one.internals.codec for one in installed() if one.internals.codec is not None), Codec())

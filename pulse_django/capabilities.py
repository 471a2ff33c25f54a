"""The capabilities that are installed, in the order in which a claim asks them."""

from __future__ import annotations

from .limits import claiming
from .protocol import expire
from .store import gates, pauses


def install() -> None:
    gates.install(expire.CAPABILITY, pauses.CAPABILITY, claiming.CAPABILITY, claiming.CHUNKS)

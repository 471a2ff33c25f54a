"""Notify systemd, if the unit has ``Type=notify`` or ``WatchdogSec=``."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress


class Systemd:
    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        microseconds = environment.get("WATCHDOG_USEC", "")
        meant_for = environment.get("WATCHDOG_PID", "")
        mine = not meant_for or meant_for == str(os.getpid())
        # Half of the allowed time, as systemd recommends.
        self.ping_every = int(microseconds) / 2_000_000 if microseconds.isdigit() and mine else float("inf")

    def ready(self, status: str) -> None:
        self._say(f"READY=1\nSTATUS={status}")

    def stopping(self, status: str) -> None:
        self._say(f"STOPPING=1\nSTATUS={status}")

    def ping(self) -> None:
        self._say("WATCHDOG=1")

    def _say(self, text: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(text.encode(), self._address)

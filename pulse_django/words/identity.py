"""The identity of one start of a worker process, and the holders that it makes."""

from __future__ import annotations

import itertools
import os
import re
import secrets
import socket

# Name, boot id and 19 digits of serial stay below the column's 160 characters.
MAX_NAME = 80
MAX_BOOT_ID = 40
MAX_HOST = 255
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]+")


class Identity:
    """Mints a new holder for every claim statement.

    The boot id is random and the serial counts up, so a reused pod name, a recycled pid or a database that lost a
    committed claim can never bring a (holder, attempt) pair back. Nor can a fork: the child gets a boot id of its own.
    """

    def __init__(self, name: str, boot_id: str | None = None) -> None:
        self.name = printable(name, MAX_NAME)
        self.boot_id = printable(boot_id, MAX_BOOT_ID) if boot_id else _new_boot_id()
        self._pid = os.getpid()
        self._serials = itertools.count(1)
        self.last_holder = ""  # that was minted

    @classmethod
    def of_this_process(cls) -> Identity:
        return cls(f"{socket.gethostname()}-{os.getpid()}")

    def mint_holder(self) -> str:
        if self._pid != os.getpid():
            self.boot_id, self._pid = _new_boot_id(), os.getpid()
        self.last_holder = f"{self.name}:{self.boot_id}:{next(self._serials)}"
        return self.last_holder

    def __repr__(self) -> str:
        return f"Identity({self.name!r}, {self.boot_id!r})"


def holder_prefixes(name: str, boot_id: str) -> tuple[str, str]:
    """Return how the holders of one start of a worker begin: its own, and those of its children, which it numbers."""
    return f"{name}:{boot_id}:", f"{name}:{boot_id}."


def _new_boot_id() -> str:
    return secrets.token_hex(6)


def printable(text: str, longest: int) -> str:
    """Keep what is safe in a log line, a column and a page: names come from hosts and environments."""
    return _UNPRINTABLE.sub("_", text)[:longest] or "worker"

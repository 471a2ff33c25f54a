"""The wall clock of a worker, which can be made to jump. The program that does it is a page of C, made on the spot."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

SOURCE = Path(__file__).with_name("jump.c")
_NANOSECONDS = struct.Struct("q")


def compile_into(folder: Path) -> Path | None:
    """Return the library to load before all others, or None where there is no C compiler, or no Linux."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    library = folder / "jump.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    return library if done.returncode == 0 else None


class Clock:
    """Shows the true time until it is told to be ahead of it, or behind."""

    def __init__(self, file: Path, library: Path | None) -> None:
        self._file, self._library = file, library
        self._jumps: list[tuple[datetime, timedelta]] = []  # since when it has been ahead by how much
        self.jump_to(0.0)

    @property
    def can_jump(self) -> bool:
        return self._library is not None

    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._file)} if self._library else {}

    def jump_to(self, seconds: float) -> None:
        """Be so many seconds ahead of the true time from now on."""
        self._jumps.append((datetime.now(UTC), timedelta(seconds=seconds)))
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(_NANOSECONDS.pack(int(seconds * 1e9)))

    def really(self, shown: datetime) -> datetime:
        """Return the true time at which it showed this."""
        ends = [since for since, _ in self._jumps[1:]] + [datetime.now(UTC)]
        for (since, ahead), until in zip(self._jumps, ends, strict=True):
            if since <= shown - ahead < until:
                return shown - ahead
        return shown

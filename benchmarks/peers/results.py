"""What was measured so far, in a file that is whole at every instant: a run that is broken off keeps what it had."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Results:
    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self._path = path
        self.data: dict[str, Any] = {
            "about": about,
            "peers": {},
            "measurements": [],
            "failures": [],
            "is_finished": False,
        }
        path.parent.mkdir(parents=True, exist_ok=True)

    def introduce(
        self,
        name: str,
        title: str,
        settings: str,
        *,
        version: str | None,
        reason: str | None = None,
        without: dict[str, str] | None = None,
    ) -> None:
        """Note a peer that was asked for: its versions and what cannot be measured of it, or why nothing is."""
        said = {"title": title, "settings": settings, "version": version, "reason": reason, "without": without or {}}
        self.data["peers"][name] = said
        self.write()

    def add(self, peer: str, measure: str, variant: str, number: int, figures: dict[str, float]) -> None:
        entry = {"peer": peer, "measure": measure, "variant": variant, "round": number, "figures": figures}
        self.data["measurements"].append(entry)
        self.write()

    def fail(self, peer: str, measure: str, variant: str, reason: str) -> None:
        self.data["failures"].append({"peer": peer, "measure": measure, "variant": variant, "reason": reason})
        self.write()

    def finish(self, **more: Any) -> None:
        self.data["about"] |= more
        self.data["is_finished"] = True
        self.write()

    def write(self) -> None:
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(self.data, indent=1) + "\n")
        os.replace(unfinished, self._path)

"""What counts as a change of the code."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pulse_django.worker import reloader
from pulse_django.worker.reloader import Changes


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files of the modules that are loaded: one."""
    (tmp_path / "a.py").touch()
    files = [tmp_path / "a.py"]
    monkeypatch.setattr(reloader, "iter_all_python_module_files", lambda: frozenset(files))
    monkeypatch.setattr(reloader, "INTERVAL", 0.0)
    return files


def test_a_file_that_was_saved_or_is_gone_is_a_change_and_a_module_that_is_loaded_later_is_none(
    loaded: list[Path], tmp_path: Path
) -> None:
    changes = Changes()
    (tmp_path / "b.py").touch()
    loaded.append(tmp_path / "b.py")
    assert not changes.are_there()
    os.utime(loaded[0], (1, 1))
    assert changes.are_there()
    assert changes.found == loaded[0]
    changes = Changes()
    loaded[0].unlink()
    assert changes.are_there()


def test_a_file_that_was_saved_while_it_was_loaded(loaded: list[Path]) -> None:
    saved = loaded[0].stat().st_mtime
    # A file of the future is on another clock: restarting for it would never end.
    for began, at, is_changed in ((saved - 1, saved, True), (saved + 1, saved, False), (saved - 1, saved + 1e6, False)):
        os.utime(loaded[0], (at, at))
        assert Changes(time.monotonic() - time.time() + began).are_there() is is_changed, (began, at)

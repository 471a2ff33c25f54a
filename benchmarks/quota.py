"""Hold processes to a share of a core, by a control group of Linux, so that three servers fit on a small machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from testproject.harness.census import census, descendants

PERIOD = 100_000  # µs
V1, V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")


def why_not() -> str:
    """Return why no control group can be made here, or nothing."""
    root = _root()
    if root is None:
        return "there is no control group for processors"
    if not os.access(root, os.W_OK):
        return f"{root} cannot be written: run this as root"
    return ""


@contextmanager
def held_to(share: float, postmasters: Sequence[int]) -> Iterator[None]:
    """Hold each of these servers, with all of its processes, to this share of a core. 0: do not."""
    root = _root()
    if not share or root is None:
        yield
        return
    groups = []
    try:
        for number, postmaster in enumerate(postmasters):
            group = root / f"pulse-bench-{os.getpid()}-{number}"
            group.mkdir()
            groups.append(group)
            _limit(group, int(share * PERIOD))
            for pid in [postmaster, *(one.pid for one in descendants(postmaster, census()))]:
                with suppress(ProcessLookupError):
                    (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for group in groups:
            while pids := (group / "cgroup.procs").read_text().split():
                for pid in pids:
                    with suppress(ProcessLookupError):
                        (root / "cgroup.procs").write_text(pid)
            group.rmdir()


def _limit(group: Path, quota: int) -> None:
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota} {PERIOD}")
        return
    (group / "cpu.cfs_period_us").write_text(str(PERIOD))
    (group / "cpu.cfs_quota_us").write_text(str(quota))


def _root() -> Path | None:
    if (V1 / "cpu.shares").exists():
        return V1
    controllers = V2 / "cgroup.subtree_control"
    return V2 if controllers.exists() and "cpu" in controllers.read_text().split() else None

"""An environment of its own for each peer, made when it is first needed: its dependencies are no business of ours."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.peer import Peer

APPS = Path(__file__).with_name("apps")
ROOT = Path(__file__).resolve().parent.parent.parent
LONGEST_INSTALL = 900.0
NOISE = ("WARNING", "[notice]", "npm notice", "npm warn", "npm error A complete log")


class NotInstalled(Exception):
    """Says why, in one line."""


class WrongPython(NotInstalled):
    """Another Python may be accepted."""


@dataclass(frozen=True)
class Environment:
    """How a peer's side is run."""

    command: tuple[str, ...]
    variables: dict[str, str]


def make_ready(peer: Peer, cache: Path, pythons: Sequence[str] = ()) -> Environment:
    """Return the peer's environment, installed."""
    if not peer.requirements:
        both = {"PYTHONPATH": os.pathsep.join([str(APPS), str(ROOT)])}
        return Environment((sys.executable, str(APPS / "run.py"), peer.name), both)
    folder = (cache / peer.name).absolute()
    stamp = folder / f".ready-{hashlib.sha256(' '.join(peer.requirements).encode()).hexdigest()[:12]}"
    if peer.is_node:
        return _node(peer, folder, stamp)
    if not stamp.exists():
        _install(peer, folder, [*(pythons or [sys.executable]), *newer_pythons()])
        stamp.touch()
    return Environment((str(folder / "bin/python"), str(APPS / "run.py"), peer.name), {"PYTHONPATH": str(APPS)})


def _install(peer: Peer, folder: Path, pythons: Sequence[str]) -> None:
    """Try our own Python first, so that as many as possible share it, and newer ones for those that refuse it."""
    reason = "no Python was found"
    for python in pythons:
        if not _runs(python):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        try:
            _run([python, "-m", "venv", str(folder)])
            pip = [str(folder / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            _run([*pip, *peer.requirements])
        except WrongPython as refused:
            reason = str(refused)
        else:
            return
    raise NotInstalled(reason)


def newer_pythons() -> list[str]:
    """Return what may be there for those that want a newer one than ours; pyenv's versions may be on no PATH."""
    kept = Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python3")
    return ["python3.14", "python3.13", "python3.12", *sorted(map(str, kept), reverse=True)]


def _node(peer: Peer, folder: Path, stamp: Path) -> Environment:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise NotInstalled("there is no node, or no npm, on the PATH")
    if not stamp.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _run([npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), *peer.requirements])
        stamp.touch()
    return Environment((node, str(APPS / f"with_{peer.name}.cjs")), {"BENCH_NODE": str(folder)})


def _runs(python: str) -> bool:
    """Execute it: a name on the PATH may be a shim that only prints an error."""
    try:
        done = subprocess.run([python, "-c", "import venv, ensurepip"], capture_output=True, timeout=60)
    except OSError:
        return False
    return done.returncode == 0


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_INSTALL)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"not installed after {LONGEST_INSTALL:g} s") from None
    if done.returncode:
        said = done.stdout + done.stderr
        raise (WrongPython if "different python version" in said else NotInstalled)(reason_in(said))


def reason_in(output: str) -> str:
    """Return the last line that tells something."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.strip().startswith(NOISE)]
    errors = [line for line in lines if "ERROR" in line or "rror:" in line]
    return (errors or lines or ["it said nothing"])[-1][:300]

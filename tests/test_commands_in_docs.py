"""Every command that a page tells its reader to type can be typed: it exists, with these flags."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import dropwhile
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, get_commands, load_command_class

from tests.faults import all_faults

ROOT = Path(__file__).parent.parent
PAGES = [
    page
    for page in [*ROOT.glob("*.md"), ROOT / "tests/README.md", *(ROOT / "docs").rglob("*.md")]
    if "adr" not in page.parts
]
# Other people's programs.
THEIRS = {"cd", "createdb", "curl", "django-admin", "dmesg", "docker", "git", "journalctl", "kill", "openssl"}


def commands() -> Iterator[tuple[str, str]]:
    """What stands in blocks for a terminal; if a block has prompts, the other lines are answers."""
    for page in sorted(PAGES):
        for block in re.findall(r"```(?:console|sh|bash)\n(.*?)```", page.read_text(), re.DOTALL):
            lines = [line for line in block.splitlines() if line.strip()]
            prompted = [line[2:] for line in lines if line.startswith("$ ")]
            for line in prompted or lines:
                yield str(page.relative_to(ROOT)), line


@cache
def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@cache
def extras() -> set[str]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return set(project["project"]["optional-dependencies"])


def test_a_command_can_be_typed() -> None:
    with all_faults() as about:
        for page, line in sorted(set(commands())):
            with about(f"{page}: {line}"):
                program, *arguments = dropwhile(is_assignment, shlex.split(line, comments=True))
                if program == "make":
                    assert {word for word in arguments if not is_assignment(word)} <= targets()
                elif program.endswith("python"):
                    check_python(arguments)
                elif program == "pip":
                    check_pip(arguments)
                else:
                    assert program in THEIRS


def is_assignment(word: str) -> bool:
    return re.match(r"[A-Z_]+=", word) is not None


def check_python(arguments: list[str]) -> None:
    if arguments[0] == "manage.py":
        check_manage(arguments[1], arguments[2:])
    elif arguments[:2] == ["-m", "pip"]:
        check_pip(arguments[2:])
    elif arguments[:2] == ["-m", "pytest"]:
        assert (ROOT / arguments[2]).exists()
    elif arguments[0] == "-m":
        assert (ROOT / f"{arguments[1].replace('.', '/')}.py").exists()
    else:
        assert (ROOT / arguments[0]).exists()


def check_pip(arguments: list[str]) -> None:
    assert arguments[0] == "install"
    assert arguments[1] == "-e"
    for name in arguments[2:]:
        asked = re.fullmatch(r"path/to/checkout\[(.*)\]", name)
        assert asked is not None, name
        assert set(asked[1].split(",")) <= extras()


OF_OTHER_PACKAGES = {"db_worker"}  # django-tasks-db's, in the recipe to leave it


def check_manage(name: str, arguments: list[str]) -> None:
    if name in OF_OTHER_PACKAGES:
        return
    app = get_commands()[name]
    if name.startswith("pulse_"):
        parser_of(app, name).parse_args(arguments)


@cache
def parser_of(app: str, name: str) -> Any:
    return load_command_class(app, name).create_parser("manage.py", name)


@pytest.mark.parametrize("words", [["--nonsense"], ["--pace", "fast"]])
def test_a_flag_that_does_not_exist_would_be_noticed(words: list[str]) -> None:
    with pytest.raises(CommandError):
        check_manage("pulse_retry", words)

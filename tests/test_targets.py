"""Each failure that tests/README.md lists has a test, and each target names tests that exist."""

from __future__ import annotations

import ast
import re
import shlex
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults import all_faults, each_of
from tests.targets import FIRST_OF_EACH, TARGETS, VERSIONS

TESTS = Path(__file__).parent
ROOT = TESTS.parent
PAGE = (TESTS / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
FAILURES = range(1, 97)

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Row(NamedTuple):
    """A line of a list: a failure, and the tests that show what happens then."""

    failure: str
    tests: list[str]
    rules: list[str]  # of the checker of chaos, named in quotation marks
    number: int | None = None


def chapter(name: str) -> str:
    [text] = re.findall(rf"^## {name}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    return str(text)


def rows() -> list[Row]:
    lines = re.findall(r"^- (?:(\d+)\. )?([^`]+): (`.+)$", chapter("Failures") + chapter("Security"), re.MULTILINE)
    return [
        Row(
            failure,
            re.findall(r"`([^`]+)`", tests),
            re.findall(r'\(rule "([^"]+)"\)', tests),
            int(number) if number else None,
        )
        for number, failure, tests in lines
    ]


@cache
def module_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def found_in(body: list[ast.stmt], names: list[str]) -> list[ast.ClassDef | Function]:
    """Return the classes that these names lead through, and the function at the end."""
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    node = next((node for node in body if isinstance(node, kinds) and node.name == names[0]), None)
    assert node is not None, f"there is no {names[0]}"
    if len(names) == 1:
        assert not isinstance(node, ast.ClassDef)
        return [node]
    assert isinstance(node, ast.ClassDef)
    return [node, *found_in(node.body, names[1:])]


def nodes_of(nodeid: str) -> list[ast.ClassDef | Function]:
    path, *names = nodeid.partition("[")[0].split("::")
    assert names[-1].startswith("test_")
    assert (TESTS / path).is_file()
    return found_in(module_of(TESTS / path).body, names)


def recipe_of(target: str) -> str:
    [recipe] = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    return str(recipe)


def check_chaos(command: str) -> None:
    module, *arguments = shlex.split(command)
    assert (ROOT / f"{module.replace('.', '/')}.py").is_file()
    assert re.search(rf"-m chaos\.{module.removeprefix('chaos.')}\b", MAKEFILE)
    if arguments:
        flag, name = arguments
        assert flag == "--nemesis"
        assert f'"{name}"' in (ROOT / "chaos/nemeses.py").read_text()


def check_model(command: str) -> None:
    script, variant = shlex.split(command)
    assert script in recipe_of("model")
    # With what breaks then: there are variants that hold.
    assert f'variant("{variant.replace("+", " ")}", "' in (ROOT / script).read_text()


def test_each_failure_names_tests_that_exist() -> None:
    found = rows()
    assert len(found) > 100
    with all_faults() as about:
        for row in found:
            for named in row.tests:
                with about(f"{row.number or ''} {row.failure}: {named}"):
                    if named.startswith("chaos."):
                        check_chaos(named)
                    elif named.startswith("model/"):
                        check_model(named)
                    else:
                        nodes_of(named)
            for rule in row.rules:
                with about(f"{row.number or ''} {row.failure}: rule {rule}"):
                    assert f'"{rule}"' in (ROOT / "chaos/checker.py").read_text()


def test_each_place_that_a_list_names_exists() -> None:
    listed = {place.partition("::")[0] for places in (*TARGETS.values(), VERSIONS) for place in places}
    assert {place for place in listed if not (TESTS / place).exists()} == set()
    named = set(re.findall(r"\btests/[\w./]*\w(?![\w*])", MAKEFILE))
    assert len(named) > 30
    assert {path for path in named if not (ROOT / path).exists()} == set()


@each_of(*FIRST_OF_EACH.items())
def test_each_first_test_of_a_class_of_failures_exists(*, failure: Any, nodeid: Any) -> None:
    nodes_of(nodeid)


def test_each_failure_is_listed_once_with_its_tests_or_as_not_tested() -> None:
    tested = [row.number for row in rows() if row.number is not None]
    untested = [int(number) for number in re.findall(r"^- (\d+)\. ", chapter("Not tested"), re.MULTILINE)]
    assert tested == sorted(tested)
    listed = Counter([*tested, *untested])
    assert {number for number in FAILURES if listed[number] != 1} == set()
    assert listed.keys() <= set(FAILURES)


def test_help_names_every_target() -> None:
    [phony] = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    told = re.findall(r'echo "make ([a-z-]+) ', recipe_of("help"))
    assert Counter(told) == Counter(set(phony.split()) - {"help"})

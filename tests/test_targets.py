"""Each test runs in the target that tests/README.md says, and each failure that is listed there has a test."""

from __future__ import annotations

import ast
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.faults import all_faults
from tests.targets import FIRST_OF_EACH, TARGETS, VERSIONS, target_of

TESTS = Path(__file__).parent
ROOT = TESTS.parent
PAGE = (TESTS / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
FAILURES = range(1, 91)
COMMANDS = {
    "quick": "make test",
    "crash": "make crash",
    "browser": "make browser",
    "fresh": "make fresh",
    "proof": "make proofs",
    "theme": "make themes",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Row(NamedTuple):
    """A line of a table: what goes wrong, what shows that nothing comes of it, and what runs that."""

    failure: str
    tests: list[str]
    targets: list[str]
    rules: list[str]  # of a judge, named in quotation marks after what is run
    number: int | None = None


def chapter(name: str) -> str:
    [text] = re.findall(rf"^## {name}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    return str(text)


def rows() -> list[Row]:
    found = []
    for line in re.findall(r"^\| (.+) \|$", chapter("Failures") + chapter("Security"), re.MULTILINE):
        *before, failure, tests, targets = re.split(r" \| ", line)
        if "`" in tests:  # or it is the head
            named, quoted = re.findall(r"`([^`]+)`", tests), re.findall(r'\(rule "([^"]+)"\)', tests)
            number = int(before[0]) if before else None
            found.append(Row(failure, named, re.findall(r"`([^`]+)`", targets), quoted, number))
    return found


def what_runs(row: Row) -> Iterator[tuple[str, str]]:
    """Each test of a row with its target: one for all, or one for each."""
    targets = row.targets * len(row.tests) if len(row.targets) == 1 else row.targets
    return zip(row.tests, targets, strict=True)


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


def parameters(function: Function) -> set[str]:
    return {one.arg for one in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]}


def marked(marks: list[ast.expr]) -> set[str]:
    """The fixtures that are named in marks ``usefixtures``."""
    calls = [node for mark in marks for node in ast.walk(mark) if isinstance(node, ast.Call)]
    used = [call for call in calls if ast.unparse(call.func) == "pytest.mark.usefixtures"]
    return {str(name.value) for call in used for name in call.args if isinstance(name, ast.Constant)}


@cache
def fixtures_of(path: Path) -> dict[str, set[str]]:
    """What each fixture of a file takes; those that every test uses stand together under ``autouse``."""
    taken: dict[str, set[str]] = {"autouse": set()}
    for node in ast.walk(module_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for mark in map(ast.unparse, node.decorator_list):
                if mark.startswith("pytest.fixture"):
                    taken[node.name] = parameters(node)
                    taken["autouse"] |= {node.name} if "autouse=True" in mark else set()
    return taken


def starts_workers(nodeid: str) -> bool:
    path = TESTS / nodeid.partition("::")[0]
    *classes, function = nodes_of(nodeid)
    assert not isinstance(function, ast.ClassDef)
    assigned = [node for node in module_of(path).body if isinstance(node, ast.Assign)]
    marks = [node.value for node in assigned if ast.unparse(node.targets[0]) == "pytestmark"]
    marks += [mark for node in [*classes, function] for mark in node.decorator_list]
    taken = fixtures_of(TESTS / "conftest.py") | fixtures_of(path)
    if (path.parent / "conftest.py").exists():
        taken = fixtures_of(path.parent / "conftest.py") | taken
    used = parameters(function) | marked(marks) | taken["autouse"]
    while more := {name for one in used for name in taken.get(one, ())} - used:
        used |= more
    return "workers" in used or path.is_relative_to(TESTS / "crash")


def target_that_runs(nodeid: str) -> str:
    if nodeid in {first.partition("[")[0] for first in FIRST_OF_EACH.values()}:
        return "make test"
    return COMMANDS[target_of(nodeid, starts_workers=starts_workers(nodeid))]


def recipe_of(target: str) -> str:
    [recipe] = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    return str(recipe)


def check_chaos(command: str, target: str) -> None:
    module, *arguments = shlex.split(command)
    assert (ROOT / f"{module.replace('.', '/')}.py").is_file()
    recipe = recipe_of(target.removeprefix("make "))
    assert "-m chaos." in recipe
    assert re.search(rf"\b{module.removeprefix('chaos.')}\b", recipe)
    if arguments:
        flag, name = arguments
        assert flag == "--nemesis"
        assert f'"{name}"' in (ROOT / "chaos/nemeses.py").read_text()


def check_model(command: str, target: str) -> None:
    script, variant = shlex.split(command)
    assert target == "make model"
    assert script in recipe_of("model")
    # With what breaks then: there are variants that hold.
    assert f'variant("{variant.replace("+", " ")}", "' in (ROOT / script).read_text()


def test_each_failure_names_tests_that_its_target_runs() -> None:
    with all_faults() as about:
        for row in rows():
            for named, target in what_runs(row):
                with about(f"{row.number or ''} {row.failure}: {named}"):
                    if named.startswith("chaos."):
                        check_chaos(named, target)
                    elif named.startswith("model/"):
                        check_model(named, target)
                    else:
                        assert target == target_that_runs(named)
            for rule in row.rules:
                with about(f"{row.number or ''} {row.failure}: rule {rule}"):
                    assert f'"{rule}"' in (ROOT / "chaos/checker.py").read_text()


def test_each_place_that_a_list_names_exists() -> None:
    listed = {place.partition("::")[0] for places in (*TARGETS.values(), VERSIONS) for place in places}
    assert {place for place in listed if not (TESTS / place).exists()} == set()
    named = set(re.findall(r"\btests/[\w./]*\w(?![\w*])", MAKEFILE))
    assert len(named) > 30
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_each_first_test_of_a_class_of_failures_exists() -> None:
    with all_faults() as about:
        for failure, nodeid in FIRST_OF_EACH.items():
            with about(f"{failure}: {nodeid}"):
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

"""What the documents say is so: links lead somewhere, examples run, the diagram is the transition table."""

from __future__ import annotations

import importlib.util
import re
import runpy
import shlex
import sys
import tomllib
import types
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import dropwhile
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, get_commands, load_command_class

import pulse_django
import testproject.shop
import testproject.shop.models
from pulse_django.health.conditions import catalogue
from pulse_django.queue.words.states import Status
from pulse_django.schedules import declarations
from pulse_django.testing import drain
from tests.database import empty_tables
from tests.faults import all_faults
from tests.queue.moves import MOVES

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), ROOT / "tests/README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


text_of = cache(Path.read_text)


def test_nothing_leads_to_a_name_or_an_address_that_is_not_ours() -> None:
    """Our name is free on the index. If somebody else takes it, readers would install their package."""
    strange = re.compile(r"""pip install [^\n]*["' ]pulse[-_.]django\b|github(usercontent)?\.com/example\b""", re.I)
    assert strange.search('pip install "pulse-django[binary]"')
    files = [*PAGES, ROOT / "pyproject.toml", *(ROOT / "pulse_django").rglob("*.py")]
    assert [f"{name_of(one)}: {found[0]}" for one in files for found in strange.finditer(one.read_text())] == []


def test_links_are_defined_and_lead_to_a_file_and_a_chapter() -> None:
    assert len(PAGES) > 100
    with all_faults() as about:
        for page in PAGES:
            text = re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)
            targets = dict(re.findall(r"^\[([^\]]+)\]: (\S+)", text, re.MULTILINE))
            with about(name_of(page)):
                assert set(re.findall(r"\]\[([^\]]+)\]", text)) == targets.keys()
            for target in {*targets.values(), *re.findall(r"\]\(([^)\s]+)\)", text_of(page))}:
                if "://" not in target:
                    with about(f"{name_of(page)}: {target}"):
                        path, _, chapter = target.partition("#")
                        place = (page.parent / path).resolve() if path else page
                        assert place.exists()
                        assert not chapter or place.suffix != ".md" or chapter in anchors_of(place)


def anchor_of(heading: str) -> str:
    """How a forge names a chapter."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@cache
def anchors_of(page: Path) -> set[str]:
    return {anchor_of(heading) for heading in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)}


def test_every_command_exists_with_its_flags() -> None:
    faults = [f"{name_of(page)}: {what}" for page in PAGES for code in code_of(page) for what in unknown_in(code)]
    assert not faults, "\n".join(faults)


def unknown_in(code: str) -> Iterator[str]:
    """What is called and is not there: commands and their flags, targets of make, scripts and modules."""
    said = re.findall(r"manage\.py (pulse_\w+)([^\n|&;#]*)", code)
    said += [(name, rest) for name, rest in re.findall(r"^(pulse_\w+)( [^\n|&;#]*)", code) if name in COMMANDS]
    for name, rest in said:
        if name not in COMMANDS or not set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", rest)) <= set(
            parser_of("pulse_django", name)._option_string_actions
        ):
            yield f"{name}{rest}"
    for target in re.findall(r"(?:^|[\s=])make ((?:[a-z]\S*=\S+ )*[a-z-]+)", code):
        if target.split()[-1] not in TARGETS:
            yield f"make {target}"
    for script in re.findall(r"python (\w+/\S+\.py)", code):
        if not (ROOT / script).is_file():
            yield script
    for module in re.findall(r"python -m ([\w.]+)", code):
        if not (ROOT / f"{module.replace('.', '/')}.py").is_file() and not is_installed(module):
            yield module


@cache
def parser_of(app: str, name: str) -> Any:
    return load_command_class(app, name).create_parser("manage.py", name)


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # nor is its parent
        return False


COMMANDS = {path.stem for path in (ROOT / "pulse_django/management/commands").glob("pulse_*.py")}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def code_of(page: Path) -> list[str]:
    """What stands between backticks, in lines of their own or not."""
    blocks = re.split(r"^ *```.*$", page.read_text(), flags=re.MULTILINE)
    return blocks[1::2] + [span for prose in blocks[::2] for span in re.findall(r"`([^`]+)`", prose)]


def test_the_badges_are_true() -> None:
    drawn = runpy.run_path(str(ROOT / "docs/images/badges.py"))["badges"]()
    assert {path.name: path.read_text() for path in (ROOT / "docs/images/badges").iterdir()} == drawn
    shown = re.findall(r"!\[([^\]]+)\]\(docs/images/badges/([^)]+)\)", text_of(ROOT / "README.md"))
    assert {name for _, name in shown} == drawn.keys()
    assert [name for instead, name in shown if f"<title>{instead}</title>" not in drawn[name]] == []


def test_every_page_is_in_an_index() -> None:
    index = (ROOT / "docs/adr/README.md").read_text()
    assert set(re.findall(r"\((\d{4}-[^)]+\.md)\)", index)) == {page.name for page in (ROOT / "docs/adr").glob("0*.md")}
    index = (ROOT / "docs/README.md").read_text()
    for folder in ("tutorial", "how-to", "reference", "explanation"):
        for page in (ROOT / "docs" / folder).rglob("*.md"):
            if page.name != "README.md":
                assert f"({page.relative_to(ROOT / 'docs')})" in index, page


@pytest.mark.usefixtures("pulse_db")
def test_the_readmes_example_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    [example] = [block for block in blocks if "@task" in block]
    with module_of_a_page() as module:
        exec(compile(example, "README.md", "exec"), vars(module))
        module.send_invoice.enqueue(7)
        [ran] = drain()
    assert ran.status == Status.COMPLETED


def test_the_state_diagram_is_the_transition_table() -> None:
    page = (ROOT / "docs/explanation/leases.md").read_text()
    drawn = {
        (verb, origin, target)
        for origin, target, verbs in re.findall(r"^ +(\w+|\[\*\]) --> (\w+|\[\*\]): (.+)$", page, re.MULTILINE)
        for verb in re.findall(r"\w+", re.sub(r"\(.*?\)", "", verbs))
        if origin != "[*]"
    }
    # A job that is asked to cancel stays RUNNING: said in words below the diagram.
    said_in_words = {("request_cancel", "RUNNING", "RUNNING")}
    moves = {
        (verb, origin.value, target.value if target else "[*]")
        for verb, table in MOVES.items()
        for origin, targets in table.items()
        for target in targets
    }
    assert drawn | said_in_words == moves


RUN = [*sorted((ROOT / "docs/how-to").glob("*.md")), ROOT / "docs/reference/values.md"]
HOW_TO = [page for page in RUN if "```python" in page.read_text()]


def examples_of(page: Path) -> list[str]:
    """The Python blocks of a page but those for a project's settings, which tests/fresh tries in a project."""
    blocks = re.findall(r"^ *```python\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [block for block in blocks if "settings.py" not in block.partition("\n")[0]]


@contextmanager
def module_of_a_page() -> Iterator[types.ModuleType]:
    """A module for a page's code, in a project whose app is called shop."""
    module = types.ModuleType("a_page_of_the_docs")
    shop = {"shop": testproject.shop, "shop.models": testproject.shop.models}
    sys.modules.update({module.__name__: module, **shop})
    try:
        yield module
    finally:
        for name in (module.__name__, *shop):
            del sys.modules[name]


@pytest.mark.usefixtures("pulse_db")
def test_every_example_of_a_how_to_page_runs() -> None:
    from pulse_django.run.registry import registry

    registry.discover()  # a module that a page imports first would be forgotten with the page's own tasks
    known, asked, scheduled = dict(registry._tasks), dict(catalogue._known), dict(declarations._declared)
    with all_faults() as about:
        for page in HOW_TO:
            blocks = examples_of(page)
            with about(page.stem), module_of_a_page() as module:
                empty_tables()
                assert blocks
                try:
                    for block in blocks:
                        exec(compile(block, str(page), "exec"), vars(module))
                finally:
                    registry._tasks, catalogue._known, declarations._declared = (
                        dict(known),
                        dict(asked),
                        dict(scheduled),
                    )


def test_the_reference_is_made_from_the_code() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs/reference/generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for name, text in generate.pages().items():
        written = (ROOT / "docs/reference" / name).read_text()
        assert written == text, f"{name} is out of date: python docs/reference/generate.py"


def test_the_reference_of_the_api_names_all_that_is_public() -> None:
    page = (ROOT / "docs/reference/python.md").read_text()
    assert [name for name in pulse_django.__all__ if not re.search(rf"`{name}\b", page)] == []


def test_every_page_of_a_symptom_ends_with_how_to_see_that_it_is_gone() -> None:
    pages = sorted((ROOT / "docs/how-to/symptoms").glob("*.md"))
    assert len(pages) == 7
    for page in pages:
        if page.name != "README.md":
            last = page.read_text().rsplit("\n\n", 2)[1:]
            assert any(re.search(r"^(The problem is solved when|Try it:)", one, re.MULTILINE) for one in last), page


# Other people's programs.
THEIRS = {"cd", "createdb", "curl", "django-admin", "dmesg", "docker", "git", "journalctl", "kill", "openssl"}


def commands() -> Iterator[tuple[str, str]]:
    """What stands in blocks for a terminal; if a block has prompts, the other lines are answers."""
    for page in (one for one in PAGES if "adr" not in one.parts):
        for block in re.findall(r"```(?:console|sh|bash)\n(.*?)```", page.read_text(), re.DOTALL):
            lines = [line for line in block.splitlines() if line.strip()]
            prompted = [line[2:] for line in lines if line.startswith("$ ")]
            for line in prompted or lines:
                yield str(page.relative_to(ROOT)), line


@cache
def extras() -> set[str]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return set(project["project"]["optional-dependencies"])


def test_a_command_can_be_typed() -> None:
    """Every command that a page tells its reader to type: it exists, with these flags."""
    with all_faults() as about:
        for page, line in sorted(set(commands())):
            with about(f"{page}: {line}"):
                program, *arguments = dropwhile(is_assignment, shlex.split(line, comments=True))
                if program == "make":
                    assert {word for word in arguments if not is_assignment(word)} <= TARGETS
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


@pytest.mark.parametrize("words", [["--nonsense"], ["--pace", "fast"]])
def test_a_flag_that_does_not_exist_would_be_noticed(words: list[str]) -> None:
    with pytest.raises(CommandError):
        check_manage("pulse_retry", words)

"""What stands in no source and in no template of Pulse: other formats than JSON, code from data, unescaped text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulse_django
from tests.faults import each_of

PACKAGE = Path(pulse_django.__file__).parent
TEMPLATES = sorted(PACKAGE.rglob("*.html"))
SOURCES = sorted(PACKAGE.rglob("*.py"))

# ------------------------------------------------------------------------------------------- no door to other formats

MODULES = {
    "pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle", "yaml", "ruamel", "code",
    "codeop", "imp", "runpy", "xmlrpc", "importlib.util",
}  # fmt: skip
CALLS = {"eval", "exec", "compile", "__import__", "import_string", "loads_pickle", "literal_eval"}
HOOKS = {"object_hook", "object_pairs_hook", "cls", "parse_constant"}
# What django-q2 stores as text is read when an operator asks for it: literals, and nothing that could be called.
READS_LITERALS = {"imports.py"}
# What is imported by name: submodules of ours that are named in a constant, and what the settings name.
IMPORT_BY_NAME = {"__init__.py", "named_in_settings.py", "registry.py"}


def test_no_source_unpickles_evaluates_or_makes_objects_of_json() -> None:
    """The migrations too."""
    assert len(SOURCES) > 150
    for path in SOURCES:
        assert list(_doors(ast.parse(path.read_text()), path.name)) == [], path


DOORS = [
    "import pickle", "from marshal import loads", "import yaml as y", "eval(row)", "builtins.exec(row)",
    "json.loads(row, object_hook=make)", "json.loads(row, cls=Decoder)", "from importlib import import_module",
    "import_string(row)", "JSONField(decoder=Decoder)",
]  # fmt: skip


@each_of(*DOORS)
def test_the_scan_finds_what_it_looks_for(*, door: Any) -> None:
    assert list(_doors(ast.parse(door), "x.py")) != []


def _doors(tree: ast.AST, name: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            module = getattr(node, "module", None)
            imported = {*names, module, *(f"{module}.{one}" for one in names)} if module else set(names)
            if found := {one for one in imported if one and (one in MODULES or one.split(".")[0] in MODULES)}:
                yield f"{node.lineno}: {found}"
            if "import_module" in names and name not in IMPORT_BY_NAME:
                yield f"{node.lineno}: import_module"
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            is_fine = (called == "compile" and ast.unparse(node.func) == "re.compile") or (
                called == "literal_eval" and name in READS_LITERALS
            )
            if called in CALLS and not is_fine:
                yield f"{node.lineno}: {called}()"
            given = {keyword.arg for keyword in node.keywords}
            if (called in ("loads", "load", "JSONDecoder") and given & HOOKS) or "decoder" in given:
                yield f"{node.lineno}: {called}() with a decoder"


# --------------------------------------------------------------------------------------------- how pages are made


def test_no_template_switches_escaping_off_or_holds_a_script() -> None:
    assert len(TEMPLATES) > 10
    for path in TEMPLATES:
        assert find_holes(path.read_text()) == [], path


HOLES = [
    "{{ x|safe }}",
    "{% autoescape off %}",
    "<script>",
    '<script src="https://cdn.example/x.js" defer></script>',
    '<script src="{% static "x.js" %}" defer>evil()</script>',
    "<p onclick=x>",
    "{% filter safe %}",
    "{{ x|join:'y'|safeseq }}",
]


@each_of(*HOLES)
def test_the_scan_of_templates_finds_what_it_looks_for(*, hole: Any) -> None:
    assert find_holes(hole) != []


def find_holes(template: str) -> list[str]:
    """Return what marks text as safe, or runs in a browser. A script that is a file of the site is none."""
    template = re.sub(r'<script src="{% static "[\w/.]+" %}" defer></script>', "", template)
    return re.findall(
        r"\|\s*safe\w*|autoescape\s+off|filter\s+safe|<\s*script|\son\w+\s*=|javascript:|style\s*=", template
    )


def test_no_source_marks_text_as_safe_or_formats_html_with_a_template_that_is_no_constant() -> None:
    for path in SOURCES:
        assert list(marks(ast.parse(path.read_text()))) == [], path


def test_the_scan_of_sources_finds_what_it_looks_for() -> None:
    for hole in (
        "mark_safe(x)",
        "SafeString(x)",
        "format_html(f'<b>{x}</b>')",
        "format_html('<b>' + x)",
        "format_html_join(x, '<b>{}</b>', y)",
        "format_html_join(' ', x, y)",
        "x.__html__()",
    ):
        assert list(marks(ast.parse(hole))) != [], hole


# How many of their first arguments are templates, and stand on the page as they are.
CONSTANTS = {"format_html": 1, "format_html_join": 2}


def marks(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute | ast.alias):
            name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "name", "")
            if name in ("mark_safe", "SafeString", "SafeText", "__html__"):
                yield str(name)
        made = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and not all(
            isinstance(one, ast.Constant) for one in node.args[: CONSTANTS.get(made, 0)]
        ):
            yield f"{node.lineno}: {made}"

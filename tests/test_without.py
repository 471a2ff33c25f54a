"""How a capability is taken out of a copy."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import without
from tests.cut import Project
from tests.faults import all_faults
from tests.floors import BUILT_ON, ROOMS

# By what a module has: what is left of it. ``gone`` and ``Gone`` are imported from the capability.
CUTS = {
    "a = [1, gone]": "a = [1]",
    "a = [('one', 1), ('two', gone)]": "a = [('one', 1)]",
    "a = {1: 2, 3: [gone]}": "a = {1: 2}",
    "a = b(1, key=gone)": "a = b(1)",
    "a = b(1, gone)\nc(a)": "",
    "a = gone or b": "a = b",
    "a = gone and b": "",
    "a = b if gone else c": "a = c",
    "a, b = (1, gone)": "a = 1",
    "if not gone:\n    a()": "if True:\n    a()",
    "if gone:\n    a()\nelse:\n    b()": "b()",
    "def a(b: Gone | None=None):\n    return b": "def a(b: None=None):\n    return b",
    "def a():\n    b()\n    return gone\na()": "",
    "class A(Gone, B):\n    c = 1\n\n    def d(self):\n        return [self.method(), 1]": (
        "class A(B):\n    c = 1\n\n    def d(self):\n        return [1]"
    ),
    "class A:\n    b: Gone\n    c: Gone | None = None": "class A:\n    c: None = None",
    "tables = ['pulse_django_gone', 'other']": "tables = ['other']",
}
ROOM = "def gone(): ...\nclass Gone:\n    def method(self): ..."
GRANTS = "GRANT SELECT ON {} TO a;\nGRANT SELECT ON b, {} TO a;\nALTER TABLE {} SET (fillfactor = 5);"


def test_what_uses_a_capability_goes_and_what_can_do_without_stays(tmp_path: Path) -> None:
    (tmp_path / "pulse_django/room").mkdir(parents=True)
    (tmp_path / "pulse_django/__init__.py").touch()
    user = tmp_path / "pulse_django/user.py"
    with all_faults() as about:
        for before, after in CUTS.items():
            (tmp_path / "pulse_django/room/code.py").write_text(ROOM)
            (tmp_path / "pulse_django/room/models.py").write_text("class Gone(models.Model): ...")
            user.write_text(f"from .room.code import gone, Gone\n{before}\n")
            Project(tmp_path, {"room"}, set()).cut()
            with about(before):
                assert user.read_text().strip() == after
                ast.parse(user.read_text())


def test_tables_of_a_capability_go_from_the_statements_that_name_them() -> None:
    text = without.without_tables(GRANTS.replace("{}", "gone"), {"gone"})
    assert text == "GRANT SELECT ON b TO a;\n"


def test_a_recipe_has_at_most_ten_edits() -> None:
    edits = {name: sum(map(len, room.edits.values())) + len(room.files) for name, room in without.RECIPES.items()}
    assert {name: count for name, count in edits.items() if count > 10} == {}
    assert BUILT_ON.keys() <= without.RECIPES.keys() <= ROOMS.keys()


def test_without_a_name_the_rooms_of_the_last_change_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {("limits", "unique", "expiry"): ["expiry", "unique"], ("queue",): ["chunks"], ("pauses",): ["pauses"]}
    for touched, wanted in rows.items():
        files = [f"pulse_django/{room}/models.py" for room in touched]
        monkeypatch.setattr(without, "_git", lambda command, *_, files=files: files if command == "diff" else [])
        assert without.changed_rooms() == wanted

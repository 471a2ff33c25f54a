"""The comparison keeps its word: each cell about another project has a source, pinned, and nothing is left over.

That its links lead somewhere: tests/test_docs.py.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from tests.faults import each_of

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/explanation/comparison.md"
TEXT = PAGE.read_text()

DEFINITION = re.compile(r'^\[([\w-]+)\]: (\S+)(?: "([^"]+)")?$', re.MULTILINE)
USE = re.compile(r"\[[^\]]+\]\[([\w-]+)\]")
BODY = DEFINITION.sub("", TEXT)
TARGETS = {name: target for name, target, _ in DEFINITION.findall(TEXT)}
TITLES = {name: title for name, _, title in DEFINITION.findall(TEXT)}
# Definitions stand in groups, each below a comment with the name of its project.
GROUPS = {
    name: set(DEFINITION.sub(r"\1", block).split())
    for name, block in re.findall(r"^<!-- (.+) -->\n\n((?:\[.+\n?)+)", TEXT, re.MULTILINE)
}


def tables() -> list[list[list[str]]]:
    """Rows of cells, without the line below the header."""
    blocks = re.findall(r"(?:^\|.+\|\n)+", TEXT, re.MULTILINE)
    return [
        [
            [cell.strip() for cell in line[1:-1].split(" | ")]
            for line in block.splitlines()
            if not line.startswith("|--")
        ]
        for block in blocks
    ]


PEERS = tables()[0][0][2:]
CELLS = [
    (peer, row[0], cell)
    for header, *rows in tables()
    for row in rows
    for peer, cell in zip(header[1:], row[1:], strict=True)
]


def test_all_tables_compare_the_same_projects() -> None:
    assert len(tables()) == 4
    assert len(PEERS) == 9
    for header, *rows in tables():
        assert header[1:] == ["Pulse", *PEERS]
        assert {len(row) for row in rows} == {len(header)}


def test_each_cell_has_a_source_of_its_project() -> None:
    without = [(peer, row) for peer, row, cell in CELLS if not USE.findall(cell)]
    assert without == []
    strangers = [
        (peer, row, name) for peer, row, cell in CELLS for name in USE.findall(cell) if name not in GROUPS[peer]
    ]
    assert strangers == []


def test_what_could_not_be_settled_is_explained() -> None:
    notes = [paragraph for paragraph in BODY.split("\n\n") if re.search(r"^\w+, \*\*\?\*\*:", paragraph)]
    for peer, row, cell in CELLS:
        if "?" in cell:
            short = peer.removesuffix(" (Python)")
            assert any(row.startswith(note.split(",")[0]) and short in note for note in notes), (peer, row)


def test_each_reference_is_defined_once_and_used() -> None:
    repeated = [name for name, count in Counter(name for name, _, _ in DEFINITION.findall(TEXT)).items() if count > 1]
    assert repeated == []
    assert set(USE.findall(BODY)) == set(TARGETS) == set().union(*GROUPS.values())


@each_of(*PEERS)
def test_each_project_has_its_version(*, peer: Any) -> None:
    [(version, name)] = re.findall(rf"^- \*\*{re.escape(peer)}\*\* \[([\d.]+)\]\[([\w-]+)\]:", BODY, re.MULTILINE)
    assert re.fullmatch(rf"https://pypi\.org/project/[\w-]+/{re.escape(version)}/", TARGETS[name])
    releases = {TARGETS[other] for other in GROUPS[peer] if "pypi.org" in TARGETS[other]}
    assert releases == {TARGETS[name]}


def test_a_source_is_pinned() -> None:
    """To a commit; or to a release, with the file and the line in the title. Issues and pull requests have a number."""
    sources = sorted(name for name in TARGETS if "://" in TARGETS[name])
    assert len(sources) > 200
    faults = [f"{name}: {TARGETS[name]}" for name in sources if not is_pinned(name)]
    assert not faults, "\n".join(faults)


def is_pinned(name: str) -> bool:
    target = TARGETS[name]
    if "pypi.org" in target:
        return name.endswith("-version") or bool(re.match(r"[\w./]+:\d+(-\d+)?(, |$)", TITLES[name]))
    repository = r"https://github\.com/[\w.-]+/[\w.-]+"
    pinned = r"(blob/[0-9a-f]{40}/\S+#\S+|tree/[0-9a-f]{40}/\S+|commit/[0-9a-f]{40}|(issues|pull)/\d+)"
    return bool(re.fullmatch(f"{repository}/{pinned}", target))

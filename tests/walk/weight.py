"""Count the lines of code and the files of the package, by folder: ``make weight``.

Blank lines, comments, docstrings, imports and migrations do not count.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.walk.named import report

PACKAGE = Path(__file__).parent.parent.parent / "pulse_django"
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def lines_of_code(source: str) -> int:
    tree = ast.parse(source)
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            left_out |= _lines(node)
        elif isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            left_out |= _lines(node.body[0])
    counted: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            counted |= set(range(token.start[0], token.end[0] + 1))
    text = source.split("\n")  # of a string over several lines, blank ones do not count either
    return sum(1 for line in counted - left_out if text[line - 1].strip())


def weighed(files: Iterable[Path]) -> tuple[Counter[str], Counter[str]]:
    """Return the lines and the number of files, by folder."""
    lines: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for file in files:
        folder = str(file.relative_to(PACKAGE).parent)
        if not folder.startswith("migrations"):
            lines[folder] += lines_of_code(file.read_text())
            counts[folder] += 1
    return lines, counts


def _lines(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


if __name__ == "__main__":
    lines, counts = weighed(PACKAGE.rglob("*.py"))
    for folder, number in lines.most_common():
        print(f"{number:6} lines {counts[folder]:4} files  {folder}")  # noqa: T201 - this is what it is for
    print(f"{lines.total():6} lines {counts.total():4} files")  # noqa: T201
    print(f"\n{report()}")  # noqa: T201

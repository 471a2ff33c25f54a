"""No old name is left: what changed its name has one name (docs/how-to/migrating.md). No text names a missing file."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from pulse_django.health.conditions import known
from pulse_django.queue.words.documentation import TITLES

ROOT = Path(__file__).parent.parent
FOLDERS = ("pulse_django", "tests", "docs", "chaos", "benchmarks", "testproject", "examples")
KINDS = {".py", ".md", ".html", ".js", ".json", ".yml", ".sql", ".po", ".toml"}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# History keeps the words of its time, and the table of the changes has both.
HISTORY = (ROOT / "docs/adr", ROOT / "docs/how-to/migrating.md", Path(__file__))

OLD = (
    r"(?<!read_)\bretry_after\b",
    r"\bBatchClosed\b|\bJobOnItsWay\b|\bNeedNotDone\b",
    r"CHILD_SILENCE|child_silence|CONSOLE_QUEUE|console_queue",
    r"QUEUE_SHARES|queue_shares|SHARE_WEIGHTS|share_weights",
    r'(?<!PRIORITY_)\bAGEING\b|PULSE\[.VERSION.\]|"VERSION":',
    r'--grace\b|"GRACE"|`GRACE`|--max-rss(?!-mib)|\bMAX_RSS\b|\bmax_rss\b',
    r"MAX_LOSSES|max_losses|free_losses|stall_after",
    r"\bGO_ON\b|\"go_on\"|'go_on'|\bOnDead\b|on_dead=\"(hold|cancel)\"",
    r"\bclosed_at\b|\bclosed_until\b|\bclosed_reason\b|\bclose_when\b|limit-closed|limit_closed",
    r"context\.a?hold\(|\.reopen\(|\bfor_\b|\blasting=",
    r"Unique\([^)]*longest=|chunk=\w+, within=|Breaker\([^)]*within=",
    r"\bmasked=|`masked`|@task\([^)]*\b(key|share|search)=",
    r"Limit\([^)]*[( ](running|per_key)=",
    r"pulse_limits (pause|resume|close|open)\b",
    r"from pulse_django import [^\n]*\b(only|never)\b",
    r"\bpulse_health\b|\bpulse_doctor\b(?!_)|pulse_watchdog --(check|repair)",
    r"pulse_django\.(view|change|retry|cancel|schedule|operate)_(job|queue|worker|limiter|schedule)\b",
)


def test_no_text_of_the_package_names_a_file_of_the_documentation() -> None:
    """No wheel has the files. A message names a page by its title (``queue.words.documentation``)."""
    texts = []
    for path in (ROOT / "pulse_django").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        bodies = [node.body[0] for node in nodes if isinstance(node, DOCUMENTED) and node.body]
        docstrings = [one.value for one in bodies if isinstance(one, ast.Expr)]
        strings = [node for node in nodes if isinstance(node, ast.Constant) and node not in docstrings]
        texts += [f"{path}:{one.lineno}" for one in strings if "docs/" in f"{one.value}"]
    assert texts == []
    for path, title in TITLES.items():
        assert (ROOT / "docs" / path).read_text().startswith(f"# {title}\n")
    assert {one.page for one in known(advice=True)} <= TITLES.keys()


def test_no_old_name_is_left() -> None:
    old = re.compile("|".join(f"(?:{one})" for one in OLD))
    found = []
    for path in (one for folder in FOLDERS for one in (ROOT / folder).rglob("*")):
        if path.suffix in KINDS and not any(path.is_relative_to(one) for one in HISTORY):
            found += [f"{path}: {one[0]}" for one in old.finditer(path.read_text())]
    assert found == []


def test_each_old_name_is_found() -> None:
    planted = (
        "retry_after(", "BatchClosed", "CHILD_SILENCE", "QUEUE_SHARES", '"VERSION": "1"', "--grace 5", "stall_after",
        '"go_on"', "closed_until", "context.hold(", 'Unique(on_conflict="debounce", longest=', '@task(key="customer"',
        'Limit("x", running=', "pulse_limits pause x", "from pulse_django import only, task",
        "pulse_doctor --strict", 'has_perm("pulse_django.view_job")',
    )  # fmt: skip
    for pattern, text in zip(OLD, planted, strict=True):
        assert re.search(pattern, text), pattern

"""Writes the reference pages from the code: ``python docs/reference/generate.py``. A test holds them together."""

from __future__ import annotations

import ast
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

import django

django.setup()

from pulse_django import checks, conf, tasks, vital_signs

GENERATED = "<!-- Made by docs/reference/generate.py from the code; change it there. -->\n\n"


def pages() -> dict[str, str]:
    """The text of every page, by file name."""
    return {
        "settings.md": settings_page(),
        "task-options.md": options_page(),
        "checks.md": checks_page(),
        "vital-signs.md": signs_page(),
    }


def settings_page() -> str:
    said = comments_above(conf.__file__, "PulseSettings")
    default = conf.PulseSettings()
    lines = [
        "# Settings\n",
        GENERATED,
        "One dict, `PULSE`, in your settings. Durations are seconds or a `timedelta`.\n",
    ]
    lines += [
        "All problems are told at once by [system checks](checks.md).\n",
        "\n| setting | default | allowed | meaning |\n",
    ]
    lines += ["|---|---|---|---|\n"]
    for field, meaning in said.items():
        allowed = conf._RANGES.get(field)
        span = f"{show(allowed.least)} to {show(allowed.most)}" if allowed else "any"
        lines.append(f"| `{field.upper()}` | {show(getattr(default, field))} | {span} | {meaning} |\n")
    return "".join(lines)


def signs_page() -> str:
    lines = [
        "# Vital signs\n",
        GENERATED,
        "Prometheus puts `pulse_` before each name, OpenTelemetry `pulse.`. Counters and histograms move once a\n",
        "minute, when a worker writes it; gauges are of the present.\n",
    ]
    for title, signs in (("The eight", vital_signs.THE_EIGHT), ("Beside them", vital_signs.BESIDE_THEM)):
        lines += [f"\n## {title}\n", "\n| name | kind | labels | meaning | when it moves |\n"]
        lines += ["|---|---|---|---|---|\n"]
        for one in signs:
            labels = ", ".join(f"`{label}`" for label in one.labels)
            lines.append(f"| `{one.name}` | {one.kind} | {labels} | {one.means} | {one.to_do} |\n")
    return "".join(lines)


def options_page() -> str:
    said = comments_beside(tasks.__file__, "PulseTask")
    given_by_django = {
        "priority": "-100 to 100; higher runs first. Default 0",
        "queue_name": "any name. Default `default`",
        "backend": "the alias in `TASKS`. Default `default`",
        "takes_context": "pass `context` as the first argument",
    }
    in_using = {
        "priority",
        "queue_name",
        "backend",
        "max_attempts",
        "timeout",
        "lease",
        "stall_after",
        "idempotency_key",
    }
    lines = [
        "# Options of a task\n",
        GENERATED,
        "For `@task(...)`; those marked can be given for one call by `.using(...)`.\n",
    ]
    lines += ["\n| option | `.using` | meaning |\n", "|---|---|---|\n"]
    for name, meaning in {**given_by_django, **said}.items():
        if name in ("key", "runs_in"):
            continue  # made from name and run_after
        meaning += "; only in `.using`" if name == "idempotency_key" else ""
        lines.append(f"| `{name}` | {'yes' if name in in_using else ''} | {meaning} |\n")
    lines.append("| `run_after` | yes | not before this instant, or this `timedelta` from now; only in `.using` |\n")
    return "".join(lines)


def checks_page() -> str:
    table = [line.strip() for line in (checks.__doc__ or "").splitlines() if line.startswith("|")]
    rows = sorted(line.replace("``", "`") for line in table[2:])
    body = "\n".join([*table[:2], *rows])
    head = "`manage.py check` runs them; those that ask the server need `--database default`."
    return f"# System checks\n{GENERATED}{head}\n\n{body}\n"


def comments_above(file: str, name: str) -> dict[str, str]:
    lines, fields = class_body(file, name)
    return {field: " ".join(above(lines, line)) for field, line in fields.items()}


def comments_beside(file: str, name: str) -> dict[str, str]:
    lines, fields = class_body(file, name)
    return {field: lines[line - 1].partition("  # ")[2] or "see the how-to pages" for field, line in fields.items()}


def class_body(file: str, name: str) -> tuple[list[str], dict[str, int]]:
    source = Path(file).read_text()
    [body] = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name]
    fields = {
        node.target.id: node.lineno
        for node in body.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return source.splitlines(), fields


def above(lines: list[str], line: int) -> list[str]:
    found: list[str] = []
    while lines[line - 2].strip().startswith("#"):
        found.insert(0, lines[line - 2].strip(" #"))
        line -= 1
    return found


def show(value: Any) -> str:
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        for unit, length in (("d", 86_400), ("h", 3_600)):
            if seconds >= length and seconds % length == 0:
                return f"{seconds / length:g} {unit}"
        return f"{seconds:g} s"
    return "none" if value == () else f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    for page, text in pages().items():
        (ROOT / "docs" / "reference" / page).write_text(text)

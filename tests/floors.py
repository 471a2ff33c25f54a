"""Where each module of the package stands, and what it may import.

A module imports what is on its own floor or on one below. The longest name that fits a module counts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pulse_django

PACKAGE = Path(pulse_django.__file__).parent

KERNEL = ("queue", "run", "worker")
# What puts the parts of rooms together: the options of a task, the settings, and what a handler is given.
COMPOSED = ("queue.words.options", "queue.words.setting_values", "run.context")

# Each room, and the rooms that it may import. ``shards`` is an axis: everything may ask where a job lives.
ROOMS = {
    "expiry": "",
    "encryption": "",
    "on_dead": "encryption",
    "unique": "expiry encryption",
    "pauses": "health",
    "limits": "encryption pauses health metrics",
    "chunks": "limits",
    "amendments": "unique limits encryption expiry",
    "schedules": "encryption limits health",
    "sql_enqueue": "encryption limits on_dead unique",
    "workflows": "encryption health",
    "metrics": "limits health",
    "health": "pauses metrics",
    "citus": "expiry health limits schedules unique workflows",
}
# A room goes with those that it is built on (``tests/without.py``), and can do without the others that it imports.
BUILT_ON = {"limits": "pauses", "schedules": "unique", "sql_enqueue": "unique limits"}

# What holds the statements of verbs, which are all in tests/sql. Only these modules write to the tables of jobs.
VERBS = (
    *("on_dead.hooks", "amendments.amend", "expiry.expire", "limits.claim_limited", "limits.limiters"),
    *(
        "metrics.minute_stats",
        "metrics.traffic",
        "pauses.statements",
        "schedules.tick",
        "schedules.verbs",
        "sql_enqueue.statements",
    ),
    *("shards.ids", "shards.transfer", "unique.admission", "unique.clauses"),
    *("citus.capabilities", "citus.conditions", "citus.dialect", "citus.jobs", "citus.nodes"),
    *("workflows.batch_progress", "workflows.batch_verbs", "workflows.events", "workflows.needs", "workflows.resolve"),
    "workflows.steps",
)


def holds_a_verb(module: str) -> bool:
    return module in VERBS or (module.startswith("queue.") and not module.startswith("queue.words."))


_FLOORS = (
    "apps admin management templatetags pytest_plugin urls",
    "views",
    "console metrics.exporters amendments.page limits.console pauses.page schedules.console workflows.console"
    " shards.page",
    "operations testing immediate limits.command pauses.command shards.command workflows.acts",
    "capabilities citus metrics.minute_recorder chunks.gatherer schedules.loop schedules.tick_threads sql_enqueue.loop"
    " workflows.sweeps",
    "worker",
    "health limits.facts pauses.facts schedules workflows.reading workflows.why shards.fleet metrics.spans"
    " database_checks",
    "limits.claiming limits.after_run limits.conditions limits.why health.conditions.catalogue"
    " health.explanation.reasons health.explanation.facts metrics.history",
    "api backend checks tasks run encryption on_dead unique.keys pauses.pausing limits.keys chunks shards.moving"
    " shards.placement amendments.amending workflows.batches workflows.builder workflows.canvas"
    " workflows.compiling workflows.rewind workflows.calls workflows.resolving workflows.waits workflows.durable_steps"
    " sql_enqueue.task_options",
    "managers models unique.models limits.models pauses.models schedules.models workflows.models shards.models"
    " amendments.models metrics.models on_dead.models sql_enqueue.models",
    "queue expiry unique limits.claim_limited limits.limiters schedules.tick schedules.verbs workflows shards"
    " amendments sql_enqueue",
    "queue.database queue.capability queue.gates queue.job pauses.statements workflows.batch_progress shards.ids"
    " metrics.minute_stats metrics.traffic conf signals",
    "queue.words embedded unique.rule encryption.envelopes limits.rules schedules.definitions schedules.tick_rules"
    " schedules.timings metrics.vital_signs exceptions require_app safe_logging signed_texts",
)
_FLOOR_OF = {name: number for number, names in enumerate(_FLOORS) for name in names.split()}
# The docstrings of these stand for modules on several floors.
_ROOMS_THEMSELVES = ("", "limits", "metrics", "pauses")


class Imported(NamedTuple):
    importer: str
    module: str
    name: str
    is_hint: bool  # for the type checker alone

    def __str__(self) -> str:
        return f"{self.importer} imports {self.name} of {self.module}"


def floor_of(module: str) -> int:
    """Return the number of a module's floor, from the top. The package itself is above all."""
    if module in _ROOMS_THEMSELVES:
        return -1
    names = [module.rsplit(".", cut)[0] for cut in range(module.count(".") + 1)]
    return next(_FLOOR_OF[name] for name in names if name in _FLOOR_OF)


@cache
def modules() -> dict[str, Path]:
    return {_name_of(path): path for path in sorted(PACKAGE.rglob("*.py")) if "migrations" not in path.parts}


@cache
def imports() -> list[Imported]:
    """Return what modules of the package import of one another."""
    return [found for module, path in modules().items() for found in _imports_of(module, path)]


def _name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports_of(module: str, path: Path) -> Iterator[Imported]:
    tree = ast.parse(path.read_text())
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    hints = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        named = (node.module or "").split(".") if node.module else []
        if node.level:
            base = ".".join([one for one in [*package[: len(package) - node.level + 1], *named] if one])
        elif named[0] == "pulse_django":
            base = ".".join(named[1:])
        else:
            continue
        for alias in node.names:
            whole = f"{base}.{alias.name}" if base else alias.name
            yield Imported(module, whole if whole in modules() else base, alias.name, id(node) in hints)

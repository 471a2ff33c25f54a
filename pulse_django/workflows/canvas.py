"""``chain``, ``group`` and ``chord``: workflows without names, for people who know them from Celery."""

from __future__ import annotations

from collections.abc import Container, Iterable

from pulse_django.exceptions import InvalidWorkflow
from pulse_django.run.registry import Task

from .builder import Workflow
from .calls import Call, call_of
from .rules import MAX_NODE_NAME, MOST_NESTED

Part = Call | Task | Workflow


def chain(*parts: Part | Iterable[Part], name: str = "chain") -> Workflow:
    """Return a workflow whose parts run one after another."""
    made = Workflow(name)
    last: list[str] = []
    for part in _flat(parts):
        last = _merged(made, part, last) or last
    return made


def group(*parts: Part | Iterable[Part], name: str = "group") -> Workflow:
    """Return a workflow whose parts run at the same time."""
    made = Workflow(name)
    for part in _flat(parts):
        _merged(made, part, [])
    return made


def chord(parts: Iterable[Part] | Workflow, callback: Part | None = None, *, name: str = "chord") -> Workflow:
    """Return a workflow whose ``callback`` runs when all parts are done."""
    if callback is None:
        raise TypeError("chord(header)(callback) is Celery's: write chord(header, callback).enqueue()")
    together = parts if isinstance(parts, Workflow) else group(*parts)
    return chain(together, callback, name=name)


def _flat(parts: Iterable[Part | Iterable[Part]], depth: int = 0) -> Iterable[Part]:
    if depth > MOST_NESTED:
        raise InvalidWorkflow(f"the parts are nested more than {MOST_NESTED} deep")
    for part in parts:
        if isinstance(part, Call | Task | Workflow):
            yield part
        elif isinstance(part, Iterable) and not isinstance(part, str):
            yield from _flat(part, depth + 1)
        else:
            raise InvalidWorkflow(f"{part!r} is no call of a task. Write my_task.prepare(...)")


def _merged(into: Workflow, part: Part, needs: list[str]) -> list[str]:
    """Add a part that needs all of these. Return the names of its last jobs, which nothing in the part needs."""
    if not isinstance(part, Workflow):
        call = call_of(part)
        name = _free_name(into, call.task.func.__name__)
        into.add(name, call, needs=needs)
        return [name]
    names: dict[str, str] = {}
    taken: set[str] = set()
    for old in part.nodes.values():
        names[old.name] = _free_name(into, old.name, taken)
        taken.add(names[old.name])
    needed = {need for old in part.nodes.values() for need in old.needs.values()}
    for old in part.nodes.values():
        own = {known_as: names[need] if isinstance(need, str) else need for known_as, need in old.needs.items()} or {
            need: need for need in needs
        }
        add = into.add_workflow if isinstance(old.what, Workflow) else into.add
        add(names[old.name], old.what, needs=own, on_need_failed=old.on_need_failed or part.on_need_failed)  # type: ignore[arg-type]
    return [new for old, new in names.items() if old not in needed]


def _free_name(into: Workflow, wanted: str, taken: Container[str] = ()) -> str:
    name, number = wanted[:MAX_NODE_NAME], into.numbers.get(wanted, 1)
    while name in into.nodes or name in taken:
        number += 1
        name = f"{wanted[: MAX_NODE_NAME - 8]} {number}"
    into.numbers[wanted] = number
    return name

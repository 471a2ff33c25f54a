"""Turn a workflow into jobs and needs, and enqueue them in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from secrets import randbits
from typing import Any

from pulse_django.backend import uses_pulse
from pulse_django.exceptions import InvalidWorkflow
from pulse_django.models import Job
from pulse_django.queue.database.transactions import joined
from pulse_django.queue.enqueue import has_key
from pulse_django.run.calls import checked
from pulse_django.run.notify import is_due_soon, wake_workers
from pulse_django.run.registry import DummyBackend, TaskResult
from pulse_django.shards.placement import alias_of_batch, locate

from .batch_verbs import of_batches, seal_batch
from .batches import Batch
from .builder import EnqueuedWorkflow, Workflow, WorkflowNode
from .calls import Call
from .needs import add_needs, refuse_circles
from .resolving import resolve_when_committed
from .rules import MOST_NESTED, Need, OnNeedFailed, Place
from .waits import never_given

# With more needs, a job needs a batch of them instead: one row, and one check for each member that ends.
MOST_EDGES = 50


@dataclass(slots=True)
class _Job:
    """A job of the workflow, before it has an id."""

    node: WorkflowNode
    call: Call
    batch: Batch
    needs: dict[str, object]  # a job or a batch of the workflow, or a need of an earlier one
    on_need_failed: OnNeedFailed
    is_awaited: bool = False
    id: int = 0


@dataclass(slots=True)
class _Part:
    """A workflow that is being enqueued."""

    batch: Batch
    jobs: dict[str, _Job] = field(default_factory=dict)
    parts: dict[str, _Part] = field(default_factory=dict)


def enqueue_workflow(workflow: Workflow, *, parent: Batch | None, using: str | None) -> EnqueuedWorkflow:
    """Enqueue the jobs of a workflow and of those within it."""
    _check(workflow)
    calls = list(_calls_of(workflow))
    if _are_only_recorded(calls):
        for call in calls:
            checked(call.task, call.args, call.kwargs)
        return _recorded(workflow)
    alias = parent.alias if parent is not None else alias_of_batch(using)
    jobs = Job.objects.db_manager(alias)
    outside = list(_needs_from_outside(workflow, alias))
    needed_jobs = [need.job_id for need in outside if need.job_id is not None]
    needed_batches = [need.batch_id for need in outside if need.batch_id is not None]
    if outside and (problem := never_given(alias, jobs=needed_jobs, batches=needed_batches)):
        raise InvalidWorkflow(f"needs: {problem}")
    with joined(alias):
        if parent is not None:
            refuse_circles(jobs, "batch", parent.id, outside)
        part = _opened(workflow, parent, {}, alias)
        all_jobs = list(_jobs_of(part))
        groups = _gathered(all_jobs)
        for one in all_jobs:
            for need in one.needs.values():
                if isinstance(need, _Job):
                    need.is_awaited = True
        places = [Place(one.batch.id, one.node.name, one.is_awaited, bool(one.needs)) for one in all_jobs]
        news = [one.call.new_job(alias, place) for one, place in zip(all_jobs, places, strict=True)]
        ids = jobs.enqueue_many(news) if news else []
        for one, job_id in zip(all_jobs, ids, strict=True):
            one.id = job_id
        # An earlier job with the key of a node takes its place, and waits for nothing in this workflow.
        own = of_batches(jobs, ids, [one.batch.id for one in all_jobs]) if any(map(has_key, news)) else set(ids)
        needs = [
            (one.id, _need(found, name=name, on_need_failed=one.on_need_failed))
            for one in all_jobs
            if one.id in own
            for name, found in one.needs.items()
        ]
        if needs:
            add_needs(jobs, needs, new_jobs=own)
        for batch in (*groups, *_batches_of(part)):
            seal_batch(jobs, batch.id)
    if not news or any(not isinstance(need, _Job) for one in all_jobs for need in one.needs.values()):
        resolve_when_committed(alias)
    queues = {one.call.task.queue_name for one in all_jobs if not one.needs and is_due_soon(one.call.task.run_after)}
    if queues:
        wake_workers(alias, queues)
    return _enqueued(part)


def _calls_of(workflow: Workflow) -> Iterator[Call]:
    for node in workflow.nodes.values():
        yield from _calls_of(node.what) if isinstance(node.what, Workflow) else [node.what]


def _are_only_recorded(calls: list[Call]) -> bool:
    """Return whether Django's DummyBackend gets all of these calls. Refuse calls of other backends than Pulse's."""
    if all(isinstance(call.task.get_backend(), DummyBackend) for call in calls):
        return bool(calls) or not uses_pulse()
    for call in calls:
        call.backend()
    return False


def _recorded(workflow: Workflow) -> EnqueuedWorkflow:
    """Enqueue each job as if it were alone, after those that it needs."""
    job_ids: dict[str, Any] = {}
    workflows: dict[str, EnqueuedWorkflow] = {}
    for name in _sorter(workflow).static_order():
        what = workflow.nodes[name].what
        if isinstance(what, Workflow):
            workflows[name] = _recorded(what)
        else:
            job_ids[name] = what.enqueue().id
    return EnqueuedWorkflow(1 + randbits(62), "(DummyBackend)", job_ids, workflows)


def _check(workflow: Workflow, inside: tuple[Workflow, ...] = ()) -> None:
    """Refuse cycles and unknown names."""
    if workflow in inside:
        raise InvalidWorkflow(f"the workflow {workflow.name!r} contains itself")
    if len(inside) > MOST_NESTED:
        raise InvalidWorkflow(f"the workflows are nested more than {MOST_NESTED} deep. Let a job enqueue the next one")
    for node in workflow.nodes.values():
        for need in node.needs.values():
            if isinstance(need, str) and need not in workflow.nodes:
                raise InvalidWorkflow(f"{node.name!r} needs {need!r}, which is no node of {workflow.name!r}")
        if isinstance(node.what, Workflow):
            _check(node.what, (*inside, workflow))
    try:
        _sorter(workflow).prepare()
    except CycleError as error:
        raise InvalidWorkflow(f"the needs form a cycle: {' needs '.join(reversed(error.args[1]))}") from None


def _sorter(workflow: Workflow) -> TopologicalSorter[str]:
    graph = {
        name: [need for need in one.needs.values() if isinstance(need, str)] for name, one in workflow.nodes.items()
    }
    return TopologicalSorter(graph)


def _opened(workflow: Workflow, parent: Batch | None, outer: Mapping[str, object], alias: str) -> _Part:
    """Open the batch of a workflow. Its jobs that need nothing within it need what the workflow needs: ``outer``."""
    batch = Batch.open(workflow.name, parent=parent, context=workflow.context, kind="workflow", using=alias)
    part = _Part(batch)
    for name in _sorter(workflow).static_order():
        node = workflow.nodes[name]
        needs: dict[str, object] = {
            key: (part.jobs.get(need) or part.parts[need].batch) if isinstance(need, str) else _outside(need, alias)
            for key, need in node.needs.items()
        }
        if not needs:
            needs = dict(outer)
        if isinstance(node.what, Workflow):
            part.parts[name] = _opened(node.what, batch, needs, alias)
        else:
            part.jobs[name] = _Job(node, node.what, batch, needs, node.on_need_failed or workflow.on_need_failed)
    return part


def _outside(need: object, alias: str) -> object:
    """Read a need of an earlier job or batch."""
    if isinstance(need, Batch):
        return need
    if isinstance(need, TaskResult):
        need = need.id
    where = locate(need)
    if where.alias != alias:
        raise InvalidWorkflow(f"job {need} is in database {where.alias!r}, and the workflow in {alias!r}")
    return where.id


def _needs_from_outside(workflow: Workflow, alias: str) -> Iterator[Need]:
    for node in workflow.nodes.values():
        for need in node.needs.values():
            if not isinstance(need, str):
                yield _need(_outside(need, alias))
        if isinstance(node.what, Workflow):
            yield from _needs_from_outside(node.what, alias)


def _jobs_of(part: _Part) -> Iterator[_Job]:
    yield from part.jobs.values()
    for inner in part.parts.values():
        yield from _jobs_of(inner)


def _batches_of(part: _Part) -> Iterator[Batch]:
    for inner in part.parts.values():
        yield from _batches_of(inner)
    yield part.batch


def _gathered(jobs: list[_Job]) -> list[Batch]:
    """Put many jobs that one job needs into a separate batch, and let it need that batch. Return these batches.

    A job is in one batch. Where two jobs need different sets that overlap, the second keeps its single needs.
    """
    home = {id(one): one.batch for one in jobs}
    groups: dict[frozenset[int], Batch] = {}
    for one in jobs:
        many = {name: need for name, need in one.needs.items() if isinstance(need, _Job)}
        if len(many) <= MOST_EDGES:
            continue
        key = frozenset(id(need) for need in many.values())
        if key not in groups:
            if any(need.batch is not home[id(need)] or need.batch is not one.batch for need in many.values()):
                continue
            groups[key] = Batch.open(f"needed by {one.node.name}"[:200], parent=one.batch, kind="group")
            for need in many.values():
                need.batch = groups[key]
        one.needs = {name: need for name, need in one.needs.items() if name not in many} | {"": groups[key]}
    return list(groups.values())


def _need(found: object, **how: Any) -> Need:
    if isinstance(found, Batch):
        return Need(batch_id=found.id, **how)
    return Need(job_id=found.id if isinstance(found, _Job) else int(str(found)), **how)


def _enqueued(part: _Part) -> EnqueuedWorkflow:
    job_ids = {name: one.id for name, one in part.jobs.items()}
    workflows = {name: _enqueued(inner) for name, inner in part.parts.items()}
    return EnqueuedWorkflow(part.batch.id, part.batch.alias, job_ids, workflows)

"""Workflows: jobs with names and needs, which are enqueued together, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pulse_django.exceptions import InvalidWorkflow
from pulse_django.queue.words.options import Text
from pulse_django.queue.words.other_queues import OF_BATCHES, OF_CALLS, no_call, no_pipe, says_instead
from pulse_django.run.registry import Task, TaskResult

from .batches import NAME, Batch
from .calls import Call, call_of
from .rules import MAX_NODE_NAME, OnNeedFailed

NODE_NAME = Text(MAX_NODE_NAME)


@dataclass(frozen=True, slots=True)
class WorkflowNode:
    """A job or a workflow within a workflow."""

    name: str
    what: Call | Workflow
    needs: Mapping[str, object]  # by the name of the result in the handler
    on_need_failed: OnNeedFailed | None  # None: as the workflow says


class Workflow:
    """Jobs that need each other."""

    if not TYPE_CHECKING:
        __getattr__, __or__, __call__ = says_instead(OF_CALLS), no_pipe, no_call(".enqueue()")

    def __init__(
        self,
        name: str = "workflow",
        *,
        context: Mapping[str, Any] | None = None,
        on_need_failed: OnNeedFailed | str = OnNeedFailed.WAIT,
    ) -> None:
        """``on_need_failed`` decides what happens to a job if one that it needs becomes a dead letter."""
        NAME.check("name", name)
        self.name = name
        self.context = context
        self.on_need_failed = _on_need_failed(on_need_failed)
        self.nodes: dict[str, WorkflowNode] = {}
        self.numbers: dict[str, int] = {}  # the last node of each task name that a chain or a group used

    def add(
        self,
        name: str,
        call: Call | Task,
        *,
        needs: Iterable[object] | Mapping[str, object] = (),
        on_need_failed: OnNeedFailed | str | None = None,
    ) -> Workflow:
        """Add a job. It runs when everything that it needs is done.

        ``needs`` are names of this workflow, results of jobs that were enqueued before, or batches. The handler finds
        their results in ``context.results``, by name. A mapping gives other names.
        """
        return self._add(name, call_of(call), needs, on_need_failed)

    def add_workflow(
        self,
        name: str,
        workflow: Workflow,
        *,
        needs: Iterable[object] | Mapping[str, object] = (),
        on_need_failed: OnNeedFailed | str | None = None,
    ) -> Workflow:
        """Add a workflow as a part of this one. Its jobs begin when everything that it needs is done."""
        if not isinstance(workflow, Workflow):
            raise InvalidWorkflow(f"{name}: {workflow!r} is no Workflow")
        return self._add(name, workflow, needs, on_need_failed)

    def _add(
        self, name: str, what: Call | Workflow, needs: Iterable[object] | Mapping[str, object], on_need_failed: object
    ) -> Workflow:
        NODE_NAME.check("name", name)
        if name in self.nodes:
            raise InvalidWorkflow(f"the workflow {self.name!r} has a node {name!r} already")
        self.nodes[name] = WorkflowNode(
            name, what, _named(name, needs), None if on_need_failed is None else _on_need_failed(on_need_failed)
        )
        return self

    def enqueue(self, *, parent: Batch | None = None, using: str | None = None) -> EnqueuedWorkflow:
        """Enqueue all of its jobs, in the transaction of the caller: all or none.

        ``parent``: a batch that does not end before this workflow.
        """
        from .compiling import enqueue_workflow

        return enqueue_workflow(self, parent=parent, using=using)

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"<Workflow {self.name!r}: {len(self.nodes)} nodes>"


@dataclass(frozen=True, slots=True)
class EnqueuedWorkflow(Batch):
    """The batch of a workflow, and the ids of its jobs by name."""

    if not TYPE_CHECKING:
        get = no_call(OF_BATCHES["join"])

    job_ids: Mapping[str, int]
    workflows: Mapping[str, EnqueuedWorkflow]


def _on_need_failed(given: object) -> OnNeedFailed:
    try:
        return OnNeedFailed(given)  # type: ignore[arg-type]
    except ValueError:
        known = ", ".join(repr(one.value) for one in OnNeedFailed)
        raise InvalidWorkflow(f"on_need_failed: {given!r} is none of {known}") from None


def _named(node: str, needs: Iterable[object] | Mapping[str, object]) -> dict[str, object]:
    if isinstance(needs, str | TaskResult | Batch | int):
        raise InvalidWorkflow(f"{node}: needs={needs!r} is a single need; write needs=[...]")
    named = dict(needs) if isinstance(needs, Mapping) else {str(getattr(one, "id", one)): one for one in needs}
    for name in named:
        NODE_NAME.check("needs", name)
    return named

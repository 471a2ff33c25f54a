"""With which versions jobs died: what the worker of their last attempt said, or else the release of that time."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from pulse_django.models import Attempt, Release, Worker
from pulse_django.store.releases import version_of


def versions_of(alias: str, job_ids: Collection[int]) -> dict[int, str]:
    """Return the versions by job, as text. A worker that stopped long ago is forgotten; releases are kept longer."""
    attempts = Attempt.objects.using(alias).filter(job_id__in=list(job_ids)).order_by("number")
    latest = {job_id: (worker, at) for job_id, worker, at in attempts.values_list("job_id", "worker", "finished_at")}
    starts = {job_id: _start_of(worker) for job_id, (worker, _) in latest.items()}
    wanted = {name for name, _ in starts.values()}
    workers = Worker.objects.using(alias).filter(name__in=wanted).only("name", "boot_id", "versions")
    said = {(worker.name, worker.boot_id): version_of(worker.versions) for worker in workers}
    return {job_id: said.get(start) or _release_at(alias, latest[job_id][1]) for job_id, start in starts.items()}


def _start_of(holder: str) -> tuple[str, str]:
    """Return the name and the boot id of a worker: its children number the latter."""
    name, boot_id, _ = (*holder.rsplit(":", 2), "", "")[:3]
    return name, boot_id.partition(".")[0]


def _release_at(alias: str, at: datetime) -> str:
    before = Release.objects.using(alias).filter(seen_at__lte=at).order_by("-seen_at", "-id")
    return before.values_list("version", flat=True).first() or ""

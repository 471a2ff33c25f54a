"""With which versions jobs died: what the worker of their last attempt said of itself, as long as it is known."""

from __future__ import annotations

from collections.abc import Collection

from pulse_django.models import Attempt, Worker


def versions_of(alias: str, job_ids: Collection[int]) -> dict[int, str]:
    """Return the versions by job, as text. A worker that stopped long ago is forgotten."""
    attempts = Attempt.objects.using(alias).filter(job_id__in=list(job_ids)).order_by("number")
    latest = dict(attempts.values_list("job_id", "worker"))
    names = {job_id: _start_of(holder) for job_id, holder in latest.items()}
    wanted = {name for name, _ in names.values()}
    workers = Worker.objects.using(alias).filter(name__in=wanted).only("name", "boot_id", "versions")
    said = {(worker.name, worker.boot_id): worker.versions for worker in workers}
    return {job_id: _in_words(said[start]) for job_id, start in names.items() if start in said}


def _start_of(holder: str) -> tuple[str, str]:
    """Return the name and the boot id of a worker: its children number the latter."""
    name, boot_id, _ = (*holder.rsplit(":", 2), "", "")[:3]
    return name, boot_id.partition(".")[0]


def _in_words(versions: object) -> str:
    known = versions if isinstance(versions, dict) else {}
    return ", ".join(f"{name} {version}" for name, version in sorted(known.items()))

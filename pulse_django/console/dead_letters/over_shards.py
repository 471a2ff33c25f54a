"""Groups of dead letters over all shards: the same error is one group, wherever its dead letters are.

A single database answers as it is asked. Of several, each names the groups that it knows; those of the page are chosen
among all names, and then each shard tells of them. Dead letters stay in the shard in which they died. Their place in a
group is the same over all shards: the instant at which they died, by the clocks of their servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pulse_django.console.shards import Shards
from pulse_django.models import Job

from . import groups
from .groups import (
    GROUPS_ON_A_PAGE,
    LATEST,
    LETTERS_ON_A_PAGE,
    MOST_GROUPS,
    ErrorGroup,
    Groups,
    Letter,
    Place,
    versions_of,
)


def groups_in(everywhere: Shards, *, page: int = 0) -> Groups:
    """Find what kills jobs, the latest seen first."""
    if not everywhere.are_several:
        [alone] = everywhere.ask(lambda alias: groups.groups(alias, page=page)).values()
        return alone
    answers = everywhere.ask(groups.names).values()
    seen: dict[str, int] = {}
    for known, _ in answers:
        for fingerprint, at in known.items():
            seen[fingerprint] = max(at, seen.get(fingerprint, at))
    ordered = sorted(seen, key=lambda fingerprint: (-seen[fingerprint], fingerprint))[: 2 * MOST_GROUPS]
    begin = page * GROUPS_ON_A_PAGE
    wanted = ordered[begin : begin + GROUPS_ON_A_PAGE]
    parts = everywhere.ask(lambda alias: groups.these(alias, wanted)).values() if wanted else ()
    found = [_joined([part[one] for part in parts if one in part]) for one in wanted]
    return Groups(
        groups=tuple(one for one in found if one is not None),
        is_partial=any(is_partial for _, is_partial in answers) or len(seen) > len(ordered),
        has_older=len(ordered) > begin + GROUPS_ON_A_PAGE,
    )


def group_in(everywhere: Shards, fingerprint: str) -> ErrorGroup | None:
    """Tell of one group; None: no shard that answered holds a dead letter of it."""
    found = everywhere.ask(lambda alias: groups.group(alias, fingerprint)).values()
    return _joined([one for one in found if one is not None])


def versions_in(everywhere: Shards, group: ErrorGroup) -> tuple[str, str]:
    """Return with which versions the first and the latest dead letter of a group died; empty: it is not known."""
    ids = [group.first_id, group.latest_id]
    found: dict[int, str] = {}
    for some in everywhere.ask(lambda alias: versions_of(alias, ids)).values():
        found |= some
    return found.get(group.first_id, ""), found.get(group.latest_id, "")


def _joined(parts: Sequence[ErrorGroup]) -> ErrorGroup | None:
    """Return one group of what several shards hold of it."""
    if len(parts) < 2:
        return next(iter(parts), None)
    latest = max(parts, key=lambda one: (one.last_seen, one.newest.id))
    earliest = min(parts, key=lambda one: (one.first_seen, one.first_id))
    counted = sum(min(one.letters, one.counted) for one in parts)
    return replace(
        latest,
        letters=counted + any(one.has_more for one in parts),
        counted=counted,
        hours=tuple(map(sum, zip(*(one.hours for one in parts), strict=True))),
        tasks=tuple(sorted({task for one in parts for task in one.tasks})),
        first_seen=earliest.first_seen,
        first_id=earliest.first_id,
    )


def letters_in(everywhere: Shards, fingerprint: str, *, before: Place = LATEST) -> tuple[list[Letter], bool]:
    """Return dead letters of a group, the latest first, and whether there are older ones."""
    answers = everywhere.ask(lambda alias: groups.letters(alias, fingerprint, before=before)).values()
    found = sorted(
        (one for some, _ in answers for one in some), key=lambda one: (one.finished_at, one.id), reverse=True
    )
    has_older = any(is_more for _, is_more in answers) or len(found) > LETTERS_ON_A_PAGE
    return found[:LETTERS_ON_A_PAGE], has_older


def among(everywhere: Shards, fingerprint: str, job_ids: Sequence[int], *, until: Place = LATEST) -> list[Job]:
    """Return those of these jobs that are dead letters of the group, and died no later than ``until``."""
    answers = everywhere.ask(lambda alias: groups.among(alias, fingerprint, job_ids, until=until))
    return [job for jobs in answers.values() for job in jobs]

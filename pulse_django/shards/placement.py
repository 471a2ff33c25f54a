"""Choose the shard of a new job.

A job that a handler enqueues goes to the shard of the handler's job. ``PULSE["PLACEMENT"]`` decides for other jobs. The
jobs of a unique key, an idempotency key or a limit must all be in one shard, which the same setting decides. A job that
would have to be in two shards is refused.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, router

from pulse_django import conf
from pulse_django.exceptions import InvalidJob, JobIsMoving
from pulse_django.limits.keys import key_source_of, lane_key_of_call, limiter_name
from pulse_django.limits.rules import Limit
from pulse_django.models import Departure, Job
from pulse_django.queue.words.bounds import DEFAULT_QUEUE
from pulse_django.queue.words.display import shown
from pulse_django.queue.words.documentation import page
from pulse_django.queue.words.job_ids import job_id_of, job_ids_of, shard_number_of
from pulse_django.queue.words.lane_keys import key_of as key_of_lane
from pulse_django.queue.words.lane_keys import limiter_of_queue
from pulse_django.run.registry import Task, changed, imported, key_of, registry
from pulse_django.run.run import Run, current_run
from pulse_django.unique.keys import idempotency_key_of, key_of_call

Placement = Callable[[str, str, str | None], str]


class Anchor(NamedTuple):
    """A reason for which a job must be in one shard with other jobs."""

    what: str
    alias: str
    key: str | None = None


def by_queue(queue: str, task: str, key: str | None) -> str:
    """Place jobs in the shard that ``QUEUE_SHARDS`` has for their queue, or else in the router's database."""
    return _shards_of(queue)[0]


def by_key(queue: str, task: str, key: str | None) -> str:
    """Spread the jobs of a queue over the shards in ``QUEUE_SHARDS``, with all jobs of a key in one shard.

    A shard that is added to the list gets its share of the keys from the others. No other key changes its shard.
    """
    listed = _shards_of(queue)
    if len(listed) == 1:
        return listed[0]
    if key is None:
        return random.choice(listed)  # noqa: S311 - no secret
    return max(listed, key=lambda alias: hashlib.sha256(f"{shards().get(alias)} {key}".encode()).digest())


def where_the_data_is(queue: str, task: str, key: str | None) -> str:
    """Place a job in the database with an open transaction. Do as ``by_queue`` if there is none, or several."""
    is_open = [alias for alias in shards() if connections[alias].in_atomic_block]
    return is_open[0] if len(is_open) == 1 else by_queue(queue, task, key)


READY: Mapping[str, Placement] = {one.__name__: one for one in (by_queue, by_key, where_the_data_is)}


def _shards_of(queue: str) -> Sequence[str]:
    return conf.current().queue_shards.get(queue) or (routers_alias(),)


def placement() -> Placement:
    """Return the project's placement function, or raise ImproperlyConfigured."""
    name = conf.current().placement
    return READY.get(name) or _imported(name)


@lru_cache(maxsize=4)
def _imported(name: str) -> Placement:
    found: Placement = imported("PLACEMENT", name)
    if not callable(found):
        raise ImproperlyConfigured(f'PULSE["PLACEMENT"] names {name!r}, which is not callable')
    return found


def placed(queue: str, task: str, key: str | None) -> str:
    """Call the project's placement function, and check its result."""
    if not has_several_shards():
        return routers_alias()
    return checked_shard(placement()(queue, task, key), "placement")


def shard_of_call(
    task: Task, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, using: str | None = None
) -> str:
    """Return the shard of a job with these arguments. Raise InvalidJob if it would have to be in two."""
    named = getattr(task, "database", None) if using is None else using
    if not has_several_shards():
        return alias_of_jobs(named)
    anchors = list(_anchors(task, args, kwargs or {}))
    run = current_run()
    if named is not None:
        place = Anchor(f"using={named!r}", checked_shard(named))
    elif run is not None:
        place = Anchor("its parent", alias_of_run(run))
    elif anchors:
        place = anchors[0]
    else:
        return placed(task.queue_name, key_of(task), _soft_key(task, args, kwargs or {}))
    _refuse_several(task, place, anchors)
    return place.alias


def _refuse_several(task: Task, place: Anchor, anchors: Sequence[Anchor]) -> None:
    """Refuse a job that would be in two shards, also if its keys only happen to have the same shard."""
    for other in anchors:
        if other.alias != place.alias:
            advice = f"see {page('how-to/shards.md')}"
            if place.what == "its parent":
                how = f".using(database={other.alias!r})"
                advice = f"{how} enqueues it there, outside the handler's transaction and without a parent"
            raise InvalidJob(
                f"{key_of(task)}: {place.what} needs shard {place.alias!r}, and {other.what} needs shard "
                f"{other.alias!r}. A job is in one shard; {advice}"
            )
        is_spread = conf.current().placement == by_key.__name__ and len(_shards_of(task.queue_name)) > 1
        if other.key != anchors[0].key and is_spread:
            raise InvalidJob(
                f"{key_of(task)}: its queue {task.queue_name!r} is spread over shards by one key, and "
                f"{anchors[0].what} and {other.what} are two. Use one of them, or one shard for the queue"
            )


def shard_of_schedule(name: str, task: str, queue: str | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the shard that fires a schedule. All of its jobs are stored there."""
    if not has_several_shards():
        return alias_of_jobs()
    found = registry.get(task)
    if found is None:
        return placed(queue or DEFAULT_QUEUE, task, name)
    if queue is not None:
        found = changed(found, {"queue_name": queue})
    anchors = list(_anchors(found, args, kwargs))
    return anchors[0].alias if anchors else placed(found.queue_name, task, name)


def alias_of_batch(using: str | None = None) -> str:
    """Return the shard of a new batch and all of its jobs. It does not depend on a queue or a key."""
    is_by_data = conf.current().placement == where_the_data_is.__name__
    if using is not None or current_run() is not None or not (is_by_data and has_several_shards()):
        return alias_of_jobs(using)
    return where_the_data_is(DEFAULT_QUEUE, "", None)


def _anchors(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Anchor]:
    """Yield the reasons for which the job must be in one shard with other jobs."""
    name = key_of(task)
    if (given := getattr(task, "idempotency_key", None)) is not None:
        key = idempotency_key_of(task, given)
        yield Anchor("its idempotency key", placed(task.queue_name, name, key), key)
    if (unique := key_of_call(task, args, kwargs)) is not None:
        queue = (registry.get(name) or task).queue_name
        yield Anchor("its unique key", placed(queue, name, unique.key), unique.key)
    limit: Limit | None = getattr(task, "limit", None)
    if limit is not None:
        limiter = limiter_name(task, limit)
        queue = (_first_of_limit(limit) or registry.get(name) or task).queue_name
        yield Anchor(f"the limit {limiter!r}", *_placed_limiter(limit, limiter, queue, task, args, kwargs))
    if (whole := conf.current().queue_limits.get(task.queue_name)) is not None:
        limiter, queue = limiter_of_queue(task.queue_name), task.queue_name
        yield Anchor(f"the limit of queue {queue!r}", *_placed_limiter(whole, limiter, queue, task, args, kwargs))


def _first_of_limit(limit: Limit) -> Task | None:
    """Return the first task with this limit, which decides its shard. It must be the same in every process."""
    if not limit.name:
        return None
    registry.discover()
    known = (registry.get(name) for name in registry)
    return next((one for one in known if getattr(getattr(one, "limit", None), "name", None) == limit.name), None)


def _placed_limiter(
    limit: Limit, limiter: str, queue: str, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[str, str]:
    """Return the shard and the key of a limit. The key decides if the limit is only for each key, else the name."""
    counts_all = limit.max_running is not None or limit.rate is not None or not limit.needs_key
    key = limiter if counts_all else _soft_key(task, args, kwargs)
    key = limiter if key is None else key
    if conf.current().placement == where_the_data_is.__name__:  # a limit is not data, and needs one shard
        return checked_shard(by_queue(queue, limiter, key), "placement"), key
    return placed(queue, limiter, key), key


def _soft_key(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return the key of the job's share or limit."""
    return key_of_lane(lane_key_of_call(task, args, kwargs)) if key_source_of(task) is not None else None


# The database of the jobs of a call. All decisions are made here.
#
# ``using=`` of the call comes first, then the shard of the job whose id is given, then the shard of the job whose
# handler makes the call, then the router's database. New jobs are placed by the functions above.
#
# An id is unique over all shards, and contains the shard that gave it. A moved job keeps its id. So with several
# shards, the shard that gave the id is searched first, and then the others. Calls wait for a job that is being moved.


OUR_APP = "pulse_django"
LONGEST_WAIT, BETWEEN_LOOKS = 1.0, 0.05  # seconds, for a job that is being moved


class Located(NamedTuple):
    """Ids of jobs, and the database that stores all of them."""

    alias: str
    ids: frozenset[int]

    @property
    def id(self) -> int:
        [only] = self.ids
        return only


def routers_alias() -> str:
    """Return the database to which the router sends writes of jobs. It is the default for calls without a job."""
    if not router.routers:
        return DEFAULT_DB_ALIAS
    alias: str = router.db_for_write(Job)
    return alias


def shards() -> Mapping[str, int]:
    """Return the databases that store jobs, with their numbers."""
    return conf.current().shards or {routers_alias(): 0}


def has_several_shards() -> bool:
    return len(conf.current().shards) > 1


def alias_of_jobs(using: str | None = None) -> str:
    """Return the database for a call without a job id."""
    if using is not None:
        return checked_shard(using)
    run = current_run()
    return routers_alias() if run is None else alias_of_run(run)


def aliases_of_jobs(using: str | None = None) -> list[str]:
    """Return the databases for a call that concerns all shards, unless it names one."""
    return list(shards()) if using is None else [checked_shard(using)]


def alias_of_run(run: Run) -> str:
    """Return the database of the job of a run."""
    return run.alias or routers_alias()


def alias_of_id(row_id: int, using: str | None = None) -> str:
    """Return the shard that gave an id, for rows that never move, as a batch."""
    if using is not None or not has_several_shards():
        return alias_of_jobs(using)
    number = shard_number_of(row_id)
    return next((alias for alias, one in shards().items() if one == number), routers_alias())


def located_by_shard(values: Iterable[object], using: str | None = None) -> list[Located]:
    """Parse job ids, and find the database of each. A job that is in none gets the shard that gave its id."""
    ids = job_ids_of(values)
    if using is not None or not has_several_shards():
        return [Located(alias_of_jobs(using), ids)]
    born: dict[str, set[int]] = {}
    for one in ids:
        born.setdefault(alias_of_id(one), set()).add(one)
    homes = {alias: _present(alias, some) for alias, some in born.items()}
    if missing := ids.difference(*homes.values()):
        for alias, found in _search(missing).items():
            homes[alias] = homes.get(alias, set()) | found
    for one in ids.difference(*homes.values()):
        homes.setdefault(alias_of_id(one), set()).add(one)
    return [Located(alias, frozenset(some)) for alias, some in homes.items() if some] or [
        Located(alias_of_jobs(), frozenset())
    ]


def locate(value: object, using: str | None = None) -> Located:
    """Parse the id of one job, and find its database."""
    [found] = located_by_shard([job_id_of(value)], using)
    return found


def _search(ids: Iterable[int]) -> dict[str, set[int]]:
    """Search jobs in all shards, and wait for jobs that are moving between two of them."""
    homes: dict[str, set[int]] = {alias: set() for alias in shards()}
    missing, travelling = set(ids), set(ids)
    until = time.monotonic() + LONGEST_WAIT
    while missing and travelling:
        for alias in homes:
            homes[alias] |= _present(alias, missing)
        missing = missing.difference(*homes.values())
        travelling = {
            one
            for alias in (homes if missing else ())
            for one in Departure.objects.using(alias).filter(job_id__in=list(missing)).values_list("job_id", flat=True)
        }
        if travelling and time.monotonic() > until:
            first, *more = sorted(travelling)
            named = f"job {first} and {len(more)} more" if more else f"job {first}"
            raise JobIsMoving(
                f"{named} left one shard and did not arrive in another: a move was interrupted. "
                "Nothing was done. Finish the move with pulse_shards move"
            )
        if travelling:
            time.sleep(BETWEEN_LOOKS)
    # A job may have arrived in a shard after that shard was searched.
    for alias in homes if missing else ():
        homes[alias] |= _present(alias, missing)
    return homes


def _present(alias: str, ids: Iterable[int]) -> set[int]:
    ids = list(ids)
    return set(Job.objects.using(alias).filter(pk__in=ids).values_list("pk", flat=True)) if ids else set()


def checked_shard(alias: object, said_by: str = "database") -> str:
    """Refuse a database that does not exist, or does not store jobs."""
    if not isinstance(alias, str) or alias not in connections:
        raise InvalidJob(f"{said_by}: {shown(alias)} is not in DATABASES")
    if not router.allow_migrate_model(alias, Job):
        raise InvalidJob(f"{said_by}: the router does not allow jobs in {alias!r}")
    if alias not in shards():
        raise InvalidJob(f"{said_by}: PULSE['SHARDS'] does not name {alias!r}")
    return alias


def why_not_one_transaction(alias: str) -> str:
    """Return why one transaction cannot span the jobs and the project's data. Empty: it can."""
    others = set()
    models = [one for one in apps.get_models() if one._meta.app_label != OUR_APP]
    # The project's models. If it has none, models of Django's apps, such as users.
    for model in [one for one in models if not one.__module__.startswith("django.")] or models:
        if (data := router.db_for_write(model)) == alias:
            return ""
        others.add(data)
    if not others:
        return ""
    return (
        f"the jobs are stored in {alias!r}, but the project's models are written to "
        f"{', '.join(map(repr, sorted(others)))}"
    )


def alias_of_completion(run: Run, using: str | None) -> str:
    """Return the database for a transaction that completes the job of a run. Raise if it cannot span the data."""
    alias = alias_of_run(run)
    if using is None and (problem := why_not_one_transaction(alias)):
        raise ImproperlyConfigured(
            f"{problem}: one transaction cannot span both. To write only to {alias!r}, use "
            f"context.atomic(using={alias!r})."
        )
    if using not in (None, alias):
        raise ImproperlyConfigured(
            f"the job is stored in {alias!r}: a transaction on {using!r} cannot complete it. Omit using=."
        )
    return alias

"""Which shard a new job is stored in.

A job of a handler stays in the shard of the handler's job. Any other goes where ``PULSE["PLACEMENT"]`` says. What
counts over jobs needs all of them in one shard: a unique key, an idempotency key, a limit. Each has a shard of its own,
which the same setting decides, and a job that would have to be in two is refused.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from pulse_django import conf
from pulse_django.exceptions import InvalidJob
from pulse_django.words.limiting import Limit, limiter_of_queue
from pulse_django.words.limiting import key_of as key_of_lane
from pulse_django.words.limits import DEFAULT_QUEUE

from .databases import alias_of_jobs, alias_of_run, checked_shard, has_several_shards, routers_alias, shards
from .lane_keys import key_source_of, lane_key_of_call, limiter_name
from .registry import Task, changed, imported, key_of, registry
from .run import current_run
from .unique_keys import idempotency_key_of, key_of_call

Placement = Callable[[str, str, str | None], str]


class Anchor(NamedTuple):
    """What has to be in one shard with other jobs."""

    what: str
    alias: str
    key: str | None = None


def by_queue(queue: str, task: str, key: str | None) -> str:
    """Place jobs where ``QUEUE_SHARDS`` says of their queue, and those of other queues in the router's database."""
    return _shards_of(queue)[0]


def by_key(queue: str, task: str, key: str | None) -> str:
    """Spread the jobs of a queue over the shards that ``QUEUE_SHARDS`` lists: those of one key in one shard.

    If a shard is added to the list, it takes its share of the keys from the others, and no other key changes its shard.
    """
    listed = _shards_of(queue)
    if len(listed) == 1:
        return listed[0]
    if key is None:
        return random.choice(listed)  # noqa: S311 - no secret
    return max(listed, key=lambda alias: hashlib.sha256(f"{shards().get(alias)} {key}".encode()).digest())


def where_the_data_is(queue: str, task: str, key: str | None) -> str:
    """Place a job in the database of the transaction that is open. If none is, or several, do as ``by_queue``."""
    is_open = [alias for alias in shards() if connections[alias].in_atomic_block]
    return is_open[0] if len(is_open) == 1 else by_queue(queue, task, key)


READY: Mapping[str, Placement] = {one.__name__: one for one in (by_queue, by_key, where_the_data_is)}


def _shards_of(queue: str) -> Sequence[str]:
    return conf.current().queue_shards.get(queue) or (routers_alias(),)


def placement() -> Placement:
    """Return the function that the project chose, or raise ImproperlyConfigured."""
    name = conf.current().placement
    return READY.get(name) or _imported(name)


@lru_cache(maxsize=4)
def _imported(name: str) -> Placement:
    found: Placement = imported("PLACEMENT", name)
    if not callable(found):
        raise ImproperlyConfigured(f'PULSE["PLACEMENT"] names {name!r}, which is not callable')
    return found


def placed(queue: str, task: str, key: str | None) -> str:
    """Ask the placement of the project, and check its answer."""
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
    """Refuse a job that would be in two shards, or would be if the hashes of its keys were others."""
    for other in anchors:
        if other.alias != place.alias:
            raise InvalidJob(
                f"{key_of(task)}: {place.what} needs shard {place.alias!r}, and {other.what} needs shard "
                f"{other.alias!r}. A job is in one shard; {_advice(place.what, other.alias)}"
            )
        if other.key != anchors[0].key and conf.current().placement == by_key.__name__ and _is_spread(task.queue_name):
            raise InvalidJob(
                f"{key_of(task)}: its queue {task.queue_name!r} is spread over shards by one key, and "
                f"{anchors[0].what} and {other.what} are two. Give the job one of them, or the queue one shard"
            )


def _is_spread(queue: str) -> bool:
    return len(_shards_of(queue)) > 1


def shard_of_schedule(name: str, task: str, queue: str | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the shard that fires a schedule: all of its jobs are stored there."""
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
    """Return the shard of a new batch, and so of all of its jobs. No queue and no key says it."""
    is_by_data = conf.current().placement == where_the_data_is.__name__
    if using is not None or current_run() is not None or not (is_by_data and has_several_shards()):
        return alias_of_jobs(using)
    return where_the_data_is(DEFAULT_QUEUE, "", None)


def _advice(first: str, other: str) -> str:
    if first == "its parent":
        return f".using(database={other!r}) enqueues it there, outside of the handler's transaction and without parent"
    return "see docs/how-to/shards.md"


def _anchors(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Anchor]:
    """Yield what has to be in one shard with other jobs."""
    name = key_of(task)
    if (given := getattr(task, "idempotency_key", None)) is not None:
        key = idempotency_key_of(task, given)
        yield Anchor("its idempotency key", placed(task.queue_name, name, key), key)
    if (unique := key_of_call(task, args, kwargs)) is not None:
        yield Anchor("its unique key", placed(_declared_queue(task), name, unique.key), unique.key)
    limit: Limit | None = getattr(task, "limit", None)
    if limit is not None:
        limiter = limiter_name(task, limit)
        alias, key = _shard_of_limit(task, limit, limiter, args, kwargs)
        yield Anchor(f"the limit {limiter!r}", alias, key)
    if (whole := conf.current().queue_limits.get(task.queue_name)) is not None:
        limiter = limiter_of_queue(task.queue_name)
        alias, key = _placed_limiter(whole, limiter, task, args, kwargs)
        yield Anchor(f"the limit of queue {task.queue_name!r}", alias, key)


def _shard_of_limit(
    task: Task, limit: Limit, limiter: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[str, str]:
    """Tasks that share a limit share its shard: that of the first of them, which must be the same in every process."""
    if limit.name:
        registry.discover()
    sharing = (registry.get(name) for name in registry) if limit.name else ()
    first = next((one for one in sharing if one is not None and _has_limiter(one, limiter)), registry.get(key_of(task)))
    return _placed_limiter(limit, limiter, task, args, kwargs, first)


def _has_limiter(task: Task, limiter: str) -> bool:
    limit: Limit | None = getattr(task, "limit", None)
    return limit is not None and limiter_name(task, limit) == limiter


def _placed_limiter(
    limit: Limit,
    limiter: str,
    task: Task,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    first: Task | None = None,
) -> tuple[str, str]:
    """What is limited for each key alone is in the shard of its key, and all else in that of the limit's name."""
    queue = task.queue_name if first is None else first.queue_name
    counts_all = limit.running is not None or limit.rate is not None or not limit.needs_key
    key = limiter if counts_all else _soft_key(task, args, kwargs)
    key = limiter if key is None else key
    if conf.current().placement == where_the_data_is.__name__:  # a limit is no data: it has one shard
        return checked_shard(by_queue(queue, limiter, key), "placement"), key
    return placed(queue, limiter, key), key


def _declared_queue(task: Task) -> str:
    declared = registry.get(key_of(task))
    return task.queue_name if declared is None else str(declared.queue_name)


def _soft_key(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return the key of the job's lane: its share's, or its limit's."""
    return key_of_lane(lane_key_of_call(task, args, kwargs)) if key_source_of(task) is not None else None

"""What happened to limits, and whether it was allowed: the judge of ``chaos.limits``.

A trigger writes a line for each lease that begins or ends, and numbers them. A claim takes its number while it holds
the lock, and after it has counted; a settle takes its number before it commits. So if the lines in their order never
show more leases than a limit, there never were more.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from pulse_django.limits.rules import Limit, Rate
from pulse_django.queue.words.lane_keys import limiter_of, limiter_of_queue

SCHEMA = """
CREATE TABLE chaos_lease (
    n bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL, began_at timestamptz, lane_key text NOT NULL,
    queue text NOT NULL, job_id bigint NOT NULL, step int NOT NULL, weight int NOT NULL
);
CREATE TABLE chaos_late (job_id bigint NOT NULL);
CREATE FUNCTION chaos_lease() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF OLD.status <> 'RUNNING' AND NEW.status = 'RUNNING' THEN
            INSERT INTO chaos_lease (at, began_at, lane_key, queue, job_id, step, weight)
            VALUES (clock_timestamp(), NEW.started_at, NEW.lane_key, NEW.queue, NEW.id, 1, NEW.weight);
        ELSIF OLD.status = 'RUNNING' AND NEW.status <> 'RUNNING' THEN
            INSERT INTO chaos_lease (at, lane_key, queue, job_id, step, weight)
            VALUES (clock_timestamp(), OLD.lane_key, OLD.queue, OLD.id, -1, OLD.weight);
        END IF;
    ELSIF OLD.status = 'RUNNING' THEN
        INSERT INTO chaos_lease (at, lane_key, queue, job_id, step, weight)
            VALUES (clock_timestamp(), OLD.lane_key, OLD.queue, OLD.id, -1, OLD.weight);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER chaos_lease AFTER UPDATE OR DELETE ON pulse_django_job_hot
    FOR EACH ROW EXECUTE FUNCTION chaos_lease();
"""
LATE = "SELECT job_id FROM chaos_late"  # handlers that began when their leases were over
HISTORY = "SELECT at, began_at, lane_key, step, queue, weight FROM chaos_lease ORDER BY n"


NO_LIMITS: Mapping[str, Limit] = MappingProxyType({})


class Line(NamedTuple):
    at: datetime  # by the server's clock
    began_at: datetime | None  # of a lease that begins, as the ledger has it
    lane_key: str
    step: int  # 1: it begins; -1: it ends
    queue: str = ""
    weight: int = 1


@dataclass
class Verdict:
    broken: list[str] = field(default_factory=list)
    most: dict[str, int] = field(default_factory=dict)  # the weights of leases at once, or starts in a window, by scope
    used: dict[str, float] = field(default_factory=dict)  # mean share of ``running`` that was in use
    begun: Counter[str] = field(default_factory=Counter)


def judge(
    lines: Sequence[Line],
    limits: Iterable[Limit],
    is_unsure: Callable[[datetime], bool],
    queues: Mapping[str, Limit] = NO_LIMITS,
) -> Verdict:
    """Compare what happened with the limits, and with those of queues.

    Windows of a rate in which the clock was set are left out.
    """
    verdict = Verdict()
    by_name = {limit.name: limit for limit in limits}
    by_name |= {limiter_of_queue(queue): limit for queue, limit in queues.items()}
    held, most = _counted(lines)
    for scope, number in most.items():
        limit = by_name.get(limiter_of(scope))
        allowed = None if limit is None else limit.max_running if scope in by_name else limit.max_running_per_key
        verdict.most[f"{scope} at once"] = number
        if allowed is not None and number > allowed:
            verdict.broken.append(f"{scope}: {number} leases at once, {allowed} are allowed")
    for name, limit in by_name.items():
        if limit.max_running:
            verdict.used[name] = held[name] / limit.max_running
    for scope, starts in _starts(lines).items():
        limit = by_name.get(limiter_of(scope))
        rate = None if limit is None else limit.rate if scope in by_name else limit.rate_per_key
        verdict.begun[limiter_of(scope)] += len(starts) if scope == limiter_of(scope) else 0
        if rate is not None:
            number = _most_in_window([at for at in starts if not is_unsure(at)], rate)
            verdict.most[f"{scope} in a window"] = number
            if number > rate.n:
                verdict.broken.append(f"{scope}: {number} starts within {rate.per}, {rate.n} are allowed")
    return verdict


def _scopes(line: Line) -> set[str]:
    of_queue = {limiter_of_queue(line.queue)} if line.lane_key and line.queue else set()
    return ({line.lane_key, limiter_of(line.lane_key)} | of_queue) - {""}


def _counted(lines: Sequence[Line]) -> tuple[dict[str, float], dict[str, int]]:
    """Return what the leases of each scope weighed, in the mean and at most."""
    now, most, since = Counter[str](), Counter[str](), dict[str, float]()
    area: dict[str, float] = defaultdict(float)
    clock, last = 0.0, lines[0].at if lines else None
    for line in lines:
        clock += max(0.0, (line.at - last).total_seconds()) if last is not None else 0.0  # it may be set back
        last = line.at
        for scope in _scopes(line):
            area[scope] += now[scope] * (clock - since.get(scope, clock))
            since[scope] = clock
            now[scope] += line.step * line.weight
            most[scope] = max(most[scope], now[scope])
    span = max(clock, 0.001)
    return defaultdict(float, {scope: value / span for scope, value in area.items()}), most


def _starts(lines: Sequence[Line]) -> dict[str, list[datetime]]:
    found: dict[str, list[datetime]] = defaultdict(list)
    for line in lines:
        if line.began_at is not None:
            for scope in _scopes(line):
                found[scope].append(line.began_at)
    return found


def _most_in_window(starts: Iterable[datetime], rate: Rate) -> int:
    window, most = deque[datetime](), 0
    for at in sorted(starts):
        window.append(at)
        while at - window[0] >= rate.per:
            window.popleft()
        most = max(most, len(window))
    return most

"""Explain why a limit lets no job start, for ``explain()``: the numbers of a claim, read without its locks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.utils.translation import gettext_lazy as _

from pulse_django.health.explanation.facts import JobFacts
from pulse_django.health.explanation.reasons import COUNTED, Reason, counted
from pulse_django.queue.capability import Why
from pulse_django.queue.database.read_only import rows
from pulse_django.queue.words.lane_keys import limiter_of_queue

from . import claim_limited
from .keys import limiters_of_claim

HOLDERS = 10  # jobs that are named

# Counted like in the claim, but without its locks, so it may be outdated at once.
_HELD = """
    SELECT
        COALESCE(pg_catalog.sum(weight), 0)::bigint AS n,
        COALESCE((pg_catalog.array_agg(id ORDER BY token))[1:%(holders)s], '{{}}') AS ids
    FROM (
        SELECT id, token, weight FROM pulse_django_job_hot
        WHERE status::text = 'RUNNING' AND NOT (lane_key::text = '') AND {where}
        ORDER BY token
        LIMIT %(most)s
    ) AS held"""
_OF_LIMITER = """(pg_catalog.split_part((lane_key)::text, ':', 1) COLLATE "C") = %(limiter)s::text"""
_OF_QUEUE = "queue::text = %(queue)s::text"


def _rate(rate: str, tokens: str, names: dict[str, str]) -> str:
    """Return the columns of a rate: its tokens, the time of the next whole one, and the seconds between two."""
    when, every = (claim_limited.NEXT_IN.format(tokens=one, **names) for one in (tokens, "0::float8"))
    return f"CASE WHEN {rate} IS NOT NULL THEN {tokens} END, {when}, {every}"


_LIMIT = f"""
WITH {claim_limited.LIMITER.replace("%s", "%(limiter)s")},
clock AS MATERIALIZED (SELECT statement_timestamp() AS at),
overall AS MATERIALIZED (
    SELECT {claim_limited.TOKENS.format(at="clock.at", **claim_limited.OVERALL)} AS tokens
    FROM limiter
    CROSS JOIN clock
    LEFT JOIN pulse_django_bucket AS bucket ON limiter.rate IS NOT NULL AND bucket.scope::text = limiter.name
),
keyed AS MATERIALIZED (
    SELECT {claim_limited.TOKENS.format(at="clock.at", **claim_limited.OF_KEY)} AS tokens
    FROM limiter
    CROSS JOIN clock
    LEFT JOIN pulse_django_bucket AS bucket ON limiter.key_rate IS NOT NULL AND bucket.scope::text = %(lane_key)s::text
)
SELECT
    limiter.running, held.n, held.ids, limiter.per_key, of_key.n, of_key.ids,
    {_rate("limiter.rate", "overall.tokens", claim_limited.OVERALL)},
    {_rate("limiter.key_rate", "keyed.tokens", claim_limited.OF_KEY)},
    limiter.paused_until > clock.at, limiter.paused_until,
    (SELECT pause_reason FROM pulse_django_limiter AS row WHERE row.name::text = limiter.name),
    limiter.half_open
FROM limiter
CROSS JOIN clock
CROSS JOIN overall
CROSS JOIN keyed
CROSS JOIN ({_HELD.format(where="{of_whom}")}) AS held
CROSS JOIN ({_HELD.format(where="lane_key::text = %(lane_key)s::text")}) AS of_key
"""  # noqa: S608 - made of constants


class LimitState(NamedTuple):
    """A limiter as a claim sees it now. A number that is None: no such limit."""

    name: str
    key: str | None  # of the job, if it has one in this limit
    running: int | None
    held: int  # the sum of the weights of jobs
    held_by: list[int]
    per_key: int | None
    held_of_key: int
    key_held_by: list[int]
    tokens: float | None
    next_in: float | None  # seconds until the rate allows one more start; zero or less: now
    token_every: float | None  # seconds
    key_tokens: float | None
    key_next_in: float | None
    key_token_every: float | None
    is_paused: bool | None
    paused_until: datetime | None
    pause_reason: str | None
    is_half_open: bool

    def reasons(self, job: JobFacts) -> Iterator[Reason]:
        """Yield the reasons why the job cannot start."""
        names = {"limit": self.name, "key": self.key}
        full = {"held": counted(self.held), "held_by": self.held_by} | names
        if self.is_paused:
            yield Reason(code="limit-paused", until=self.paused_until, facts={"reason": self.pause_reason} | names)
        if self.is_half_open and self.held:
            yield Reason(code="limit-half-open", facts=full)
        if self.running is not None:
            yield from _full("limit-full", job.weight, self.held, full | {"most": self.running})
        if self.per_key is not None:
            of_key = {"held": counted(self.held_of_key), "most": self.per_key, "held_by": self.key_held_by}
            yield from _full("key-full", job.weight, self.held_of_key, names | of_key)
        for code, tokens, next_in in (
            ("rate", self.tokens, self.next_in), ("key-rate", self.key_tokens, self.key_next_in)
        ):  # fmt: skip
            if tokens is not None and tokens < 1 and next_in is not None:
                yield Reason(code=code, until=job.now + timedelta(seconds=next_in), facts=names | {"wait": next_in})

    def adds(self, before: int, run_seconds: float | None) -> tuple[float, float] | None:
        """Return how many seconds a job waits for those before it in its lane, at least and at most."""
        least = 0.0
        for tokens, every in ((self.tokens, self.token_every), (self.key_tokens, self.key_token_every)):
            if tokens is not None and every is not None:
                least = max(least, (before + 1 - tokens) * every)
        most = least
        for number, held in ((self.running, self.held), (self.per_key, self.held_of_key)):
            if number is None or held + before < number:
                continue
            if run_seconds is None:
                return None
            rounds = (held + before) // number
            most = max(most, rounds * run_seconds)
        return least, most


def _full(code: str, weight: int, held: int, facts: dict[str, Any]) -> Iterator[Reason]:
    """Explain a number that does not allow a job of this weight."""
    if weight > 1:
        facts = facts | {"weight": weight}
    if weight > facts["most"]:
        yield Reason(code="too-heavy", facts=facts | {"held_by": []})
    elif held + weight > facts["most"]:
        yield Reason(code=code, facts=facts)


def limits(alias: str, found: JobFacts) -> list[LimitState]:
    """Read the limits that apply to the job: those of its task and of its queue."""
    return [_limit(alias, found, limiter) for limiter in limiters_of_claim(found.queue, found.lane_key)]


def _limit(alias: str, found: JobFacts, limiter: str) -> LimitState:
    params = {
        "limiter": limiter, "lane_key": found.lane_key, "queue": found.queue, "most": COUNTED + 1,
        "holders": HOLDERS,
    }  # fmt: skip
    is_of_queue = limiter == limiter_of_queue(found.queue)
    of_whom = _OF_QUEUE if is_of_queue else _OF_LIMITER
    [row] = rows(alias, _LIMIT.replace("{of_whom}", of_whom), params)
    return LimitState(limiter, None if is_of_queue else found.key, *row)


class WhyOfLimits(Why):
    sentences = {
        "limit-paused": _("The limit %(limit)s is paused until %(until)s."),
        "limit-half-open": _(
            "The limit %(limit)s lets one job at a time run to see whether it succeeds, and one runs."
        ),
        "limit-full": _("The limit %(limit)s is full: %(held)s of %(most)s jobs are running."),
        "key-full": _("The limit %(limit)s is full for the key %(key)s: %(held)s of %(most)s jobs are running."),
        "too-heavy": _("It weighs %(weight)s, and the limit %(limit)s allows %(most)s. Raise the limit."),
        "rate": _("The limit %(limit)s has used up its rate. The next job may start in %(wait)s."),
        "key-rate": _(
            "The limit %(limit)s has used up its rate for the key %(key)s. The next job may start in %(wait)s."
        ),
    }
    stuck = ("too-heavy",)
    closed = ("limit-paused",)
    unknown = ("limit-half-open",)

    def bounds(self, alias: str, job: JobFacts) -> list[LimitState]:
        """Read the limits that apply to the job: those of its task and of its queue."""
        return limits(alias, job)

"""Send what only goes to Citus: what a plain server can answer, and what of it needs the tables of Citus."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from django.db import ProgrammingError, connections

from pulse_django.citus import dialect, nodes
from pulse_django.citus.conditions import LookingOnCitus
from pulse_django.health import conditions
from pulse_django.health.conditions import server
from pulse_django.limits.rules import Limit, Rate
from pulse_django.models import Job, Limiter
from pulse_django.queue.database.transactions import run_joined
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lane_keys import lane_key
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Identity
from pulse_django.unique.rule import Unique, UniqueKey
from tests.citus import statements_of_citus
from tests.citus.test_same_as_plain import STORIES, written

ALIAS = "default"


def on_citus() -> None:
    with statements_of_citus():
        Job.objects.enqueue(NewJob(task="t", unique=UniqueKey.of("on citus", Unique(per=timedelta(hours=1)))))
        lane = Lane("default", 0, lane_key("on-citus", None))
        limit = Limit("on-citus", max_running=2, rate=Rate(2, timedelta(minutes=1)))
        Limiter.objects.declare_new("project", {limit.name: limit.numbers()})
        Job.objects.enqueue(NewJob(task="t", lane_key=lane.key))
        Job.objects.enqueue(NewJob(task="t"))
        assert Job.objects.claim(Identity("me"), lanes=[Lane("default", 0)])
        assert Job.objects.claim_limited(Identity("me"), "on-citus", [lane], {lane: 1}, limit=1).claims
    assert dialect.has_one_level(connections[ALIAS]) is False
    assert not nodes.has_citus(ALIAS)
    nodes.schema_of(ALIAS)
    assert not nodes.leads_to_a_node(ALIAS)
    run_joined(ALIAS, nodes._MAKE_TOKENS, [])
    run_joined(ALIAS, nodes._OWNER, [])
    for question, params in (*ONLY_ON_CITUS, *ON_A_NODE):
        with suppress(ProgrammingError):
            run_joined(ALIAS, question, params)
    for name in ("long-transaction", "table-bloat", "day-missing"):
        list(LookingOnCitus(ALIAS).looks()[name](ALIAS, conditions.Limits()))


TOKENS = "pulse_django_token"
# These name functions and tables of Citus, or answer with no rows.
ONLY_ON_CITUS = (
    (nodes._PLACE, []),
    (nodes._NODES, []),
    (nodes._IS_A_NODE, []),
    (nodes._ASK, ["node-1", 5432, "SELECT 1"]),
    (nodes._DISTRIBUTE, []),
    (nodes._MOVE, ["node-1", 5432]),
    (nodes._RAISE.format(tokens=TOKENS, owner="postgres", floor=1), []),
)
# What a node is asked, in a statement of ours.
ON_A_NODE = (
    (nodes._POSITION.format(tokens=TOKENS), []),
    (nodes._AS_JSON.format(sql="SELECT 'key', 'words'"), []),
    (server.BLOAT.format(whose="schemaname::text = %(schema)s"), conditions.Limits().params() | {"schema": "public"}),
)


def in_several_statements() -> None:
    for story in STORIES:
        written(story, on_citus=True)


CITUS = [on_citus, in_several_statements]

"""Send what only goes to Citus: what a plain server can answer, and what of it needs the tables of Citus."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from unittest import mock

from django.db import ProgrammingError, connections

from pulse_django.health import conditions
from pulse_django.health.conditions import server
from pulse_django.limits.rules import Limit, Rate
from pulse_django.models import Job, Limiter
from pulse_django.queue.database.transactions import run_joined
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lane_keys import lane_key
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Identity
from pulse_django.shards import citus, citus_nodes
from pulse_django.unique.rule import Unique, UniqueKey
from tests.shards.test_one_task import STORIES, written

ALIAS = "default"


def on_citus() -> None:
    with (
        mock.patch("pulse_django.queue.claim.is_for_citus", return_value=True),
        mock.patch("pulse_django.limits.claim_limited.is_for_citus", return_value=True),
        mock.patch("pulse_django.unique.admission.is_for_citus", return_value=True),
    ):
        Job.objects.enqueue(NewJob(task="t", unique=UniqueKey.of("on citus", Unique(per=timedelta(hours=1)))))
        lane = Lane("default", 0, lane_key("on-citus", None))
        limit = Limit("on-citus", max_running=2, rate=Rate(2, timedelta(minutes=1)))
        Limiter.objects.declare_new("project", {limit.name: limit.numbers()})
        Job.objects.enqueue(NewJob(task="t", lane_key=lane.key))
        Job.objects.enqueue(NewJob(task="t"))
        assert Job.objects.claim(Identity("me"), lanes=[Lane("default", 0)])
        assert Job.objects.claim_limited(Identity("me"), "on-citus", [lane], {lane: 1}, limit=1).claims
    citus.forget()
    assert not citus.is_for_citus(connections[ALIAS])
    citus_nodes.schema_of(ALIAS)
    assert not citus_nodes.leads_to_a_node(ALIAS)
    run_joined(ALIAS, citus_nodes._MAKE_TOKENS, [])
    run_joined(ALIAS, citus_nodes._OWNER, [])
    for question, params in (*ONLY_ON_CITUS, *ON_A_NODE):
        with suppress(ProgrammingError):
            run_joined(ALIAS, question, params)
    for name in ("long-transaction", "table-bloat", "day-missing"):
        look = conditions.named(name).look_on_citus
        assert look is not None
        list(look(ALIAS, conditions.Limits()))


TOKENS = "pulse_django_token"
# These name functions and tables of Citus, or answer with no rows.
ONLY_ON_CITUS = (
    (citus_nodes._PLACE, []),
    (citus_nodes._NODES, []),
    (citus_nodes._IS_A_NODE, []),
    (citus_nodes._ASK, ["node-1", 5432, "SELECT 1"]),
    (citus_nodes._DISTRIBUTE, []),
    (citus_nodes._MOVE, ["node-1", 5432]),
    (citus_nodes._RAISE.format(tokens=TOKENS, owner="postgres", floor=1), []),
)
# What a node is asked, in a statement of ours.
ON_A_NODE = (
    (citus_nodes._POSITION.format(tokens=TOKENS), []),
    (citus_nodes._AS_JSON.format(sql="SELECT 'key', 'words'"), []),
    (server._BLOAT.format(whose=server._IN_SCHEMA), conditions.Limits().params() | {"schema": "public"}),
)


def in_several_statements() -> None:
    for story in STORIES:
        written(story, on_citus=True)


CITUS = [on_citus, in_several_statements]

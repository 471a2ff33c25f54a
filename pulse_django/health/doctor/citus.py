"""How a cluster of Citus serves this database: its nodes, where the tables are, and what a commit is worth there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from django.db import connections, transaction
from psycopg.sql import Identifier

from pulse_django import conf

from .advice import STATEMENT_TIMEOUT, Advice, good, hint, rows, warning

MOST_APART = 1  # schemas that one node may have more than another
DURABLE = ("on", "remote_apply")

_IS_HERE = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus'::name)"
_NODES = """
SELECT
    node.nodeid, node.groupid, pg_catalog.concat(node.nodename, ':', node.nodeport), node.shouldhaveshards,
    node.groupid = here.groupid
FROM pg_dist_node AS node
CROSS JOIN pg_dist_local_group AS here
WHERE node.isactive AND node.noderole::text = 'primary'
ORDER BY node.groupid
"""
# Each schema that holds tables of Pulse, and the group of the node that it is on.
_SHARDS = """
SELECT dist.schemaid::regnamespace::text, place.groupid, part.logicalrelid::oid = 'pulse_django_job_hot'::regclass::oid
FROM pg_dist_schema AS dist
JOIN pg_dist_partition AS part ON part.colocationid = dist.colocationid
JOIN pg_class AS c ON c.oid = part.logicalrelid::oid
JOIN pg_dist_shard AS shard ON shard.logicalrelid::oid = c.oid
JOIN pg_dist_placement AS place ON place.shardid = shard.shardid
WHERE c.relname = 'pulse_django_job_hot'::name
ORDER BY dist.schemaid
"""


class NodeFacts(NamedTuple):
    id: int
    group: int  # 0 is the coordinator's
    address: str
    holds_shards: bool
    is_here: bool  # this connection leads to it


class Shard(NamedTuple):
    schema: str
    group: int
    is_ours: bool


def on_citus(alias: str, settings: conf.PulseSettings) -> Iterator[Advice]:
    [(is_here,)] = rows(alias, _IS_HERE)
    if not is_here:
        return
    nodes = [NodeFacts._make(row) for row in rows(alias, _NODES)]
    shards = [Shard._make(row) for row in rows(alias, _SHARDS)]
    yield of_the_node(nodes)
    yield of_the_shard(nodes, shards)
    yield of_the_balance(nodes, shards)
    yield from of_commits(nodes, _synchronous_commit(alias))  # last: a node that does not answer is waited for


def _synchronous_commit(alias: str) -> dict[int, tuple[bool, str]]:
    """Ask each node. Return by the number of the node whether it answered, and what it said."""
    ask = Identifier("pg_catalog", "run_command_on_all_nodes")
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        cursor.execute(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'")
        cursor.callproc(ask, ["SHOW synchronous_commit"])  # type: ignore[arg-type]  # the stubs know only str
        return {number: (succeeded, str(said)) for number, succeeded, said in cursor.fetchall()}


def of_the_node(nodes: Sequence[NodeFacts]) -> Advice:
    here = next((node for node in nodes if node.is_here), None)
    if here is None:
        what = "this connection leads to a server that is not among the nodes of its cluster"
    else:
        what = f"this connection leads to {here.address}, {'a worker node' if here.group else 'the coordinator'}"
    what = f"{what}; the cluster has {len(nodes)} nodes"
    if here is not None and here.group:
        return warning(
            "citus",
            what,
            "It draws ids in a range of its own, which do not say their shard: workers refuse it (E017).",
            "Connect to the coordinator.",
        )
    why = "The coordinator knows where every schema is, and sends statements there."
    return good("citus", what, why)


def of_the_shard(nodes: Sequence[NodeFacts], shards: Sequence[Shard]) -> Advice:
    ours = next((shard for shard in shards if shard.is_ours), None)
    if ours is None:
        return hint(
            "shard",
            "the tables of this database are not distributed",
            "They are all on one node, so the other nodes do none of the work.",
            "Give the tables a schema of their own, and let pulse_shards add distribute it while no worker runs.",
        )
    return good(
        "shard",
        f"schema {ours.schema} is on {_address(nodes, ours.group)}",
        "All statements on these tables run on that node alone.",
    )


def of_the_balance(nodes: Sequence[NodeFacts], shards: Sequence[Shard]) -> Advice:
    found = Counter(shard.group for shard in shards)
    held = {**{node.group: 0 for node in nodes if node.holds_shards}, **found}
    what = ", ".join(f"{count} on {_address(nodes, group)}" for group, count in sorted(held.items()))
    what = f"schemas with jobs: {what or 'none'}"
    if held and max(held.values()) - min(held.values()) > MOST_APART:
        return hint(
            "balance",
            what,
            "The node with most schemas reaches its limit while others have time to spare.",
            "Move one: pulse_shards move --shard ... --node ... It lets fencing tokens go on rising, which "
            "citus_schema_move alone does not. Workers may go on meanwhile.",
        )
    return good("balance", what, "No node has much more to do than another.")


def of_commits(nodes: Sequence[NodeFacts], said: dict[int, tuple[bool, str]]) -> Iterator[Advice]:
    """Judge what each node answered to SHOW synchronous_commit."""
    topic, addresses = "synchronous_commit", {node.id: node.address for node in nodes}
    weak = {number: value for number, (succeeded, value) in said.items() if succeeded and value not in DURABLE}
    silent = [addresses.get(number, f"node {number}") for number, (succeeded, _) in said.items() if not succeeded]
    if silent:
        yield warning(
            topic,
            f"no answer from {', '.join(silent)}",
            "Statements on the schemas of a node that is away fail until it is back.",
            "Start the node, or let its standby take its place.",
        )
    if weak:
        listed = ", ".join(f"{value} on {addresses.get(number, f'node {number}')}" for number, value in weak.items())
        yield warning(
            topic,
            listed,
            "Citus does not pass a session's synchronous_commit on, so the setting of the node decides whether a "
            "commit that was answered survives a crash.",
            "ALTER SYSTEM SET synchronous_commit = 'on' on those nodes, and reload.",
        )
    if not weak and not silent:
        why = "A commit that was answered survives a crash of the node."
        yield good(topic, "on for every node", why)


def _address(nodes: Sequence[NodeFacts], group: int) -> str:
    return next((node.address for node in nodes if node.group == group), f"group {group}")

"""Advice about a Citus cluster: its nodes, the location of the tables, and the durability of commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from django.db import connections, transaction
from psycopg.sql import Identifier

from pulse_django import conf

from .advice import STATEMENT_TIMEOUT, Advice, good, hint, rows, warning

MOST_APART = 1  # the allowed difference in schemas between two nodes
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
# Each schema with tables of Pulse, and the group of its node.
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
    group: int  # 0: the coordinator
    address: str
    holds_shards: bool
    is_here: bool  # this connection is to this node


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
    yield from of_commits(nodes, _synchronous_commit(alias))  # last, because it waits for nodes that do not answer


def _synchronous_commit(alias: str) -> dict[int, tuple[bool, str]]:
    """Query each node. Return by the number of the node whether it answered, and its answer."""
    ask = Identifier("pg_catalog", "run_command_on_all_nodes")
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        cursor.execute(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'")
        cursor.callproc(ask, ["SHOW synchronous_commit"])  # type: ignore[arg-type]  # the stubs know only str
        return {number: (succeeded, str(said)) for number, succeeded, said in cursor.fetchall()}


def of_the_node(nodes: Sequence[NodeFacts]) -> Advice:
    here = next((node for node in nodes if node.is_here), None)
    if here is None:
        what = "this connection is to a server that is not a node of its cluster"
    else:
        what = f"this connection is to {here.address}, {'a worker node' if here.group else 'the coordinator'}"
    what = f"{what}; the cluster has {len(nodes)} nodes"
    if here is not None and here.group:
        return warning(
            "citus",
            what,
            "A worker node creates ids in its own range, without the number of the shard: workers refuse it (E017).",
            "Connect to the coordinator.",
        )
    why = "The coordinator knows the node of every schema, and sends statements there."
    return good("citus", what, why)


def of_the_shard(nodes: Sequence[NodeFacts], shards: Sequence[Shard]) -> Advice:
    ours = next((shard for shard in shards if shard.is_ours), None)
    if ours is None:
        return hint(
            "shard",
            "the tables of this database are not distributed",
            "All tables are on one node, so the other nodes do no work.",
            "Create a schema for the tables, and distribute it with pulse_shards add while no worker runs.",
        )
    return good(
        "shard",
        f"schema {ours.schema} is on {_address(nodes, ours.group)}",
        "All statements on these tables run on this node.",
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
            "The node with most schemas reaches its limit while other nodes have free capacity.",
            "Move one: pulse_shards move --shard ... --node ... It keeps fencing tokens rising, which "
            "citus_schema_move alone does not. Workers may run during the move.",
        )
    return good("balance", what, "All nodes have about the same number of schemas.")


def of_commits(nodes: Sequence[NodeFacts], said: dict[int, tuple[bool, str]]) -> Iterator[Advice]:
    """Evaluate the answers of the nodes to SHOW synchronous_commit."""
    topic, addresses = "synchronous_commit", {node.id: node.address for node in nodes}
    weak = {number: value for number, (succeeded, value) in said.items() if succeeded and value not in DURABLE}
    silent = [addresses.get(number, f"node {number}") for number, (succeeded, _) in said.items() if not succeeded]
    if silent:
        yield warning(
            topic,
            f"no answer from {', '.join(silent)}",
            "Statements on the schemas of an unavailable node fail until it is back.",
            "Start the node, or promote its standby.",
        )
    if weak:
        listed = ", ".join(f"{value} on {addresses.get(number, f'node {number}')}" for number, value in weak.items())
        yield warning(
            topic,
            listed,
            "Citus does not pass on the synchronous_commit of a session, so the setting of the node decides whether a "
            "confirmed commit survives a crash.",
            "ALTER SYSTEM SET synchronous_commit = 'on' on those nodes, and reload.",
        )
    if not weak and not silent:
        why = "A confirmed commit survives a crash of the node."
        yield good(topic, "on for every node", why)


def _address(nodes: Sequence[NodeFacts], group: int) -> str:
    return next((node.address for node in nodes if node.group == group), f"group {group}")

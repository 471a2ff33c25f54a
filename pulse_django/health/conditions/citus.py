"""Advice about a Citus cluster: its nodes, the location of the tables, and the durability of commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pulse_django.queue.database.transactions import run_joined

from .catalogue import Condition, Severity, Subject

MOST_APART = 1  # the allowed difference in schemas between two nodes
DURABLE = ("on", "remote_apply")

_NODES = """
SELECT nodeid, groupid, pg_catalog.concat(nodename, ':', nodeport), shouldhaveshards
FROM pg_dist_node
WHERE isactive AND noderole::text = 'primary'
ORDER BY groupid
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
_COMMITS = "SELECT nodeid, success, result FROM pg_catalog.run_command_on_all_nodes('SHOW synchronous_commit')"


class NodeFacts(NamedTuple):
    id: int
    group: int  # 0: the coordinator
    address: str
    holds_shards: bool


class Shard(NamedTuple):
    schema: str
    group: int
    is_ours: bool


def _nodes(alias: str) -> list[NodeFacts]:
    return [NodeFacts._make(row) for row in run_joined(alias, _NODES, [])]


def _shards(alias: str) -> list[Shard]:
    return [Shard._make(row) for row in run_joined(alias, _SHARDS, [])]


def _answers(alias: str) -> Iterable[tuple[int, bool, str]]:
    return run_joined(alias, _COMMITS, [])


def of_the_shard(nodes: Sequence[NodeFacts], shards: Sequence[Shard]) -> Subject:
    ours = next((shard for shard in shards if shard.is_ours), None)
    if ours is None:
        return Subject("schema", "the tables of this database are not distributed")
    where = _address(nodes, ours.group)
    return Subject(None, f"schema {ours.schema} is on {where}; the cluster has {len(nodes)} nodes")


def of_the_balance(nodes: Sequence[NodeFacts], shards: Sequence[Shard]) -> Subject:
    found = Counter(shard.group for shard in shards)
    held = {**{node.group: 0 for node in nodes if node.holds_shards}, **found}
    what = ", ".join(f"{count} on {_address(nodes, group)}" for group, count in sorted(held.items()))
    is_uneven = held and max(held.values()) - min(held.values()) > MOST_APART
    return Subject("nodes" if is_uneven else None, f"schemas with jobs: {what or 'none'}")


def of_commits(nodes: Sequence[NodeFacts], said: Iterable[tuple[int, bool, str]]) -> Iterator[Subject]:
    """Yield the nodes whose answer to SHOW synchronous_commit is a problem."""
    addresses = {node.id: node.address for node in nodes}
    for number, succeeded, value in said:
        if not succeeded or value not in DURABLE:
            yield Subject(addresses.get(number, f"node {number}"), value if succeeded else "no answer")


def _address(nodes: Sequence[NodeFacts], group: int) -> str:
    return next((node.address for node in nodes if node.group == group), f"group {group}")


CONDITIONS = (
    Condition(
        name="shard",
        severity=Severity.HINT,
        says="All statements on these tables run on one node.",
        means="All tables are on one node, so the other nodes do no work.",
        to_do="Create a schema for the tables, and distribute it with pulse_shards add while no worker runs.",
        look_on_citus=lambda alias, _: [of_the_shard(_nodes(alias), _shards(alias))],
    ),
    Condition(
        name="balance",
        severity=Severity.HINT,
        says="All nodes have about the same number of schemas.",
        means="The node with most schemas reaches its limit while other nodes have free capacity.",
        to_do="Move one: pulse_shards move --shard ... --node ... It keeps fencing tokens rising, which "
        "citus_schema_move alone does not. Workers may run during the move.",
        look_on_citus=lambda alias, _: [of_the_balance(_nodes(alias), _shards(alias))],
    ),
    Condition(
        name="synchronous-commit",
        severity=Severity.WARNING,
        says="It is on for every node: a confirmed commit survives a crash of the node.",
        means="Statements on the schemas of a node that does not answer fail. Citus does not pass on the "
        "synchronous_commit of a session, so the setting of the node decides whether a commit survives a crash.",
        to_do="Start the node, or promote its standby. ALTER SYSTEM SET synchronous_commit = 'on' on nodes that have "
        "another value, and reload.",
        look_on_citus=lambda alias, _: of_commits(_nodes(alias), _answers(alias)),
    ),
)

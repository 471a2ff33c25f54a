"""Health conditions on Citus: of the cluster, and those that ask another server than on plain PostgreSQL.

The conditions of the cluster find nothing on plain PostgreSQL.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pulse_django.health.conditions import jobs, server
from pulse_django.health.conditions.asking import Looking
from pulse_django.health.conditions.catalogue import (
    Condition,
    Limits,
    Sentence,
    Severity,
    Subject,
    as_json,
    named,
    subject_of,
)
from pulse_django.queue.database.read_only import rows
from pulse_django.queue.database.transactions import run_joined
from pulse_django.shards.ids import TOKENS, position_of

from .nodes import has_citus, node_of, rows_on, schema_of

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


def _nothing(alias: str, _: Limits) -> Iterable[Subject]:
    return ()


CONDITIONS = (
    Condition(
        name="tables",
        severity=Severity.HINT,
        says="The tables are on this server.",
        means="The statistics of this server are those of empty tables.",
        to_do="Read pg_stat_user_tables there. The conditions table-bloat and long-transaction do check the node.",
        look=_nothing,
    ),
    Condition(
        name="shard",
        severity=Severity.HINT,
        says="All statements on these tables run on one node.",
        means="All tables are on one node, so the other nodes do no work.",
        to_do="Create a schema for the tables, and distribute it with pulse_shards add while no worker runs.",
        look=_nothing,
    ),
    Condition(
        name="balance",
        severity=Severity.HINT,
        says="All nodes have about the same number of schemas.",
        means="The node with most schemas reaches its limit while other nodes have free capacity.",
        to_do="Move one: pulse_shards move --shard ... --node ... It keeps fencing tokens rising, which "
        "citus_schema_move alone does not. Workers may run during the move.",
        look=_nothing,
    ),
    Condition(
        name="synchronous-commit",
        severity=Severity.WARNING,
        says="It is on for every node: a confirmed commit survives a crash of the node.",
        means="Statements on the schemas of a node that does not answer fail. Citus does not pass on the "
        "synchronous_commit of a session, so the setting of the node decides whether a commit survives a crash.",
        to_do="Start the node, or promote its standby. ALTER SYSTEM SET synchronous_commit = 'on' on nodes that have "
        "another value, and reload.",
        look=_nothing,
    ),
)


# Instead of conditions of ``health``: the system catalog and the tables are on different servers.


_NUMBER_OF_SHARD = re.compile(r"_\d{6,7}$")
_IN_SCHEMA = "schemaname::text = %(schema)s"


def _of_the_cluster(
    look: Callable[[str], Iterable[Subject]],
) -> Callable[[str, Limits], Iterable[Subject]]:
    return lambda alias, _: look(alias) if has_citus(alias) else ()


def _away(alias: str, _: Limits) -> Iterator[Subject]:
    if node := node_of(alias):
        yield Subject(str(node), f"the tables are on {node}, whose vacuum, indexes and sizes are not checked")


def _unless_on_a_node(name: str) -> Callable[[str, Limits], Iterable[Subject]]:
    """Return the check of a condition. If the tables are on a node, the statistics here are of empty ones."""

    def look(alias: str, limits: Limits) -> Iterable[Subject]:
        condition = named(name)
        if node_of(alias):
            return ()
        if condition.look is not None:
            return condition.look(alias, limits)
        return (Subject(*row) for row in rows(alias, condition.sql, limits.params()))

    return look


def _long_transactions(alias: str, limits: Limits) -> Iterator[Subject]:
    """Yield the long transactions of this node, and of the node that has the tables."""
    asked, params = as_json(server.LONG_TRANSACTIONS), limits.params()
    yield from (subject_of(row) for _, row in run_joined(alias, asked, params))
    if node := node_of(alias):
        found = (subject_of(row) for _, row in rows_on(alias, node, asked, params))
        yield from (Subject(f"{key} on {node}", words) for key, words in found)


def _bloat(alias: str, limits: Limits) -> Iterator[Subject]:
    """Yield the tables of the node, without the shard number in their names. Citus sends VACUUM there."""
    if (node := node_of(alias)) is None:
        here = as_json(server.BLOAT.format(whose=server.IS_VISIBLE))
        found: Sequence[Sequence[str]] = run_joined(alias, here, limits.params())
    else:
        params = limits.params() | {"schema": schema_of(alias)}
        found = rows_on(alias, node, as_json(server.BLOAT.format(whose=_IN_SCHEMA)), params)
    subjects = (subject_of(row) for _, row in found)
    yield from (Subject(_NUMBER_OF_SHARD.sub("", key), words) for key, words in subjects)


def _repeated_tokens(alias: str, _: Limits) -> Iterator[Subject]:
    """Read the position of the sequence of claims, which is on the node and unknown to Citus."""
    seen, position = jobs.seen(alias), position_of(alias, TOKENS)
    if seen > position:
        yield Subject(
            TOKENS, Sentence("stands at %(position)s, and %(seen)s was granted", {"position": position, "seen": seen})
        )


def _missing_days(alias: str, limits: Limits) -> Iterator[Subject]:
    """Run two queries: the jobs are on the node, and the names of the partitions are here."""
    found = [*run_joined(alias, jobs.STRAY, limits.params()), *run_joined(alias, jobs.WITHOUT_PARTITION, {})]
    yield from (Subject(str(era), words) for era, words in sorted(found))


class LookingOnCitus(Looking):
    in_one_statement = False

    def looks(self) -> Mapping[str, Callable[[str, Limits], Iterable[Subject]]]:
        return _LOOKS


_OF_STATISTICS = ("autovacuum", "autovacuum-naptime", "updates", "indexes", "scans", "retention")
_LOOKS = {
    "tables": _away,
    "shard": _of_the_cluster(lambda alias: [of_the_shard(_nodes(alias), _shards(alias))]),
    "balance": _of_the_cluster(lambda alias: [of_the_balance(_nodes(alias), _shards(alias))]),
    "synchronous-commit": _of_the_cluster(lambda alias: of_commits(_nodes(alias), _answers(alias))),
    **{name: _unless_on_a_node(name) for name in _OF_STATISTICS},
    "long-transaction": _long_transactions,
    "table-bloat": _bloat,
    "token-repeated": _repeated_tokens,
    "day-missing": _missing_days,
}

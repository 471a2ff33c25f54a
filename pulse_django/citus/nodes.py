"""Schemas on Citus: find the node of a schema, query that node, and distribute or move the schema.

Claims run on the node, and take their fencing tokens there. For a sequence that Citus manages, each node gets its own
range, and tokens would become smaller after a move to a node with a lower range. So Citus does not manage this
sequence: each node has its own, which is raised on a node before the schema moves there.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections

from pulse_django.queue.database.transactions import run_joined
from pulse_django.shards.ids import TOKENS, Sequences

# More tokens than a schema uses while it moves: at 20,000 a second, they last for days.
MOST_WHILE_MOVING = 2**32
TRIES = 20

_PLACE = """
SELECT node.nodename, node.nodeport
FROM pg_dist_shard AS shard
JOIN pg_dist_placement AS place ON place.shardid = shard.shardid
JOIN pg_dist_node AS node ON node.groupid = place.groupid
WHERE shard.logicalrelid::oid = 'pulse_django_job_hot'::regclass::oid
    AND node.isactive AND node.noderole::text = 'primary'
"""
_NODES = """
SELECT nodename, nodeport FROM pg_dist_node WHERE isactive AND noderole::text = 'primary' AND shouldhaveshards
ORDER BY nodename, nodeport
"""
_ASK = """
SELECT success, result
FROM pg_catalog.master_run_on_worker(ARRAY[%s::text], ARRAY[%s::int], ARRAY[%s::text], false)
"""
_HAS_CITUS = "SELECT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'citus'::name)"
_HAS_NODES = "SELECT pg_catalog.to_regclass('pg_dist_local_group') IS NOT NULL"
_IS_A_NODE = "SELECT groupid <> 0 FROM pg_dist_local_group"
LEADS_TO_A_NODE = (
    "Database {alias!r} connects to a worker node of Citus, which takes ids from its own range. "
    "Connect to the coordinator"
)
_AS_JSON = """
SELECT COALESCE(pg_catalog.json_agg(pg_catalog.json_build_array(key, words)), '[]'::json)
FROM ({sql}) AS found (key, words)
"""
_SCHEMA = "SELECT current_schema()::text, pg_catalog.quote_ident(current_schema())"
_DISTRIBUTE = "SELECT pg_catalog.citus_schema_distribute(current_schema()::regnamespace)"
_MOVE = "SELECT pg_catalog.citus_schema_move(current_schema()::regnamespace, %s, %s)"
# The sequence on the node gets the same owner and grants as the sequence here.
_MAKE_TOKENS = """
SELECT pg_catalog.concat_ws('; ',
    'SET citus.enable_ddl_propagation = off',
    pg_catalog.format('CREATE SEQUENCE IF NOT EXISTS %%I.pulse_django_token AS bigint', current_schema()),
    pg_catalog.format(
        'ALTER SEQUENCE %%I.pulse_django_token OWNER TO %%s', current_schema(), c.relowner::regrole::text
    ),
    (
        SELECT pg_catalog.string_agg(pg_catalog.format(
            'GRANT %%s ON SEQUENCE %%I.pulse_django_token TO %%s', acl.privilege_type, current_schema(),
            CASE WHEN acl.grantee = 0::oid THEN 'PUBLIC' ELSE acl.grantee::regrole::text END
        ), '; ')
        FROM pg_catalog.aclexplode(c.relacl) AS acl
        WHERE acl.grantee <> c.relowner
    ),
    'RESET citus.enable_ddl_propagation'
)
FROM pg_class AS c
WHERE c.oid = 'pulse_django_token'::regclass::oid
"""
_POSITION = "SELECT COALESCE(pg_catalog.pg_sequence_last_value('{tokens}'::regclass), 0)"
_OWNER = "SELECT relowner::regrole::text FROM pg_class WHERE oid = 'pulse_django_token'::regclass::oid"
# setval() takes no lock, so this locks the sequence first, as raise_sequence() does.
_RAISE = """
DO $do$
BEGIN
    SET LOCAL citus.enable_ddl_propagation = off;
    SET LOCAL lock_timeout = '500ms';
    ALTER SEQUENCE {tokens} OWNER TO {owner};
    PERFORM pg_catalog.setval('{tokens}'::regclass, GREATEST(
        {floor}, COALESCE(pg_catalog.pg_sequence_last_value('{tokens}'::regclass), 1)
    ));
EXCEPTION WHEN lock_not_available THEN
    NULL;  -- tried again
END
$do$
"""


class CitusNode(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def node_of(alias: str) -> CitusNode | None:
    """Return the node that the schema of this database is on. None: it is not distributed."""
    rows = run_joined(alias, _PLACE, []) if has_citus(alias) else []
    return CitusNode._make(rows[0]) if rows else None


def has_citus(alias: str) -> bool:
    """Return whether this database belongs to a cluster. A restored dump may be on a plain server."""
    return bool(run_joined(alias, _HAS_CITUS, [])[0][0])


def leads_to_a_node(alias: str) -> bool:
    """Return whether the connection is to a worker node of a cluster, not to its coordinator. It needs no tables."""
    [(has_nodes,)] = run_joined(alias, _HAS_NODES, [])
    return bool(has_nodes) and any(is_one for (is_one,) in run_joined(alias, _IS_A_NODE, []))


def nodes(alias: str) -> list[CitusNode]:
    """Return the nodes of the cluster that may store schemas."""
    return [CitusNode._make(row) for row in run_joined(alias, _NODES, [])]


def tokens_on(alias: str, node: CitusNode) -> int:
    """Return the last token of this schema on a node."""
    return int(_ask(alias, node, _POSITION.format(tokens=_tokens(alias))))


def raise_tokens_on(alias: str, node: CitusNode, floor: int) -> None:
    """Raise the sequence of this schema on a node, so that the next tokens are larger than ``floor``."""
    [(owner,)] = run_joined(alias, _OWNER, [])
    for _ in range(TRIES):
        _ask(alias, node, _RAISE.format(tokens=_tokens(alias), owner=owner, floor=int(floor)))
        if tokens_on(alias, node) >= floor:
            return
    raise DatabaseError(f"node {node}: the sequence of tokens is locked")


def rows_on(alias: str, node: CitusNode, sql: str, params: dict[str, Any]) -> list[list[Any]]:
    """Run a query on a node, for facts that only the node has. Columns are JSON values."""
    connection = connections[alias]
    connection.ensure_connection()
    text = psycopg.ClientCursor(connection.connection).mogrify(_AS_JSON.format(sql=sql), params)
    return list(json.loads(_ask(alias, node, text)))


def schema_of(alias: str) -> str:
    return str(run_joined(alias, _SCHEMA, [])[0][0])


def distribute(alias: str) -> None:
    """Distribute the schema of this database to a node of Citus, and create a sequence of tokens on each node.

    It can be called again. The schema ``public`` stays on the coordinator.
    """
    if not has_citus(alias) or schema_of(alias) == "public":
        return
    position = run_joined(alias, _POSITION.format(tokens="pulse_django_token"), [])[0][0]
    if node_of(alias) is None:
        run_joined(alias, _DISTRIBUTE, [])
    for node in nodes(alias):
        make_tokens_on(alias, node)
    place = node_of(alias)
    if place is not None and tokens_on(alias, place) < position:
        raise_tokens_on(alias, place, position)


def make_tokens_on(alias: str, node: CitusNode) -> None:
    """Create the sequence of tokens on a node, if it does not exist."""
    [(statements,)] = run_joined(alias, _MAKE_TOKENS, [])
    _ask(alias, node, statements)


def move_schema(alias: str, to: CitusNode) -> CitusNode:
    """Move the schema to another node while it is in use. Return its previous node.

    Tokens keep growing: those of the new node begin above all that the old one can use during the move.
    """
    before = node_of(alias)
    if before is None:
        raise ImproperlyConfigured(f"The tables in database {alias!r} are not on a node of Citus.")
    if before == to:
        return before
    if to not in nodes(alias):
        known = ", ".join(map(str, nodes(alias)))
        raise ImproperlyConfigured(f"{to} is not a node that may store schemas. These are: {known}.")
    make_tokens_on(alias, to)
    raise_tokens_on(alias, to, tokens_on(alias, before) + MOST_WHILE_MOVING)
    run_joined(alias, _MOVE, [to.host, to.port])
    return before


def _tokens(alias: str) -> str:
    [(_, schema)] = run_joined(alias, _SCHEMA, [])
    return f"{schema.replace(chr(39), chr(39) * 2)}.pulse_django_token"


def _ask(alias: str, node: CitusNode, command: str) -> str:
    [(succeeded, said)] = run_joined(alias, _ASK, [node.host, node.port, command])
    if not succeeded:
        raise DatabaseError(f"node {node}: {said}")
    return str(said)


class SequencesOnCitus(Sequences):
    def tables_with_ids(self) -> list[str]:
        """Return the tables that get ids on the coordinator.

        Other tables may get ids from the node with the rows, whose own range could begin with the same number.
        """
        return ["pulse_django_job", "pulse_django_batch"]

    def position(self, sequence: str) -> int:
        if sequence == TOKENS and (node := node_of(self.alias)):
            return tokens_on(self.alias, node)
        return super().position(sequence)

    def raise_to(self, sequence: str, floor: int) -> None:
        if sequence == TOKENS and (node := node_of(self.alias)):
            raise_tokens_on(self.alias, node, floor)
        else:
            super().raise_to(sequence, floor)

    def problem(self) -> str:
        return LEADS_TO_A_NODE.format(alias=self.alias) if leads_to_a_node(self.alias) else ""

    def node(self) -> str:
        return str(node_of(self.alias) or "")

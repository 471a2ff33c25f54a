"""Where the schema of a shard is, and that its tokens never fall when Citus moves it."""

from __future__ import annotations

import io

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError

from pulse_django.citus import nodes
from pulse_django.citus.nodes import CitusNode
from pulse_django.health.conditions import ask, ask_all, named
from pulse_django.management.commands import pulse_shards
from pulse_django.models import Job
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity
from pulse_django.shards.ids import TOKENS, number_ids, position_of
from tests.citus import is_on_citus
from tests.database import empty_tables
from tests.faults import all_faults
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")
needs_citus = pytest.mark.skipif(not is_on_citus(), reason="needs a cluster of Citus: make citus")
plain = pytest.mark.skipif(is_on_citus(), reason="this is a cluster of Citus")


def shards(*args: str) -> str:
    out = io.StringIO()
    call_command("pulse_shards", *args, stdout=out)
    return out.getvalue()


def next_tokens() -> list[int]:
    Job.objects.enqueue_many([NewJob(task="t")] * 3)
    return sorted(claim.token for claim in Job.objects.claim(Identity("me"), limit=3))


@plain
def test_plain_postgresql_has_no_node_to_move_to() -> None:
    assert nodes.node_of("default") is None
    nodes.distribute("default")
    assert "node" not in shards()
    with pytest.raises(CommandError, match="not on a node of Citus"):
        shards("move", "--shard", "default", "--node", "db-1:5432", "--yes")


def test_what_is_no_node_is_refused() -> None:
    with all_faults() as about:
        for text in ["db-1", ":5432", "db-1:port"]:
            with about(text):
                empty_tables()
                with pytest.raises(CommandError, match="is not a node such as"):
                    shards("move", "--shard", "default", "--node", text)


def test_a_node_goes_with_no_other_shard() -> None:
    with pytest.raises(CommandError, match="takes no --from"):
        shards("move", "--shard", "default", "--node", "db-1:5432", "--from", "default")


@needs_citus
def test_status_names_the_node_and_the_token_that_it_gave_last() -> None:
    last = next_tokens()[-1]
    said = shards()
    assert str(nodes.node_of("default")) in said
    assert f"{last:,}" in said or str(last) in said
    assert position_of("default", TOKENS) == last


@needs_citus
def test_tokens_rise_through_moves_to_and_fro() -> None:
    first, *others = nodes.nodes("default")
    last = next_tokens()[-1]
    for node in [*others, first, others[0]]:
        shards("move", "--shard", "default", "--node", str(node), "--yes")
        assert nodes.node_of("default") == node
        tokens = next_tokens()
        assert tokens[0] > last
        last = tokens[-1]
        assert ask(named("token-repeated"), "default").is_clear


@needs_citus
def test_without_yes_it_only_says_what_it_would_do() -> None:
    before = nodes.node_of("default")
    other = next(node for node in nodes.nodes("default") if node != before)
    assert "With --yes" in shards("move", "--shard", "default", "--node", str(other))
    assert nodes.node_of("default") == before


@needs_citus
def test_a_node_that_is_none_is_refused() -> None:
    with pytest.raises(CommandError, match="not a node that may store schemas"):
        shards("move", "--shard", "default", "--node", "127.0.0.1:1", "--yes")


@needs_citus
def test_jobs_do_not_leave_a_schema_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse_shards, "_shard", lambda alias, _: alias)
    with pytest.raises(CommandError, match="only with it"):
        shards("move", "--from", "default", "--to", "other")


@needs_citus
def test_only_ids_that_say_their_shard_are_numbered() -> None:
    """Those of other tables are drawn on the node, in a range that can begin with the same number."""
    assert not set(number_ids("default", 0)) - {"pulse_django_job_id_seq", "pulse_django_batch_id_seq"}


@needs_citus
def test_each_condition_can_be_asked() -> None:
    assert [finding for finding in ask_all("default").findings if finding.error] == []


@needs_citus
def test_advice_does_not_judge_empty_tables() -> None:
    assert ask(named("tables"), "default").says.endswith("whose vacuum, indexes and sizes are not checked")
    assert not ask(named("autovacuum"), "default").figures


@needs_citus
def test_what_a_node_refuses_is_told() -> None:
    node = nodes.node_of("default")
    assert isinstance(node, CitusNode)
    with pytest.raises(DatabaseError, match=f"node {node}"):
        nodes.rows_on("default", node, "SELECT 1, nothing", {})


@needs_citus
def test_who_may_draw_tokens_here_may_draw_them_on_each_node() -> None:
    sql("CREATE ROLE test_pulse_drawer NOLOGIN")
    try:
        sql("GRANT USAGE ON SEQUENCE pulse_django_token TO test_pulse_drawer")
        nodes.distribute("default")
        schema = nodes.schema_of("default")
        may = f"SELECT has_sequence_privilege('test_pulse_drawer', '{schema}.pulse_django_token', 'USAGE'), ''"
        for node in nodes.nodes("default"):
            assert nodes.rows_on("default", node, may, {}) == [[True, ""]]
    finally:
        sql("REVOKE ALL ON SEQUENCE pulse_django_token FROM test_pulse_drawer")
        drop = f"REVOKE ALL ON SEQUENCE {nodes.schema_of('default')}.pulse_django_token FROM test_pulse_drawer"
        sql("SELECT run_command_on_workers(%s)", drop)
        sql("DROP ROLE test_pulse_drawer")

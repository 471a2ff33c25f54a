"""The doctor of a cluster of Citus: what it says of facts, and the facts themselves where there is a cluster."""

from __future__ import annotations

import pytest

from pulse_django.health.doctor import Advice, Level, citus, examine
from tests.citus import is_on_citus, schema_name
from tests.faults import all_faults

COORDINATOR = citus.NodeFacts(id=1, group=0, address="db-0:5432", holds_shards=False, is_here=True)
FIRST = citus.NodeFacts(id=2, group=1, address="db-1:5432", holds_shards=True, is_here=False)
SECOND = citus.NodeFacts(id=3, group=2, address="db-2:5432", holds_shards=True, is_here=False)
NODES = (COORDINATOR, FIRST, SECOND)
ALL_ON = {1: (True, "on"), 2: (True, "on"), 3: (True, "remote_apply")}
TOPICS = {"citus", "shard", "balance", "synchronous_commit"}


def shard(schema: str, group: int, *, is_ours: bool = False) -> citus.Shard:
    return citus.Shard(schema=schema, group=group, is_ours=is_ours)


def about_commits(said: dict[int, tuple[bool, str]]) -> list[tuple[Level, str]]:
    return [(advice.level, advice.what) for advice in citus.of_commits(NODES, said)]


def test_it_says_which_node_one_talks_to() -> None:
    leads = "this connection is to"
    assert citus.of_the_node(NODES).what == f"{leads} db-0:5432, the coordinator; the cluster has 3 nodes"
    here = citus.NodeFacts(id=2, group=1, address="db-1:5432", holds_shards=True, is_here=True)
    advice = citus.of_the_node([here])
    assert (advice.level, advice.what) == (
        Level.WARNING, f"{leads} db-1:5432, a worker node; the cluster has 1 nodes"
    )  # fmt: skip
    assert advice.to_do
    assert "not a node of its cluster" in citus.of_the_node([FIRST, SECOND]).what


def test_it_says_where_the_schema_is() -> None:
    advice = citus.of_the_shard(NODES, [shard("other", 1), shard("jobs", 2, is_ours=True)])
    assert (advice.level, advice.what) == (Level.GOOD, "schema jobs is on db-2:5432")
    assert citus.of_the_shard([FIRST], [shard("jobs", 7, is_ours=True)]).what == "schema jobs is on group 7"


def test_tables_that_are_not_distributed_are_a_hint() -> None:
    advice = citus.of_the_shard(NODES, [shard("other", 1)])
    assert (advice.level, advice.what) == (Level.HINT, "the tables of this database are not distributed")


def test_schemas_that_are_uneven_over_nodes_are_a_hint() -> None:
    """The coordinator, which is not to hold any, does not count."""
    cases = [
        ((), Level.GOOD),
        ((1,), Level.GOOD),
        ((1, 1, 2), Level.GOOD),
        ((1, 1), Level.HINT),
        ((2, 2, 2, 1), Level.HINT),
        ((1, 2, 1, 2, 1), Level.GOOD),
    ]
    with all_faults() as about:
        for groups, level in cases:
            with about((groups, level)):
                shards = [shard(f"jobs_{number}", group) for number, group in enumerate(groups)]
                advice = citus.of_the_balance(NODES, shards)
                counts = f"{groups.count(1)} on db-1:5432, {groups.count(2)} on db-2:5432"
                assert (advice.level, advice.what) == (level, f"schemas with jobs: {counts}")
                assert ("citus_schema_move" in advice.to_do) == (level is Level.HINT)


def test_a_cluster_without_nodes_for_schemas_is_not_uneven() -> None:
    assert citus.of_the_balance([COORDINATOR], []).what == "schemas with jobs: none"


def test_commits_that_a_node_does_not_wait_for_are_a_warning() -> None:
    assert about_commits(ALL_ON) == [(Level.GOOD, "on for every node")]
    weak = ALL_ON | {2: (True, "off"), 3: (True, "local")}
    assert about_commits(weak) == [(Level.WARNING, "off on db-1:5432, local on db-2:5432")]
    assert about_commits({9: (True, "off")}) == [(Level.WARNING, "off on node 9")]


def test_a_node_that_does_not_answer_is_a_warning() -> None:
    away = ALL_ON | {3: (False, "connection refused")}
    assert about_commits(away) == [(Level.WARNING, "no answer from db-2:5432")]
    assert len(about_commits(away | {2: (True, "off")})) == 2


def of_citus() -> dict[str, Advice]:
    return {advice.topic: advice for advice in examine("default") if advice.topic in TOPICS}


@pytest.mark.usefixtures("pulse_db")
@pytest.mark.skipif(is_on_citus(), reason="this is a cluster of Citus")
def test_plain_postgresql_is_told_nothing_of_citus() -> None:
    assert of_citus() == {}


@pytest.mark.usefixtures("pulse_db")
@pytest.mark.skipif(not is_on_citus(), reason="needs a cluster of Citus: make citus")
def test_a_cluster_is_asked() -> None:
    said = of_citus()
    assert set(said) == TOPICS
    assert said["shard"].what.startswith(f"schema {schema_name()} is on ")
    assert said["synchronous_commit"].level is Level.GOOD

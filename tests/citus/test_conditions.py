"""Advice on a cluster of Citus: what it says of facts, and the facts themselves where there is a cluster."""

from __future__ import annotations

import pytest

from pulse_django.citus import conditions as citus
from pulse_django.health.conditions import ask, named
from tests.citus import is_on_citus, schema_name
from tests.faults import all_faults

COORDINATOR = citus.NodeFacts(id=1, group=0, address="db-0:5432", holds_shards=False)
FIRST = citus.NodeFacts(id=2, group=1, address="db-1:5432", holds_shards=True)
SECOND = citus.NodeFacts(id=3, group=2, address="db-2:5432", holds_shards=True)
NODES = (COORDINATOR, FIRST, SECOND)
ALL_ON = [(1, True, "on"), (2, True, "on"), (3, True, "remote_apply")]
NAMES = ("shard", "balance", "synchronous-commit")


def shard(schema: str, group: int, *, is_ours: bool = False) -> citus.Shard:
    return citus.Shard(schema=schema, group=group, is_ours=is_ours)


def test_it_says_where_the_schema_is() -> None:
    ours = shard("jobs", 2, is_ours=True)
    said = "schema jobs is on db-2:5432; the cluster has 3 nodes"
    assert citus.of_the_shard(NODES, [shard("other", 1), ours]) == (None, said)
    assert citus.of_the_shard([FIRST], [ours]) == (None, "schema jobs is on group 2; the cluster has 1 nodes")
    assert citus.of_the_shard(NODES, [shard("other", 1)]).key == "schema"


def test_schemas_that_are_uneven_over_nodes_are_a_hint() -> None:
    """The coordinator, which is not to hold any, does not count."""
    cases = [
        ((), None),
        ((1,), None),
        ((1, 1, 2), None),
        ((1, 1), "nodes"),
        ((2, 2, 2, 1), "nodes"),
        ((1, 2, 1, 2, 1), None),
    ]
    with all_faults() as about:
        for groups, key in cases:
            with about(groups):
                shards = [shard(f"jobs_{number}", group) for number, group in enumerate(groups)]
                counts = f"{groups.count(1)} on db-1:5432, {groups.count(2)} on db-2:5432"
                assert citus.of_the_balance(NODES, shards) == (key, f"schemas with jobs: {counts}")
    assert citus.of_the_balance([COORDINATOR], []) == (None, "schemas with jobs: none")


def test_nodes_that_do_not_wait_for_commits_or_do_not_answer_are_a_warning() -> None:
    assert list(citus.of_commits(NODES, ALL_ON)) == []
    said = [(1, True, "on"), (2, True, "off"), (3, False, "connection refused"), (9, True, "local")]
    found = [("db-1:5432", "off"), ("db-2:5432", "no answer"), ("node 9", "local")]
    assert list(citus.of_commits(NODES, said)) == found


@pytest.mark.usefixtures("pulse_db")
def test_only_a_cluster_is_told_of_citus() -> None:
    findings = {name: ask(named(name), "default") for name in NAMES}
    assert {name for name, finding in findings.items() if not finding.is_clear} == set()
    said = {name: finding.figures[0].partition(" is ")[0] for name, finding in findings.items() if finding.figures}
    assert said.keys() == ({"shard", "balance"} if is_on_citus() else set())
    assert said.get("shard", "") == (f"schema {schema_name()}" if is_on_citus() else "")

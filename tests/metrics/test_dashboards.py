"""The dashboard and the alert rules of the documentation ask for what exists, and say what they mean."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from pulse_django.metrics.vital_signs import ALL, THE_EIGHT
from pulse_django.queue.words.counters import SignKind, VitalSign
from tests.faults import all_faults, each_of

MONITORING = Path(__file__).parent.parent.parent / "docs/monitoring"
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "grafana.json").read_text())
RULES: dict[str, Any] = yaml.safe_load((MONITORING / "prometheus-rules.yml").read_text())

PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
EXPRESSIONS = [
    *((panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]),
    *((rule["alert"], rule["expr"]) for rule in ALERTS),
    *((one["name"], one["expr"]) for one in DASHBOARD["annotations"]["list"]),
]
OF_A_HISTOGRAM = ("_bucket", "_sum", "_count")


def series() -> dict[str, VitalSign]:
    """Every name that the page for Prometheus has."""
    found = {}
    for sign in ALL:
        ends = OF_A_HISTOGRAM if sign.kind is SignKind.HISTOGRAM else ("",)
        found |= {f"pulse_{sign.name}{end}": sign for end in ends}
    return found


SERIES = series()
# A worker tells them in each shard that it serves; whether a limit is closed, and a shard up, is no number to add.
TOLD_BY_EACH = {f"pulse_{name}" for name in ("workers", "slots", "in_flight", "stuck_slots", "prefetched")} | {
    "pulse_limit_paused",
    "pulse_shard_up",
}


def shown(expression: str) -> set[VitalSign]:
    return {SERIES[name] for name in re.findall(r"pulse_\w+", expression)}


def labels_of(expression: str) -> set[str]:
    matched = re.findall(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)", " ".join(re.findall(r"\{[^}]*\}", expression)))
    grouped = re.findall(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)", expression)
    return {*matched, *(name.strip() for group in grouped for name in group.split(",") if name.strip())}


def known_labels(expression: str) -> set[str]:
    names = set(re.findall(r"pulse_\w+", expression))
    of_buckets = {"le"} if any(name.endswith("_bucket") for name in names) else set()
    return of_buckets.union({"shard"}, *(SERIES[name].labels for name in names))


class TestEveryExpression:
    def test_it_asks_for_series_that_exist(self) -> None:
        with all_faults() as about:
            for where, expression in EXPRESSIONS:
                with about(f"{where}: {expression}"):
                    names = set(re.findall(r"pulse_\w+", expression))
                    assert names
                    assert names <= set(SERIES)

    def test_it_uses_labels_that_exist(self) -> None:
        with all_faults() as about:
            for where, expression in EXPRESSIONS:
                with about(f"{where}: {expression}"):
                    assert labels_of(expression) <= known_labels(expression)

    def test_it_counts_nothing_twice_if_two_processes_tell_it(self) -> None:
        """Each process of the site tells the numbers of the whole fleet: one of them is taken before they are added."""
        with all_faults() as about:
            for where, expression in EXPRESSIONS:
                with about(f"{where}: {expression}"):
                    flat = " ".join(expression.split())
                    taken = re.findall(
                        r"(?:\bmax|\bmax by \([^)]*\)|absent) ?\( ?(?:rate\(|increase\()?(pulse_\w+)", flat
                    )
                    assert taken == re.findall(r"(?<!unless )pulse_\w+", flat)

    def test_the_number_of_one_shard_does_not_hide_those_of_others(self) -> None:
        """The same series comes from each shard: numbers are added, and of ages the worst is shown."""
        with all_faults() as about:
            for where, expression in EXPRESSIONS:
                with about(f"{where}: {expression}"):
                    flat = " ".join(expression.split())
                    for labels, name in re.findall(
                        r"\bmax(?: by \(([^)]*)\))? ?\( ?(?:rate\(|increase\()?(pulse_\w+)", flat
                    ):
                        worst_counts = SERIES[name].unit == "seconds" and SERIES[name].kind is SignKind.GAUGE
                        assert "shard" in labels.split(", ") or worst_counts or name in TOLD_BY_EACH

    def test_counters_are_rated_over_minutes_and_gauges_not_at_all(self) -> None:
        with all_faults() as about:
            for where, expression in EXPRESSIONS:
                with about(f"{where}: {expression}"):
                    for name, window in re.findall(r"(pulse_\w+)(?:\{[^}]*\})?(?:\[(\w+)\])?", expression):
                        if SERIES[name].kind is SignKind.GAUGE:
                            assert window == ""
                        elif "unless" not in expression:
                            assert window in ("5m", "10m", "1h"), "they move once a minute"

    def test_its_brackets_close(self) -> None:
        with all_faults() as about:
            for where, expression in EXPRESSIONS:
                with about(f"{where}: {expression}"):
                    for opening, closing in ("()", "{}", "[]"):
                        assert expression.count(opening) == expression.count(closing)


class TestTheDashboard:
    def test_grafana_can_import_it(self) -> None:
        assert DASHBOARD["schemaVersion"] >= 38
        datasource, task = DASHBOARD["templating"]["list"]
        assert (datasource["name"], datasource["type"], datasource["query"]) == (
            "datasource",
            "datasource",
            "prometheus",
        )
        asked = [*DASHBOARD["annotations"]["list"], task]
        for panel in PANELS:
            asked += [panel, *panel["targets"]]
        assert all(part["datasource"] == {"type": "prometheus", "uid": "${datasource}"} for part in asked)

    def test_what_is_wrong_now_comes_first_and_then_the_eight(self) -> None:
        rows: dict[str, list[dict[str, Any]]] = {}
        for panel in sorted(DASHBOARD["panels"], key=lambda panel: panel["gridPos"]["y"]):
            if panel["type"] == "row":
                title = panel["title"]
            rows.setdefault(title, []).append(panel)
        assert list(rows)[:2] == ["Now", "Vital signs"]
        assert {panel["type"] for panel in rows["Now"]} == {"row", "stat"}
        found = {sign for panel in rows["Vital signs"][1:] for t in panel["targets"] for sign in shown(t["expr"])}
        assert set(THE_EIGHT) <= found

    def test_one_task_can_be_chosen_and_all_that_tells_of_tasks_obeys(self) -> None:
        task = DASHBOARD["templating"]["list"][1]
        assert (task["name"], task["type"], task["multi"], task["includeAll"]) == ("task", "query", True, True)
        asked = re.fullmatch(r"label_values\((pulse_\w+), task\)", task["query"]["query"])
        assert asked
        assert "task" in SERIES[asked[1]].labels
        below = {panel["title"]: panel for panel in PANELS if panel["type"] != "stat"}
        of_tasks = [panel for panel in below.values() if "task" in labels_of(panel["targets"][0]["expr"])]
        assert {"Runs of each task, a minute", "Failures of each task, a minute"} <= {one["title"] for one in of_tasks}
        assert all('task=~"$task"' in target["expr"] for panel in of_tasks for target in panel["targets"])

    def test_no_variable_is_unknown(self) -> None:
        known = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
        assert {name for _, text in EXPRESSIONS for name in re.findall(r"\$\{?(\w+)", text)} <= known

    def test_a_release_is_marked_when_its_first_worker_started(self) -> None:
        [releases] = DASHBOARD["annotations"]["list"]
        assert releases["useValueForTime"], "and not when it was scraped"
        assert releases["expr"].startswith("1000 * "), "Grafana reads milliseconds"
        assert releases["enable"]

    def test_no_sign_is_missing(self) -> None:
        assert {sign for panel in PANELS for target in panel["targets"] for sign in shown(target["expr"])} == set(ALL)

    @each_of(*PANELS)
    def test_a_panel_says_what_it_shows(self, *, panel: Any) -> None:
        assert panel["title"]
        signs = {sign for target in panel["targets"] for sign in shown(target["expr"])}
        for sign in signs:
            assert sign.means in panel["description"]
            assert sign.to_do in panel["description"]
        unit = panel["fieldConfig"]["defaults"]["unit"]
        in_seconds = {sign.unit == "seconds" for sign in signs} == {True}
        assert unit == "s" if in_seconds else unit in ("short", "percentunit")
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])

    @each_of(*PANELS)
    def test_a_legend_names_labels_that_are_left(self, *, panel: Any) -> None:
        for target in panel["targets"]:
            outermost = re.match(
                r"(?:60 \* |time\(\) - )?(?:histogram_quantile\([\d.]+, )?(?:max|sum) by \(([^)]*)\)",
                target["expr"],
            )
            left = set(outermost[1].split(", ")) - {"le"} if outermost else set()
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) == left

    @each_of(*DASHBOARD["panels"])
    def test_a_panel_has_what_grafana_reads_of_its_kind(self, *, panel: Any) -> None:
        check_panel(panel)

    def test_ids_are_unique_and_no_panel_covers_another(self) -> None:
        ids = [panel["id"] for panel in DASHBOARD["panels"]]
        assert len(ids) == len(set(ids))
        assert not [
            (one["title"], other["title"]) for one, other in combinations(DASHBOARD["panels"], 2) if overlap(one, other)
        ]
        assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in DASHBOARD["panels"])


def check_panel(panel: dict[str, Any]) -> None:
    every = {"id", "type", "title", "gridPos"}
    if panel["type"] == "row":
        assert set(panel) == every | {"collapsed", "panels"}
        return
    assert set(panel) == every | {"description", "datasource", "fieldConfig", "options", "targets"}
    assert set(panel["gridPos"]) == {"h", "w", "x", "y"}
    assert set(panel["fieldConfig"]) == {"defaults", "overrides"}
    for target in panel["targets"]:
        assert set(target) == {"refId", "datasource", "expr", "legendFormat"}
    options = panel["options"]
    if panel["type"] == "timeseries":
        assert set(options) == {"legend", "tooltip"}
        assert options["legend"]["displayMode"] in ("list", "table", "hidden")
        return
    assert panel["type"] == "stat"
    assert set(options["reduceOptions"]) == {"calcs", "fields", "values"}
    assert options["reduceOptions"]["calcs"] == ["lastNotNull"]
    assert options["colorMode"] in ("none", "value", "background", "background_solid")
    assert options["graphMode"] in ("none", "area")
    assert options["textMode"] in ("auto", "value", "value_and_name", "name", "none")
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert steps[0]["value"] is None
    values = [step["value"] for step in steps[1:]]
    assert values == sorted(values)


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    a, b = one["gridPos"], other["gridPos"]
    return all(a[at] < b[at] + b[size] and b[at] < a[at] + a[size] for at, size in (("x", "w"), ("y", "h")))


class TestTheRules:
    @each_of(*ALERTS)
    def test_a_rule_says_what_happened_and_what_to_do(self, *, rule: Any) -> None:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "description", "to_do"}
        assert all(isinstance(text, str) and text for text in rule["annotations"].values())
        used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        assert used <= labels_of(rule["expr"])
        assert re.fullmatch(r"\d+[ms]", rule.get("for", "0s"))

    def test_names_are_unique(self) -> None:
        names = [rule["alert"] for rule in ALERTS]
        assert len(names) == len(set(names))

    def test_what_the_fleet_can_suffer_is_watched(self) -> None:
        watched = {sign.name for rule in ALERTS for sign in shown(rule["expr"])}
        assert watched >= {
            "queue_oldest_due_seconds",
            "jobs_ended_total",
            "lease_expirations_total",
            "workers",
            "orphaned_jobs",
            "fencing_rejections_total",
            "heartbeats_total",
            "minute_age_seconds",
            "stuck_slots",
            "schedule_lateness_seconds",
        }


def strings(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for inner in node.values():
            yield from strings(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from strings(inner)


def test_nothing_else_speaks_of_series_that_do_not_exist() -> None:
    for text in strings([DASHBOARD, RULES]):
        # Commands and the package have names of the same kind.
        named = {name for name in re.findall(r"\bpulse_\w+", text) if name not in SERIES}
        commands = {"pulse_status", "pulse_watchdog", "pulse_retry", "pulse_check", "pulse_workflows"}
        assert named <= {"pulse_django"} | commands

"""What became of a run of the peers, as Markdown: medians with their ranges, settings, and what was not measured.

python benchmarks/peers/report.py RESULTS.json          prints it
python benchmarks/peers/report.py RESULTS.json PAGE.md  draws the pictures and writes both into that page's marks

Of several results, what a later one measured again replaces what the earlier ones say; the report tells of all runs.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- bench: written by benchmarks/peers/report.py -->", "<!-- end of bench -->"
DRAINS = ("sync, 1 process", "sync, 2 processes", "async, 1 process", "async, 2 processes")
WRITES = ("sync ORM, 1 process", "sync ORM, 2 processes", "async ORM, 1 process")
Results = dict[str, Any]
Key = tuple[str, str, str]  # measure, variant, figure


def values(results: Results, peer: str, key: Key) -> list[float]:
    """Return what was found in each round."""
    measure, variant, figure = key
    return [
        entry["figures"][figure]
        for entry in results["measurements"]
        if (entry["peer"], entry["measure"]) == (peer, measure)
        and variant in ("", entry["variant"])
        and figure in entry["figures"]
    ]


def median(results: Results, peer: str, key: Key) -> float | None:
    found = values(results, peer, key)
    return statistics.median(found) if found else None


def cell(found: Sequence[float]) -> str:
    """Return the median, and the range if there was more than one round."""
    if not found:
        return ""
    middle = number(statistics.median(found))
    return middle if len(found) == 1 else f"{middle} ({number(min(found))} to {number(max(found))})"


def number(value: float) -> str:
    """Return three digits that count, or all of a large or a whole number."""
    if value >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def table(results: Results, heads: Sequence[str], keys: Sequence[Key], *, lowest_first: bool = False) -> str:
    """Return one row for each who has a figure, the best first, by the first figure that it has."""
    rows = []
    for name, peer in results["peers"].items():
        cells = [cell(values(results, name, key)) for key in keys]
        if any(cells):
            known = [value for key in keys if (value := median(results, name, key)) is not None]
            best = known[0] if lowest_first else -max(known)
            rows.append((best, f"| {peer['title']} | {' | '.join(cells)} |"))
    if not rows:
        return ""
    head = f"| | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}"
    return "\n".join([head, *(row for _, row in sorted(rows))])


def combined(runs: Sequence[Results]) -> Results:
    """Return what the runs say together: each measure as the last of them has it that measured it."""
    together: Results = {"runs": runs, "peers": {}, "measurements": [], "failures": [], "measures": []}
    for run in runs:
        together["peers"] |= run["peers"]
        again = set(run["about"]["measures"])
        for kind in ("measurements", "failures"):
            together[kind] = [one for one in together[kind] if one["measure"] not in again] + run[kind]
        together["measures"] = [*dict.fromkeys([*together["measures"], *run["about"]["measures"]])]
    return together


def conditions(results: Results) -> str:
    about = results["about"]
    settings = ", ".join(f"{name} {value}" for name, value in about["postgresql_settings"].items())
    ended = f"ended {about['ended_at']}" if results["is_finished"] else "was broken off"
    load = f"{about['load_at_begin']:.1f}"
    if "load_at_end" in about:
        load += f" at the beginning and {about['load_at_end']:.1f} at the end"
    if about["niceness"]:
        load += f", and all of this with a niceness of {about['niceness']}"
    rounds = f" {about['rounds']} rounds: a figure is their median, its range follows."
    if about["rounds"] == 1:
        rounds = " One round: there are no ranges."
    return (
        f"`{about['command']}` (commit {about['commit']}) began {about['begun_at']} and {ended}. {about['machine']},"
        f" {about['processors']} processors, {about['memory_gib']} GiB; load (1 minute) {load}."
        f" PostgreSQL {about['postgresql']} ({settings}); Redis {about['redis'] or 'none'};"
        f" Python {about['python']} unless the versions below say otherwise."
        f"{rounds}"
        f" Statements were counted with {about['statements_from']}."
    )


def contenders(results: Results) -> str:
    rows = [
        f"| {peer['title']} | {peer['version'] or ''} | {peer['settings']} |"
        for peer in results["peers"].values()
        if not peer["reason"]
    ]
    return "\n".join(["| | versions | settings |", "|---|---|---|", *rows])


def unmeasured(results: Results) -> str:
    """Return everything that was asked for and has no figure, each with its reason."""
    rows = []
    for name, peer in results["peers"].items():
        if peer["reason"]:
            rows.append((peer["title"], "everything", peer["reason"]))
        rows += [(peer["title"], what, why) for what, why in peer["without"].items() if was_asked(results, what)]
        rows += [
            (peer["title"], f"{failure['measure']}, {failure['variant']}", failure["reason"])
            for failure in results["failures"]
            if failure["peer"] == name
        ]
    if not rows:
        return "Everything that was asked for was measured."
    return "\n".join(["| | what | why not |", "|---|---|---|", *(f"| {a} | {b} | {escape(c)} |" for a, b, c in rows)])


def was_asked(results: Results, what: str) -> bool:
    return what.split(",")[0] in results["measures"]


def escape(text: str) -> str:
    """Keep a stranger's error from being Markdown."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("`", "'").replace("[", "\\[")


def growth(results: Results) -> str:
    entries = [entry for entry in results["measurements"] if entry["measure"] == "growth"]
    plain = [entry for entry in entries if "claim_1_ms" in entry["figures"]]
    held = [entry for entry in entries if "claim_100_ms_first_tenth" in entry["figures"]]
    parts = []
    if plain:
        rows = [row(entry, ("claim_1_ms", "claim_100_ms", "lanes_ms")) for entry in plain]
        head = "| this project | claim of 1, ms | claim of 100, ms | which queues there are, ms |\n|---|---|---|---|"
        parts.append("\n".join([head, *rows]))
    if held:
        rows = [row(entry, ("claim_100_ms_first_tenth", "claim_100_ms_last_tenth")) for entry in held]
        head = "| this project, draining | claim of 100 in the first tenth, ms | in the last tenth, ms |\n|---|---|---|"
        parts.append("\n".join([head, *rows]))
    return "\n\n".join(parts)


def row(entry: dict[str, Any], names: Iterable[str]) -> str:
    return f"| {entry['variant']} | {' | '.join(number(entry['figures'][name]) for name in names)} |"


def recovery(results: Results) -> str:
    found = table(
        results, ["seconds from the kill to the next run"], [("recovery", "defaults", "seconds")], lowest_first=True
    )
    late = [failure for failure in results["failures"] if failure["measure"] == "recovery"]
    rows = [f"| {results['peers'][failure['peer']]['title']} | {escape(failure['reason'])} |" for failure in late]
    if not found and rows:
        found = "| | seconds from the kill to the next run |\n|---|---|"
    return "\n".join([found, *rows]) if found else ""


def beside(results: Results) -> str:
    points = list(dict.fromkeys(e["variant"] for e in results["measurements"] if e["measure"] == "beside"))
    heads = [point.removeprefix("finished rows: ") for point in points]
    return table(results, heads, [("beside", point, "jobs_per_s") for point in points])


def cost(results: Results) -> str:
    heads = ["statements a job", "commits a job", "WAL bytes a job"]
    keys = [("cost", "", "statements_per_job"), ("drain", "", "commits_per_job"), ("drain", "", "wal_bytes_per_job")]
    return table(results, heads, keys, lowest_first=True)


SECTIONS: tuple[tuple[str, str, Callable[[Results], str]], ...] = (
    (
        "Drain of a backlog of no-ops, jobs a second",
        "drain",
        lambda results: table(results, DRAINS, [("drain", variant, "jobs_per_s") for variant in DRAINS]),
    ),
    (
        "Drain of jobs that each write one row by Django's ORM, jobs a second",
        "orm",
        lambda results: table(results, WRITES, [("orm", variant, "jobs_per_s") for variant in WRITES]),
    ),
    (
        "Enqueue, jobs a second",
        "enqueue",
        lambda results: table(
            results, ["one by one", "in bulk"], [("enqueue", how, "jobs_per_s") for how in ("one", "many")]
        ),
    ),
    (
        "Pickup, milliseconds",
        "pickup",
        lambda results: table(
            results,
            ["p50", "p95", "p99"],
            [("pickup", "", f"{p}_ms") for p in ("p50", "p95", "p99")],
            lowest_first=True,
        ),
    ),
    ("Cost of a job", "cost", cost),
    (
        "An idle worker",
        "idle",
        lambda results: table(
            results,
            ["memory (PSS), MiB", "processes", "processor, %", "statements a second"],
            [("idle", "", name) for name in ("pss_mib", "processes", "cpu_percent", "statements_per_s")],
            lowest_first=True,
        ),
    ),
    ("Drain beside finished jobs, jobs a second", "beside", beside),
    ("After SIGKILL, at the defaults", "recovery", recovery),
    ("How claims grow", "growth", growth),
)


def markdown(results: Results, pictures: Sequence[str] = ()) -> str:
    """Return the report of combined runs: what was measured, under which conditions, and what was not."""
    parts = [*(conditions(run) for run in results["runs"]), *pictures]
    for title, measure, write in SECTIONS:
        if measure in results["measures"]:
            parts += [f"### {title}", write(results) or "Nothing was measured."]
    parts += ["### Who was measured, and how set", contenders(results), "### Not measured", unmeasured(results)]
    return "\n\n".join(parts)


def write_into(page: Path, text: str) -> None:
    """Replace what stands between the marks."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def main() -> None:
    *files, page = sys.argv[1:] if sys.argv[-1].endswith(".md") else [*sys.argv[1:], ""]
    results = combined([json.loads(Path(file).read_text()) for file in files])
    if not page:
        print(markdown(results))
        return
    from plots import draw  # its neighbour, which needs matplotlib

    drawn = draw(results, Path(page).parent.parent / "images")
    write_into(Path(page), markdown(results, [f"![{title}](../images/{name})" for title, name in drawn]))


if __name__ == "__main__":
    main()

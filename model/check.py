"""Check the model of the protocol: the design holds, and without any one of its rules a named invariant breaks.

    python model/check.py                          all of it, as a table; exit code 0 if all is as expected
    python model/check.py design REAPER_REFUNDS    these only
    python model/check.py --trail REAPER_REFUNDS   what goes wrong then, step by step

Needs spin and a C compiler, and nothing else. docs/explanation/model.md tells what the results mean.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

LEASE, NEEDS = (Path(__file__).with_name(name) for name in ("lease.pml", "needs.pml"))
HOLDS = "holds"
FINISHES = "finishes"
PATIENCE = 300  # seconds for one program; on a slow machine the longest takes ten


@dataclass(frozen=True)
class Variant:
    """The model with some switches set, and what must be found."""

    switches: tuple[str, ...]
    expected: str = HOLDS
    model: Path = LEASE

    @property
    def name(self) -> str:
        return "+".join(self.switches) or ("design" if self.model == LEASE else self.model.stem)

    @property
    def is_live(self) -> bool:
        return "LIVE" in self.switches


@dataclass(frozen=True)
class Result:
    variant: Variant
    found: str
    states: int
    transitions: int
    seconds: float
    trail: tuple[str, ...]

    @property
    def is_expected(self) -> bool:
        return self.found == self.variant.expected


def variant(switches: str, expected: str = HOLDS, model: Path = LEASE) -> Variant:
    return Variant(tuple(switches.split()), expected, model)


# As it is designed, and with what is thrown at it or may be chosen.
DESIGN = [
    variant(""),
    variant("MAX_ATTEMPTS=3"),
    variant("FREE_LOSSES"),
    variant("DATABASE_FORGETS"),
    variant("LIVE"),
    variant("LIVE FREE_LOSSES THREADS=2"),
]

# Rules that another one makes up for, as long as that one is there.
SPARE = [
    variant("NO_ATTEMPT_IN_FENCE"),
    variant("NO_ATTEMPT_IN_FENCE DATABASE_FORGETS THREADS=2"),
    variant("HOLDER_REUSED"),
    variant("HEARTBEAT_WITHOUT_HOLDER"),
]

# A rule removed, and the first invariant that breaks. Two switches: the second is what the rule is there for, or the
# other half of what keeps the same invariant.
BROKEN = [
    variant("STATUS_ONLY_FENCE", "no_stale_settle"),
    variant("NO_ATTEMPT_IN_FENCE HOLDER_REUSED", "no_stale_settle"),
    variant("HOLDER_REUSED DATABASE_FORGETS", "minted_once"),
    variant("RELEASE_UNFENCED", "no_stale_settle"),
    variant("HEARTBEAT_UNFENCED", "no_stale_heartbeat"),
    variant("HEARTBEAT_WITHOUT_HOLDER DATABASE_FORGETS", "no_stale_heartbeat"),
    variant("REAPER_REFUNDS", "attempts_rise"),
    variant("REAPER_REFUNDS HOLDER_REUSED", "minted_once"),
    variant("RETRY_LOWERS_ATTEMPTS", "attempts_rise"),
    variant("RETRY_LOWERS_ATTEMPTS HOLDER_REUSED", "minted_once"),
    variant("TOKEN_BEFORE_CLAIM", "token_rises"),
    variant("DATABASE_FORGETS TOKENS_STILL_TRUSTED", "token_rises"),
    variant("CLAIM_READS_THEN_WRITES", "one_current_holder"),
    variant("RUNNING_BEFORE_LEASE", "running_iff_leased"),
    variant("SETTLE_REVIVES_TERMINAL", "terminal_once"),
    variant("SUCCESS_ALWAYS_WELCOME", "one_success"),
    variant("SETTLE_IGNORES_CANCEL", "cancel_wins"),
    variant("DEAD_WITHOUT_REASON", "dead_has_reason"),
    variant("LEDGER_AFTERWARDS", "ledger_complete"),
    variant("LEAVES_BY_COPY", "in_one_place"),
    variant("LEAVES_IN_TWO_STATEMENTS", "in_one_place"),
    variant("REAP_READS_THEN_WRITES", "terminal_once"),
    variant("REAP_WITHOUT_REASON", "reap_has_reason"),
    variant("REAP_WITHOUT_BUDGET", "budget_kept"),
    variant("REAP_IGNORES_CANCEL", "cancel_wins"),
    variant("RETRY_GRANTS_NOTHING", "budget_kept"),
    variant("RETRY_WITHOUT_ATTEMPT", "retried_as_seen"),
    # One thread a worker is enough to see that a job never ends, and makes for a short story.
    variant("LIVE NO_WATCHDOG THREADS=2", FINISHES),
    variant("LIVE NO_DEADLINE THREADS=2", FINISHES),
    variant("LIVE DELETE_ON_CLAIM THREADS=2", FINISHES),
]

# What must be able to happen, or the invariants would hold of nothing: denied by these switches.
SHOWN = [
    variant("SHOW_ZOMBIES", "never_seen"),
    variant("SHOW_LONGEST_LIFE", "never_seen"),
]

# What follows an end: no order of statements strands or doubles a job that needs others.
FOLLOWS = [
    variant("", model=NEEDS),
    variant("BEGINS_TO_WAIT", model=NEEDS),
    variant("LOOKS_BEFORE_COMMIT", "nobody_stranded", NEEDS),
    variant("NOTES_AFTERWARDS", "nobody_stranded", NEEDS),
    variant("NO_LOCK", "nobody_stranded", NEEDS),
    variant("LEAVES_NO_NOTE", "nobody_stranded", NEEDS),
    variant("BEGINS_TO_WAIT WAITS_WITHOUT_NOTE", "nobody_stranded", NEEDS),
    variant("BEGINS_TO_WAIT FREES_UNLOCKED", "freed_once", NEEDS),
    variant("BEGINS_TO_WAIT MARKS_WITHOUT_LOOK", "started_early", NEEDS),
    variant("SHOW_FREED", "never_freed", NEEDS),
]

VARIANTS = {one.name: one for one in [*DESIGN, *SPARE, *SHOWN, *BROKEN, *FOLLOWS]}


# Who acts in a line of a trail.
_WHO = r"(Worker|A late message|Watchdog|Operator|Time|Database|Settler|Waiter|Call|    [A-Z])"


def stop(message: str) -> NoReturn:
    sys.stderr.write(f"{message}\n")
    sys.exit(2)


@dataclass(frozen=True)
class Tools:
    spin: str
    compiler: str

    @classmethod
    def found(cls) -> Tools:
        spin = shutil.which("spin")
        if spin is None:
            stop("spin is missing. Debian, Ubuntu: apt-get install spin. macOS: brew install spin. See spinroot.com.")
        for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
            if name and (compiler := shutil.which(name)):
                return cls(spin, compiler)
        stop("A C compiler is missing. Debian, Ubuntu: apt-get install gcc libc6-dev. macOS: xcode-select --install.")

    def check(self, one: Variant) -> Result:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="pulse-model-") as folder:
            self._make(one, folder)
            output = _run(folder, "./pan", "-m1000000", *(_live_options(one) if one.is_live else ()))
            found = _verdict(one, output)
            trail = () if found == HOLDS else tuple(self._tell(one, folder))
        states, transitions = (_number(r"(\d+) " + what, output) for what in ("states, stored", "transitions"))
        return Result(one, found, states, transitions, time.monotonic() - began, trail)

    def _spin(self, one: Variant, folder: str, *options: str) -> str:
        switches = [f"-D{switch}" for switch in one.switches]
        return _run(folder, self.spin, f"-P{self.compiler} -E -x c", *options, *switches, str(one.model))

    def _make(self, one: Variant, folder: str) -> None:
        generated = self._spin(one, folder, "-a")
        if not Path(folder, "pan.c").exists() or "syntax error" in generated:
            stop(f"{one.name}: spin does not accept the model\n{generated}")
        log = _run(folder, self.compiler, "-w", *_compiler_options(one), "-o", "pan", "pan.c")
        if not Path(folder, "pan").exists():
            stop(f"{one.name}: the C compiler failed\n{log}")

    def _tell(self, one: Variant, folder: str) -> Iterator[str]:
        for line in self._spin(one, folder, "-t", "-T", "-k", f"{one.model.name}.trail").splitlines():
            if "START OF CYCLE" in line:
                yield "From here on the same for ever:"
            elif re.match(_WHO, line):
                yield line


def _compiler_options(one: Variant) -> Sequence[str]:
    """Breadth first finds the shortest way to go wrong. To optimise would take longer than it saves."""
    if one.is_live:  # NFAIR: room for up to 30 processes; REACH: a search for the shortest cycle misses none
        return ("-O0", "-DNFAIR=4") if one.expected == HOLDS else ("-O0", "-DNFAIR=4", "-DREACH")
    return ("-O0", "-DSAFETY") if one.expected == HOLDS else ("-O0", "-DSAFETY", "-DBFS")


def _live_options(one: Variant) -> Sequence[str]:
    """Cycles, under weak fairness: whoever can go on for ever does so at some time."""
    return ("-a", "-f") if one.expected == HOLDS else ("-a", "-f", "-i")


def _verdict(one: Variant, output: str) -> str:
    if broken := re.search(r"assertion violated (\w+)", output):
        return broken[1]
    if "acceptance cycle (at" in output:
        return FINISHES if re.search(rf"never claim\s+\+ \({FINISHES}\)", output) else "a cycle"
    if "max search depth too small" in output or "Search not completed" in output:
        return "search not completed"
    if not re.search(r"errors: 0\b", output):
        return "no verdict"
    return HOLDS


def _number(pattern: str, output: str) -> int:
    found = re.search(pattern, output)
    return int(found[1]) if found else 0


def _run(folder: str, *command: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - spin, the compiler and what they made of our own model
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        stop(f"{' '.join(command)} took more than {PATIENCE} s")
    return done.stdout


def _table(results: Sequence[Result]) -> Iterator[str]:
    width = max(len(result.variant.name) for result in results)
    form = f"{{:<{width}}}  {{:<18}}  {{:<18}}  {{:>8}}  {{:>11}}  {{:>7}}  {{}}"
    yield form.format("variant", "expected", "found", "states", "transitions", "seconds", "verdict")
    for result in results:
        yield form.format(
            result.variant.name,
            result.variant.expected,
            result.found,
            result.states,
            result.transitions,
            f"{result.seconds:.1f}",
            "as expected" if result.is_expected else "WRONG",
        )


def _chosen(names: Sequence[str]) -> list[Variant]:
    unknown = [name for name in names if name not in VARIANTS]
    if unknown:
        stop(f"No such variant: {', '.join(unknown)}. There are: {', '.join(VARIANTS)}")
    return [VARIANTS[name] for name in names] or list(VARIANTS.values())


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Check the model of the protocol with spin.")
    parser.add_argument("variants", nargs="*", help="check these only", metavar="VARIANT")
    parser.add_argument("--trail", help="print how this one goes wrong, step by step", metavar="VARIANT")
    parser.add_argument("--jobs", type=int, default=2, help="how many to check at once (default: 2)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _arguments(arguments)
    chosen = _chosen([asked.trail] if asked.trail else asked.variants)
    tools = Tools.found()
    began = time.monotonic()
    with ThreadPoolExecutor(max(1, asked.jobs)) as pool:
        results = list(pool.map(tools.check, chosen))
    if asked.trail:
        [result] = results
        lines = [*result.trail, f"{result.variant.name}: {result.found}"]
    else:
        wrong = sum(not result.is_expected for result in results)
        total = f"{len(results)} variants in {time.monotonic() - began:.0f} s"
        lines = [*_table(results), "", f"{total}, " + (f"{wrong} WRONG" if wrong else "all as expected")]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if all(result.is_expected for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())

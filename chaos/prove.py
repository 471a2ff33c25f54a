"""``python -m chaos.prove``: the suite is itself proved. Each planted bug has to be found, by a rule that fits it."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
os.environ["PULSE_NO_SERVER"] = "1"

import django

django.setup()

from chaos.graph_mutants import GRAPH_MUTANTS
from chaos.limit_mutants import LIMIT_MUTANTS
from chaos.mutants import MUTANTS
from chaos.schedule_mutants import SCHEDULE_MUTANTS
from chaos.shard_mutants import SHARD_MUTANTS

# Which run has to find each.
RUNS = {
    **dict.fromkeys(MUTANTS, ("chaos.run",)),
    **dict.fromkeys(SHARD_MUTANTS, ("chaos.run", "--shards", "3")),
    **dict.fromkeys(SCHEDULE_MUTANTS, ("chaos.schedules",)),
    **dict.fromkeys(LIMIT_MUTANTS, ("chaos.limits",)),
    **dict.fromkeys(GRAPH_MUTANTS, ("chaos.graphs",)),
}
TRIES = 3  # seeds: a race may need luck


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="mutants by name")
    parser.add_argument("--seconds", default="20")
    options = parser.parse_args()
    missed = [name for name in options.only or RUNS if not is_found(name, options.seconds)]
    print(f"{len(options.only or RUNS) - len(missed)} found, {len(missed)} missed: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


def is_found(name: str, seconds: str) -> bool:
    environment = {key: value for key, value in os.environ.items() if key != "PULSE_NO_SERVER"}
    for seed in range(1, TRIES + 1):
        command = [sys.executable, "-m", *RUNS[name], "--seed", str(seed), "--seconds", seconds, "--mutant", name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        said = [line for line in done.stdout.splitlines() if line.startswith("MUTANT")]
        print(f"{said[-1] if said else done.stderr[-500:]} (seed {seed})", flush=True)
        if done.returncode == 0:
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())

"""Each mutant of the chaos can still be planted: its place in the code is there."""

from __future__ import annotations

import subprocess
import sys

from tests.crash.processes import ROOT

# Plants each in a child of its own, which inherits the imports.
PLANT_EACH = """
import os, sys
import django

django.setup()

from chaos.graph_mutants import GRAPH_MUTANTS
from chaos.limit_mutants import LIMIT_MUTANTS
from chaos.schedule_mutants import SCHEDULE_MUTANTS
from chaos.shard_mutants import ALL_MUTANTS

plants = GRAPH_MUTANTS | LIMIT_MUTANTS | SCHEDULE_MUTANTS | {name: one.plant for name, one in ALL_MUTANTS.items()}
failed = []
for name, plant in plants.items():
    if (child := os.fork()) == 0:
        try:
            plant()
        except BaseException as error:
            print(f"{name}: {error!r}", flush=True)
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        failed.append(name)
print(len(plants), "planted", flush=True)
sys.exit(bool(failed))
"""


def test_mutants_have_their_places() -> None:
    ran = subprocess.run([sys.executable, "-c", PLANT_EACH], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert int(ran.stdout.split()[-2]) > 50

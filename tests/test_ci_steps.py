"""What .ci/run does with steps that fail, use too much, or run beside others."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

STEPS = Path(__file__).parent.parent / ".ci/steps.sh"
BURN = "python3 -c 'import time\nwhile time.process_time() < 0.4: pass'"


def run(script: str) -> tuple[int, str]:
    """Run steps as .ci/run does. Return the exit code, and all that was said."""
    at_the_end = "trap 'code=$?; summary; echo FAILED: $current; rm -r $STEPS_FOLDER; exit $code' EXIT"
    whole = f"set -euo pipefail\nsource {STEPS}\n{at_the_end}\n{script}"
    done = subprocess.run(["bash", "-c", whole], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_a_step_within_its_budget_passes_with_used_and_budgeted_seconds_in_the_summary() -> None:
    code, said = run('budget "a" 10 20\nbudget "b" 30 40\nstep "a" echo hello\nstep "b" true\nwithin_the_hour')
    assert code == 0, said
    assert "hello" in said
    assert "0 of    10       0 of    20      1  a" in said
    assert "0 of    40       0 of    60         all steps" in said


def test_a_step_that_uses_more_than_its_processor_seconds_fails_the_run() -> None:
    code, said = run(f'budget "a" 60 0.1\nstep "a" sh -c "{BURN}"\necho went on')
    assert code != 0
    assert 'The step "a" used 0.' in said
    assert "more than 1.5 times its budget of 0.1" in said
    assert "went on" not in said


def test_on_a_slower_machine_a_step_may_take_as_much_more() -> None:
    slower = 'echo "$(($(date +%s) + 2)) 9.00" >"$STEPS_FOLDER/pace"'
    burn = BURN.replace("0.4", "2")
    code, said = run(f'{slower}\nbudget "a" 60 1\nstep "a" sh -c "{burn}"\nSECONDS=4000\nwithin_the_hour')
    assert code == 0, said
    assert "2 of     1   9.00  a" in said
    faster = slower.replace("9.00", "0.10")
    code, said = run(f'{faster}\nbudget "a" 60 1\nstep "a" sh -c "{BURN}"')
    assert code == 0, "a faster one changes nothing"


def test_what_else_fails_a_run_or_is_a_line_in_its_summary() -> None:
    code, said = run('budget "a" 0 10\nstep "a" sleep 1')
    assert code == 0, "a step that only waits"
    assert "more than 1.5 times its wall seconds" in said
    code, said = run('step "a" echo hello')
    assert code != 0
    assert 'The step "a" has no budget' in said
    assert "hello" not in said
    code, said = run(f'budget "a" 60 0.1\nother() {{ sh -c "{BURN}"; }}\nstep "a" other')
    assert code != 0, "the processes that a step waited for count"
    code, said = run("SECONDS=3601\nwithin_the_hour")
    assert code != 0
    assert re.search(r"the run took 360\d s, and may take 3600", said)


def test_a_step_that_fails_fails_the_run_with_its_own_code_and_words() -> None:
    code, said = run("budget 'a' 10 10\nstep 'a' sh -c 'echo why >&2; exit 3'\necho went on")
    assert code == 3
    assert "why" in said
    assert "FAILED: a" in said
    assert "went on" not in said


def test_a_step_beside_others_is_waited_for_and_judged_like_any(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "slow").write_text(f"read line <{tmp_path}/pipe; echo got $line; exit $1")
    for exit_code in (0, 5):
        code, said = run(f"""
            budget "slow" 60 60
            budget "quick" 60 60
            beside "slow" sh {tmp_path}/slow {exit_code}
            step "quick" sh -c "echo a line >{tmp_path}/pipe"
            join
        """)
        assert code == exit_code, said
        assert "got a line" in said, "the other step runs meanwhile, or this one would never end"

"""The harness that starts, freezes and kills processes, on programs of a shell."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testproject.harness.census import census
from testproject.harness.processes import ProcessFailed, StartedProcess, StartedProcesses, wait_until

# A shell, a shell of its own, and a program of that one.
FAMILY = "sh -c 'sleep 60 & wait' & echo is ready; wait"
# The grandchild leaves the group, as what a handler starts may.
SCATTERED = f"{sys.executable} -c 'import os, time; os.setsid(); print(\"gone\", flush=True); time.sleep(60)' & wait"
Start = Callable[..., StartedProcess]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[StartedProcesses]:
    with StartedProcesses(tmp_path) as processes:
        yield processes


@pytest.fixture
def start(processes: StartedProcesses) -> Start:
    def start(script: str, name: str = "program") -> StartedProcess:
        return processes.start(name, ["sh", "-c", script], dict(os.environ))

    return start


def family_of(program: StartedProcess, size: int) -> list[int]:
    wait_until(lambda: len(program.family()) == size, lambda: f"{program.family()}:\n{program.log}")
    return program.family()


def states(pids: list[int]) -> set[str]:
    now = census()
    return {now[pid].state if pid in now else "gone" for pid in pids}


def test_a_program_that_is_not_ready_or_does_not_end_as_it_should_fails_with_its_log(start: Start) -> None:
    program = start("echo no database; exit 3")
    began = time.monotonic()
    with pytest.raises(ProcessFailed, match=r"program ended with 3 before it said .*:\nno database"):
        program.wait_until_it_says("is ready", patience=30)
    assert time.monotonic() - began < 15, "at once"
    program = start("echo is ready; echo done")
    program.wait()
    program.wait_until_it_says("is ready", "done")  # what it said before it ended counts
    endless, failing = start("echo at work; sleep 60", "endless"), start("echo broken; exit 2", "failing")
    wait_until(lambda: endless.says("at work"), "it said nothing")
    with pytest.raises(ProcessFailed, match=r"endless did not say \('is ready',\):\nat work"):
        endless.wait_until_it_says("is ready", patience=0.1)
    with pytest.raises(ProcessFailed, match=r"endless did not end within 0.1 s:\nat work"):
        endless.wait(0.1)
    with pytest.raises(ProcessFailed, match=r"failing ended with 2, not with 0:\nbroken"):
        failing.expect_exit(0)
    failing.expect_exit(2)


def test_a_program_that_writes_much_is_not_held_up(start: Start) -> None:
    """The child writes more than a pipe holds, and no reader empties it."""
    program = start("head -c 1000000 /dev/zero | tr '\\0' x; echo; echo the end")
    program.expect_exit(0)
    assert len(program.log) > 1_000_000
    assert program.log_end.endswith("the end")


def test_a_log_starts_empty_and_can_be_emptied_while_it_is_written(start: Start) -> None:
    start("echo first").wait()
    program = start("echo second; read line; echo third; kill -STOP $$; echo fourth")
    wait_until(lambda: states([program.pid]) == {"T"}, lambda: program.log)
    assert program.log == "second\nthird\n"
    os.truncate(program.log_path, 0)
    program.thaw()
    program.wait()
    assert program.log == "fourth\n"


def test_all_processes_are_frozen_and_go_on_and_are_killed_also_when_they_are_frozen(start: Start) -> None:
    program = start(FAMILY)
    family = family_of(program, 3)
    assert program.freeze() == family
    assert states(family) == {"T"}
    program.thaw()
    wait_until(lambda: "T" not in states(family), "they stand still")
    program.freeze()
    assert program.kill() == 3
    assert program.exit_code == -signal.SIGKILL
    assert states(family) <= {"gone", "Z"}


def test_processes_are_killed_that_left_the_group_or_lost_their_parent(start: Start) -> None:
    program = start(SCATTERED)
    program.wait_until_it_says("gone")
    [parent, scattered] = family_of(program, 2)
    os.kill(parent, signal.SIGKILL)
    program.wait()
    assert program.family() == []
    assert program.survivors() == [scattered]
    assert program.left_behind(0.1) == {scattered}
    program.kill()
    assert program.survivors() == []
    assert states([scattered]) <= {"gone", "Z"}


def test_a_program_that_ends_by_itself_is_told_from_one_that_was_told_to(
    processes: StartedProcesses, start: Start
) -> None:
    killed, stopped, deserter = start("sleep 60", "killed"), start("sleep 60", "stopped"), start("exit 1", "deserter")
    deserter.wait()
    killed.kill()
    assert stopped.stop() == -signal.SIGTERM
    assert processes.ended_by_themselves() == [deserter]


def test_a_program_that_ignores_sigterm_is_killed_when_patience_is_over(start: Start) -> None:
    program = start("trap '' TERM; echo is ready; while :; do sleep 0.1; done")
    program.wait_until_it_says("is ready")
    assert program.stop(0.2) == -signal.SIGKILL


def test_nothing_is_left_when_a_block_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), StartedProcesses(tmp_path) as processes:
        program = processes.start("program", ["sh", "-c", FAMILY], dict(os.environ))
        family = family_of(program, 3)
        raise ZeroDivisionError
    assert states(family) <= {"gone", "Z"}

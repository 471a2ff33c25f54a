"""The misfortunes. Each is done to one worker, or to the database, for a while, and then it is over."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from chaos.stage import TTL, Database, Worker
from testproject.harness.processes import send
from tests.citus import another_node_stopped, is_on_citus, may_stop_nodes
from tests.sabotage import THREADS

Wait = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Nemesis:
    name: str
    act: Callable[[Worker, Database, Wait], None]  # returns when it is over
    is_for_all: bool = False  # it is done to the database
    excuses: bool = True  # a lease may be lost by it
    stops: bool = False  # the worker does not get to run meanwhile
    controls_server: bool = False  # the server has to be one that the run has started
    needs_standby: bool = False
    in_one_shard: bool = False  # leases of other shards may not be lost by it
    strikes_workers: bool = False  # it is done to the database, and all workers may lose leases of it
    can_be: Callable[[Worker], bool] = lambda _: True  # here


def kill_all(worker: Worker, _: Database, wait: Wait) -> None:
    worker.process.kill()
    wait(0.2)
    worker.start()


def kill_keeper(worker: Worker, _: Database, wait: Wait) -> None:
    worker.process.signal(signal.SIGKILL)
    wait(TTL)
    worker.start()


def kill_child(worker: Worker, _: Database, wait: Wait) -> None:
    send(worker.process.children(), signal.SIGKILL)
    wait(0.5)


def terminate(worker: Worker, _: Database, wait: Wait) -> None:
    worker.process.signal(signal.SIGTERM)
    wait(1.0)
    worker.start()


def freeze(seconds: float) -> Callable[[Worker, Database, Wait], None]:
    def act(worker: Worker, _: Database, wait: Wait) -> None:
        process = worker.process
        process.freeze()
        wait(seconds)
        process.thaw()

    return act


def freeze_child(worker: Worker, _: Database, wait: Wait) -> None:
    pids = worker.process.children()
    send(pids, signal.SIGSTOP)
    wait(1.5 * TTL)
    send(pids, signal.SIGCONT)


def black_hole(
    seconds: float, *, questions: bool = True, answers: bool = True
) -> Callable[[Worker, Database, Wait], None]:
    """Nothing gets through any more, in these directions, and no connection is closed."""

    def act(worker: Worker, _: Database, wait: Wait) -> None:
        worker.proxy.swallow(questions=questions, answers=answers)
        wait(seconds)
        worker.proxy.heal()
        wait(0.5)  # the dead connections are noticed, and then they are buried
        worker.proxy.bury()

    return act


def black_hole_to_one(worker: Worker, database: Database, wait: Wait) -> None:
    """Nothing gets through to one of the databases any more, and no connection is closed."""
    proxy = worker.proxy.of[database.alias]
    proxy.swallow()
    wait(2.5 * TTL)
    proxy.heal()
    wait(0.5)
    proxy.bury()


def jump(seconds: float) -> Callable[[Worker, Database, Wait], None]:
    """The wall clock of a worker is set, as by NTP or by hand, and set right again after a while."""

    def act(worker: Worker, _: Database, wait: Wait) -> None:
        worker.clock.jump_to(seconds)
        wait(1.5 * TTL)
        worker.clock.jump_to(0.0)

    return act


def resets(worker: Worker, _: Database, wait: Wait) -> None:
    for _number in range(5):
        worker.proxy.hang_up()
        wait(0.3)


def refused(worker: Worker, _: Database, wait: Wait) -> None:
    """As when a firewall rejects, or the server has no connections left; for longer than a lease."""
    worker.proxy.refuse()
    wait(1.3 * TTL)
    worker.proxy.heal()


def lost_answers(worker: Worker, _: Database, wait: Wait) -> None:
    """The statement was done, and nobody is told: of a claim, a settle, a heartbeat."""
    for words in (b"WITH picked (id)", b"WITH report AS", b"WITH held AS"):
        worker.proxy.lose_the_answer_to(words)
        wait(0.5)


def restart(_: Worker, database: Database, wait: Wait) -> None:
    database.stop("fast")
    database.start()


def crash(_: Worker, database: Database, wait: Wait) -> None:
    database.stop("immediate")
    database.start()


def killed(_: Worker, database: Database, wait: Wait) -> None:
    database.kill()
    database.start()


def away(seconds: float) -> Callable[[Worker, Database, Wait], None]:
    """For longer than a lease: nobody may be taken for lost because of it."""

    def act(_: Worker, database: Database, wait: Wait) -> None:
        database.stop("immediate")
        wait(seconds)
        database.start()

    return act


def stall(_: Worker, database: Database, wait: Wait) -> None:
    """For less than a lease, and for longer than a worker waits for an answer: it hangs up, the server goes on."""
    database.stall(0.4 * TTL)


def freeze_server(_: Worker, database: Database, wait: Wait) -> None:
    """For longer than a lease, as a virtual machine that is moved: leases end without anybody having been asked."""
    database.stall(1.5 * TTL)
    wait(0.3 * TTL)


def fail_over(_: Worker, database: Database, wait: Wait) -> None:
    database.fail_over()
    wait(0.5)
    database.make_standby()


def lock_table(_: Worker, database: Database, wait: Wait) -> None:
    """As by VACUUM FULL, or a migration of the project's. Nobody can extend a lease meanwhile."""
    # Citus locks the partitions on other servers, where it can find a deadlock with a caller before the time is up.
    only = "ONLY " if is_on_citus() else ""
    with database.locking(f"LOCK TABLE {only}pulse_django_job IN ACCESS EXCLUSIVE MODE"):
        wait(1.5 * TTL)
    wait(0.3 * TTL)


def lock_rows(_: Worker, database: Database, wait: Wait) -> None:
    """Somebody's transaction has locked whatever runs, for longer than a lease."""
    with database.locking("SELECT FROM pulse_django_job WHERE status = 'RUNNING' FOR UPDATE SKIP LOCKED"):
        wait(1.5 * TTL)


def refuse_writes(_: Worker, database: Database, wait: Wait) -> None:
    with database.read_only():
        wait(1.5 * TTL)
    wait(0.3 * TTL)


def hold_a_snapshot(_: Worker, database: Database, wait: Wait) -> None:
    """As a backup does. Vacuum removes nothing meanwhile, and no partition can be dropped."""
    with database.locking("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pulse_django_job"):
        wait(2.5 * TTL)


def change_partitions(_: Worker, database: Database, wait: Wait) -> None:
    """Partitions of days long past are made and dropped, each under the locks that this takes."""
    for day in range(20000101, 20000111):
        database.change_partitions(day)
        wait(0.1 * TTL)


def another_node_away(_: Worker, __: Database, wait: Wait) -> None:
    """One that does not have the jobs. Who serves them does not notice."""
    with another_node_stopped():
        wait(1.5 * TTL)


def end_a_thread(name: str) -> Callable[[Worker, Database, Wait], None]:
    def act(worker: Worker, _: Database, wait: Wait) -> None:
        worker.harm_itself(worker.process.children(), name)
        wait(0.5)

    return act


def leak(worker: Worker, _: Database, wait: Wait) -> None:
    """All descriptors are used up, and then the connections are cut: none can be opened again."""
    worker.harm_itself(worker.process.children(), "leak descriptors")
    wait(0.2)
    worker.proxy.hang_up()
    wait(2.5 * TTL)


def raise_everywhere(worker: Worker, _: Database, wait: Wait) -> None:
    """Receivers of signals and a handler of the log raise SystemExit from now on."""
    worker.harm_itself([worker.process.pid, *worker.process.children()], "raise")
    wait(TTL)


def can_jump(worker: Worker) -> bool:
    return worker.clock.can_jump


NEMESES = (
    Nemesis("kill -9 of a worker", kill_all),
    Nemesis("kill -9 of a keeper", kill_keeper),
    Nemesis("kill -9 of a child", kill_child),
    Nemesis("SIGTERM", terminate),
    Nemesis("freeze, shorter than a lease", freeze(0.5 * TTL), stops=True),
    Nemesis("freeze, just longer than a lease", freeze(1.1 * TTL), stops=True),
    Nemesis("freeze, longer than a lease", freeze(2.0 * TTL), stops=True),
    Nemesis("freeze of a child", freeze_child, stops=True),
    Nemesis("black hole", black_hole(2.5 * TTL)),
    Nemesis("black hole, just longer than a lease", black_hole(1.3 * TTL)),
    Nemesis("black hole for questions", black_hole(1.5 * TTL, answers=False)),
    Nemesis("black hole for answers", black_hole(1.5 * TTL, questions=False)),
    Nemesis("connections reset", resets),
    Nemesis("connections refused", refused),
    Nemesis("answers lost", lost_answers),
    Nemesis("wall clock an hour ahead", jump(3600), excuses=False, can_be=can_jump),
    Nemesis("wall clock an hour behind", jump(-3600), excuses=False, can_be=can_jump),
    Nemesis("PostgreSQL restarted", restart, is_for_all=True, controls_server=True),
    Nemesis("PostgreSQL crashed", crash, is_for_all=True, controls_server=True),
    Nemesis("kill -9 of PostgreSQL", killed, is_for_all=True, controls_server=True),
    Nemesis("PostgreSQL away", away(2.5 * TTL), is_for_all=True, controls_server=True),
    Nemesis("PostgreSQL away, just longer than a lease", away(1.2 * TTL), is_for_all=True, controls_server=True),
    Nemesis("PostgreSQL stalls, shorter than a lease", stall, is_for_all=True, controls_server=True),
    Nemesis(
        "PostgreSQL frozen",
        freeze_server,
        is_for_all=True,
        controls_server=True,
        in_one_shard=True,
        strikes_workers=True,
    ),
    Nemesis("black hole to one database", black_hole_to_one, in_one_shard=True),
    Nemesis("standby promoted", fail_over, is_for_all=True, controls_server=True, needs_standby=True),
    Nemesis("table locked", lock_table, is_for_all=True),
    Nemesis("running rows locked", lock_rows, is_for_all=True),
    Nemesis("writes refused", refuse_writes, is_for_all=True, controls_server=True),
    Nemesis("snapshot held", hold_a_snapshot, is_for_all=True, excuses=False),
    Nemesis("partitions made and dropped", change_partitions, is_for_all=True, excuses=False),
    *([Nemesis("another node away", another_node_away, is_for_all=True, excuses=False)] if may_stop_nodes() else []),
    *[Nemesis(f"thread {name!r} ends", end_a_thread(name)) for name in THREADS],
    Nemesis("descriptors leaked", leak),
    Nemesis("receivers and log handlers raise", raise_everywhere, excuses=False),
)


def schedule(chance: random.Random, names: tuple[str, ...] = ()) -> list[Nemesis]:
    """Return all of them once in an order left to chance; a run goes through it again and again."""
    chosen = [one for one in NEMESES if not names or one.name in names]
    chance.shuffle(chosen)
    return chosen


def waiting(until: float) -> Wait:
    """A pause that does not outlast the run."""
    return lambda seconds: time.sleep(max(0.0, min(seconds, until - time.monotonic())))

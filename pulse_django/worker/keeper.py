"""The keeper: the parent process of a worker. It extends the leases of its children, and runs no handlers.

Its main thread manages processes and signals, and never uses the database. The other threads have a connection each:
heartbeats, recovery of dead children, the watchdog, and wake-ups.
"""

from __future__ import annotations

import os
import selectors
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import IntEnum
from functools import partial
from typing import Any

from django.db import connections
from django.dispatch import Signal

from pulse_django import conf
from pulse_django.models import Job
from pulse_django.queue.database.workers import Presence
from pulse_django.queue.words.counters import added
from pulse_django.queue.words.leases import Identity
from pulse_django.run.notify import ANY_QUEUE
from pulse_django.safe_logging import SafeLogger
from pulse_django.signals import send, worker_ready, worker_stopping

from .channel import Channel, Message, Nudges
from .child import DRAINED, child_main
from .children import Children
from .executors.processes import runner_main
from .fork_server import start_fork_server
from .guarded_connection import GuardedConnection, longest_wait
from .heartbeat import Heartbeat
from .http_port import Exposed, HttpPort, Standing
from .listener import BEFORE_TRYING_AGAIN, Listener
from .logs import LogWriter
from .loops import Loops, add_watchdog
from .needed_threads import start_thread
from .process_samples import ProcessSamples
from .recovery import Recovery
from .shared_leases import SharedLeases
from .systemd import Systemd
from .worker_options import WorkerOptions
from .worker_registration import presence_of

logger = SafeLogger("pulse_django.worker")

# Seconds between two checks of processes and connections, until all processes are ready.
TICK = 0.2
PATIENCE_AT_END = 0.9  # seconds after the end of the last child, to return its jobs to the queue
PATIENCE_WITH_LOG = 1.0  # seconds to write the last lines
SAME_SIGNAL = 0.3  # seconds within which a second signal counts as a copy of the first


class Exit(IntEnum):
    """The exit codes of ``pulse_worker``."""

    STOPPED = 0  # it was stopped, or nothing was left to do
    REFUSED = 1  # it did not start because of checks, flags or imports (Django's code for a CommandError)
    ABANDONED = 3  # it lost its fork server; its supervisor should restart it
    NOW = 130  # a second signal: its leases expire as after a crash


class Keeper:
    def __init__(self, options: WorkerOptions, *, changed: Callable[[], bool], exposed: Exposed) -> None:
        self._options = options
        self._identity = Identity(options.name)
        self._selector = selectors.DefaultSelector()
        self._nudges: Nudges  # from signal handlers
        self._children = Children(options, self._identity, self._selector, self._tell_ready)
        self._child_slots = self._children.child_slots
        self._changed, self._exposed = changed, exposed
        died = "The thread %r of %s ended (%s)"
        self._loops = loops = Loops(lambda name, why: logger.error(died, name, self.name, why))
        self._systemd = Systemd()
        self._signals = 0
        self._signalled_at = float("-inf")
        self._why = ""
        self._is_ready_logged = False
        self._sending: threading.Thread | None = None
        self._ping_at = 0.0
        self._lines = [
            ShardLoops(shard, options, self._identity, loops, self._children, self._presence)
            for shard in range(len(options.aliases))
        ]
        self._log = LogWriter()
        self._samples = ProcessSamples()
        self._children.serve(self._lines)

    @property
    def name(self) -> str:
        return self._identity.name

    def run(self) -> Exit:
        """Run until stopped, or raise PortRefused. Call it in the main thread of a process without other threads."""
        leases = [child.leases for child in self._child_slots]

        def child(order: Message, keeper: Channel, fork_server: Channel) -> int:
            return child_main(self._options, leases[order["index"]], order, keeper, fork_server)

        fork_server = start_fork_server(child, runner_main)
        if self._options.metrics_port:  # only now, because a forked process would inherit the port
            address = self._options.metrics_host, self._options.metrics_port
            outlet = HttpPort(
                address, self._standing, lambda: self._exposed(self._presence(*self._lines), self._ready_children)
            )
            self._loops.threads.start("outlet", outlet.serve)
        self._nudges = Nudges()  # only now, for the same reason
        self._install_signals()
        self._selector.register(fork_server, selectors.EVENT_READ)
        self._selector.register(self._nudges, selectors.EVENT_READ)
        self._log.start(self._loops.threads)
        logger.info("%s: %s", self.name, self._described())
        self._loops.start()
        code: Exit | None = None
        while code is None:
            code = self._turn(fork_server)
        self._finish(code)
        return code

    # One turn of the loop

    def _turn(self, fork_server: Channel) -> Exit | None:
        for key, _ in self._selector.select(timeout=self._until_next_look()):
            if key.fileobj is self._nudges:
                self._nudges.taken()
            elif key.fileobj is fork_server:
                if not self._children.read_fork_server(fork_server):
                    logger.error("%s lost its fork server and cannot continue", self.name)
                    return self._kill_all(Exit.ABANDONED)
            else:
                self._children.hear(key.data)
        now = time.monotonic()
        self._loops.main_turned_at = now
        fork_server.flush()
        self._loops.enforce(now)
        if self._signals > 1:
            logger.warning("%s received a second signal; exiting now", self.name)
            return self._kill_all(Exit.NOW)
        if self._why == "" and (self._signals or self._changed()):
            self._stop("signal received" if self._signals else "the code has changed", now)
        for name in self._loops.restart_dead():
            logger.error("The thread %r was restarted", name)
        self._children.look_after(now)
        if self._children.stop_by is None:
            self._children.populate(fork_server, now)
        if now >= self._ping_at and self._systemd.ping_every != float("inf"):
            self._ping_at = now + self._systemd.ping_every
            self._systemd.ping()
        return self._end(now)

    def _until_next_look(self) -> float:
        all_work = self._children.stop_by is None and all(child.ready for child in self._child_slots)
        tick = min(LONGEST_TICK, max(TICK, longest_wait() / 10)) if all_work else TICK
        return min(tick, self._systemd.ping_every / 2)

    # Stopping

    def _stop(self, why: str, now: float) -> None:
        held = sum(len(child.held()) for child in self._child_slots)
        self._why = why
        self._children.stop_by = now + self._options.shutdown_grace
        for child in self._child_slots:
            if child.channel is not None:
                child.channel.send({"drain": "stopped"})
        logger.info("%s is stopping (%s): %d running, at most %g s", self.name, why, held, self._options.shutdown_grace)
        self._systemd.stopping(f"finishing {held} running")
        self._send(worker_stopping)

    def _end(self, now: float) -> Exit | None:
        if not all(child.is_empty for child in self._child_slots):
            return None
        is_recovered = all(line.recovery.is_idle for line in self._lines)
        if self._children.stop_by is None:
            if not (self._options.burst and is_recovered and all(one.ended == DRAINED for one in self._child_slots)):
                return None
            self._stop(DRAINED, now)
        is_late = now > (self._children.stop_by or 0.0) + PATIENCE_AT_END
        if is_late and not is_recovered:
            logger.warning("%s could not return all jobs to the queue in time; their leases will expire", self.name)
        return Exit.STOPPED if is_late or (is_recovered and not self._is_sending) else None

    def _kill_all(self, code: Exit) -> Exit:
        for child in self._child_slots:
            child.kill("the worker exited")
        if not self._why:
            self._send(worker_stopping)
        return code

    def _finish(self, code: Exit) -> None:
        self._loops.over.set()
        for line in self._lines:
            line.recovery.interrupt()
        if code is not Exit.NOW:
            now, stop_by = time.monotonic(), self._children.stop_by or 0.0
            until = min(max(now + 0.1, stop_by + PATIENCE_AT_END), now + PATIENCE_AT_END)
            while (self._loops.is_running or self._is_sending) and time.monotonic() < until:
                self._loops.enforce(time.monotonic())
                time.sleep(0.01)
        logger.info("%s has stopped", self.name)
        self._log.close(PATIENCE_WITH_LOG)

    # Threads, and their callbacks

    def _presence(self, *lines: ShardLoops) -> Presence:
        """Return the state of this worker for its row in a shard, or for its port. All shards share its slots."""
        vitals: Message = {}
        for line in lines:
            vitals = added(vitals, line.vitals)
        vitals["restarts"] = dict(self._loops.threads.restarts)
        pids = {"keeper": os.getpid()}
        pids |= {str(child.index + 1): child.pid for child in self._child_slots if child.pid is not None}
        vitals["processes"] = self._samples.report(pids)
        now = time.monotonic()  # of the host, so it is comparable with that of children
        stuck = [job for child in self._child_slots for job in child.said.get("stuck_jobs", [])]
        # By job and task, with numbers only, for the same reason as the samples.
        vitals["stuck"] = {f"{one['job']} {one['task']}": round(now - (one["begun_at"] or now)) for one in stuck}
        return presence_of(self._identity, self._options, self._child_slots, vitals)

    # Signals, probes and supervisors

    def _send(self, signal: Signal) -> None:
        """Send a Django signal in its own thread, so that a hanging receiver does not block the keeper."""

        def run() -> None:
            send(signal, Job, **self._options.facts)
            connections.close_all()

        if signal.receivers:
            self._sending = start_thread("signals", run)

    @property
    def _is_sending(self) -> bool:
        return self._sending is not None and self._sending.is_alive()

    @property
    def _ready_children(self) -> int:
        return sum(child.ready for child in self._child_slots)

    def _standing(self) -> Standing:
        return Standing(
            hanging=self._loops.hanging(),
            ready_children=self._ready_children,
            is_stopping=self._signals > 0 or self._children.stop_by is not None,
            unanswered=min(line.unanswered for line in self._lines),
            refused=min(line.refused for line in self._lines),  # "": at least one shard refuses nothing
            restarts=dict(self._loops.threads.restarts),
        )

    def _install_signals(self) -> None:
        signal.set_wakeup_fd(self._nudges.wakes.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as set by nohup
                signal.signal(number, self._signalled)
        signal.signal(signal.SIGCHLD, self._reap_orphans)

    def _signalled(self, number: int, _frame: object) -> None:
        """Count the stop signals. A terminal and its wrapper may both send the same Ctrl-C."""
        now = time.monotonic()
        if number != signal.SIGINT or now - self._signalled_at > SAME_SIGNAL:
            self._signals += 1
            self._signalled_at = now

    def _reap_orphans(self, *_: object) -> None:
        """Reap orphans, which the keeper inherits as PID 1 of a container."""
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _tell_ready(self) -> None:
        if not self._is_ready_logged and all(child.ready for child in self._child_slots):
            self._is_ready_logged = True
            logger.info("%s is ready", self.name)
            self._systemd.ready(self._described())
            self._send(worker_ready)

    def _described(self) -> str:
        queues = ", ".join(self._options.queues) or "all queues"
        many = self._options.processes
        return f"{many} process{'es' if many > 1 else ''} of {self._options.concurrency} slots, {queues}"


# The parts of a keeper for one shard: the loops for heartbeats, recovery, the watchdog and the listener.
#
# Shards have their own connections, and fail independently.


# Seconds: the longest pause of these loops.
LONGEST_TICK = 0.5


class ShardLoops:
    def __init__(
        self,
        shard: int,
        options: WorkerOptions,
        identity: Identity,
        loops: Loops,
        children: Children,
        presence: Callable[[ShardLoops], Presence],
    ) -> None:
        """``shard`` is the index of the shard in the worker."""
        self.shard, self._loops, self._children = shard, loops, children
        self.alias = alias = options.aliases[shard]
        of = options.of_shard(alias)
        beats = GuardedConnection(alias, f"heartbeat{of}")
        self.heartbeat = Heartbeat(beats, self._leases_of_children, partial(presence, self))
        wake_all = partial(children.wake, ANY_QUEUE, shard=shard)
        self.recovery = Recovery(GuardedConnection(alias, f"recovery{of}"), wake_all)
        loops.add(beats, self.heartbeat.run_once, LONGEST_TICK, self.heartbeat.farewell)
        loops.add(self.recovery.database, self.recovery.run_once, LONGEST_TICK)
        declarer = f"{identity.name}:{identity.boot_id}"
        watching = add_watchdog(
            loops, alias, watches=options.watchdog, declarer=declarer, beats=self.heartbeat, ended=wake_all, of_shard=of
        )
        self._databases = [self.heartbeat.database, self.recovery.database, *watching]
        self.listener: Listener | None = None
        if conf.current().notify and options.processes > 1:
            self.listener = Listener(
                alias,
                options.queues,
                partial(children.wake, shard=shard),
                hears_changed=partial(children.listens, shard),
                standing=lambda: self.heartbeat.standing,
                watched=self.heartbeat.watch,
                of_shard=of,
            )
            loops.add(self.listener.database, self.listener.run_once, BEFORE_TRYING_AGAIN, self.listener.hang_up)

    @property
    def vitals(self) -> dict[str, Any]:
        """Return the counters of this shard since the worker started."""
        vitals = self.heartbeat.vitals.to_json()
        return vitals | {"database_errors": vitals["database_errors"] + sum(one.errors for one in self._databases)}

    @property
    def unanswered(self) -> float:
        """Return the seconds since the last answer to a heartbeat. Infinite: none yet."""
        return time.monotonic() - self.heartbeat.database.answered_at

    @property
    def refused(self) -> str:
        """Return the error, if the role lacks a right in this shard. Empty: nothing is refused."""
        own = [one.refused for one in self._databases]
        theirs = [child.said["refused"][self.shard] for child in self._children.child_slots if child.said]
        return next(filter(None, [*own, *theirs]), "")

    def _leases_of_children(self) -> Sequence[SharedLeases]:
        return [child.leases[self.shard] for child in self._children.child_slots if not child.is_empty]

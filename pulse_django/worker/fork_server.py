"""The fork server: a process without threads and connections that forks all others, so that they start clean.

Keepers and children have threads. If one thread holds a lock while another one forks, the lock stays locked in the new
process for ever. So the keeper forks this process before it starts threads, and requests children from it. Children
request the disposable processes of ``isolation="process"`` from it. All of them share the memory of the project's code.
"""

from __future__ import annotations

import atexit
import gc
import os
import selectors
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from .channel import Channel, Hung, Message, Nudges

ChildMain = Callable[[Message, Channel, Channel], int]
RunnerMain = Callable[[Message, Channel], int]

PATIENCE_AT_EXIT = 2.0  # seconds for the project's functions in atexit


def start_fork_server(child: ChildMain, runner: RunnerMain) -> Channel:
    """Fork the fork server. Call it while this process has one thread and no connections.

    ``child`` and ``runner`` are the main functions of the processes that it forks.
    """
    ours, theirs = Channel.pair()
    # Existing objects are permanent. If later collections scanned them, their shared memory pages would be copied.
    gc.collect()
    gc.freeze()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        theirs.close()
        return ours
    ours.close()
    return _leave(_ForkServer(Channel(theirs), child, runner).run)


class _ForkServer:
    def __init__(self, keeper: Channel, child: ChildMain, runner: RunnerMain) -> None:
        self._child, self._runner = child, runner
        self._asking: dict[Channel, str] = {keeper: "child"}
        self._forked: dict[int, tuple[Channel, int]] = {}  # by pid: the channel and the number of its request
        self._of_children: dict[int, Channel] = {}  # by pid of a child: the channel for its requests
        self._selector = selectors.DefaultSelector()
        self._keeper = keeper

    def run(self) -> int:
        """Serve until the keeper ends."""
        nudges = Nudges()
        signal.set_wakeup_fd(nudges.wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, ignore)
        ignore_stops()
        self._selector.register(self._keeper, selectors.EVENT_READ)
        self._selector.register(nudges, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select(timeout=1.0):
                if key.fileobj is nudges:
                    nudges.taken()
                elif key.fileobj not in self._asking:
                    continue  # closed in this turn
                elif isinstance(key.fileobj, Channel) and not self._serve(key.fileobj):
                    self._end_runners(None)
                    return 0
            self._reap()
            for channel in self._asking:
                channel.flush()

    def _serve(self, channel: Channel) -> bool:
        try:
            requests = channel.receive()
        except Hung:
            if channel is self._keeper:
                return False
            self._end_runners(channel)
            return True
        for request in requests:
            self._fork(channel, request)
        return True

    def _fork(self, channel: Channel, request: Message) -> None:
        theirs = socket.socket(fileno=channel.take_fd())
        is_child = self._asking[channel] == "child"
        ours, of_child = Channel.pair() if is_child else (None, None)
        try:
            pid = os.fork()
        except OSError as error:
            theirs.close()
            channel.send({"not_started": request["number"], "why": str(error)})
            return
        if pid == 0:
            self._forget()
            if ours is not None and of_child is not None:
                ours.close()
                links = Channel(theirs), Channel(of_child)
                _leave(lambda: self._child(request, *links))
            os.setsid()  # so that processes of a handler can be killed with it
            _leave(lambda: self._runner(request, Channel(theirs)))
        theirs.close()
        self._forked[pid] = (channel, request["number"])
        channel.send({"forked": request["number"], "pid": pid})
        if ours is not None and of_child is not None:
            of_child.close()
            self._of_children[pid] = ours
            self._asking[ours] = "runner"
            self._selector.register(ours, selectors.EVENT_READ)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self._of_children:
                self._end_runners(self._of_children.pop(pid))  # before the keeper learns that the child has ended
            if pid in self._forked:
                channel, number = self._forked.pop(pid)
                if channel in self._asking:
                    channel.send({"ended": number, "pid": pid, "status": status})

    def _end_runners(self, channel: Channel | None) -> None:
        """Kill the processes of a child's runs, or all of them, because their leases are not extended any more.

        Return when they have ended, so that no job that goes back to the queue is still running.
        """
        for pid, (asked_by, _) in list(self._forked.items()):
            if asked_by is channel or (channel is None and asked_by is not self._keeper):
                del self._forked[pid]
                kill_family(pid)
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)
        if channel is not None and channel in self._asking:
            del self._asking[channel]
            self._selector.unregister(channel)
            channel.close()

    def _forget(self) -> None:
        """In a new process, close files that belong to others."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]  # all of them can be closed
        self._selector.close()


def _leave(main: Callable[[], int]) -> NoReturn:
    """Run a process to its end, with its atexit functions, but never return to the code that forked it."""
    code = 70  # EX_SOFTWARE
    try:
        code = main()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            at_exit = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
            at_exit.start()
            at_exit.join(PATIENCE_AT_EXIT)
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def kill_family(pid: int) -> None:
    """Kill a process and all processes that it started."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def ignore(*_: object) -> None:
    """Receive a signal and do nothing. Unlike SIG_IGN, processes that a handler starts do not inherit it."""


def ignore_stops() -> None:
    """Ignore signals to stop: Ctrl-C and systemd send them to every process, and only the keeper acts on them."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, ignore)


def status_in_words(status: int) -> str:
    """Return how a process ended, as text."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            return f"killed by signal {number}"
    return f"exited with status {os.waitstatus_to_exitcode(status)}"

"""The beginning of a child's process."""

from __future__ import annotations

import faulthandler
import signal
import sys
from collections.abc import Sequence

from pulse_django import conf

from .channel import Channel, Message
from .child import Child
from .fork_server import ignore_stops
from .handler_stacks import open_dump_file
from .shared_leases import SharedLeases
from .worker_options import WorkerOptions

# How often a thread has to let go of the interpreter when others want it. Python's 5 ms keep an answer of the database
# waiting behind a busy handler for as long as it took to make; much shorter costs in switches.
SWITCH_INTERVAL = 0.001


def child_main(
    options: WorkerOptions, held: Sequence[SharedLeases], order: Message, keeper: Channel, fork_server: Channel
) -> int:
    """What a process does that a fork server made for a keeper."""
    ignore_stops()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    faulthandler.enable()
    if (file := open_dump_file()) is not None:
        keeper.send({"stack_file": True}, [file])
    sys.setswitchinterval(SWITCH_INTERVAL)
    conf.current()
    return Child(options, order["number"], order["boot_id"], keeper, fork_server, held).run()

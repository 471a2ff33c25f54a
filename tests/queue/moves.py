"""The table of verbs that stands in the docstring of ``pulse_django.queue``, as values."""

from __future__ import annotations

import re
from collections import defaultdict

from pulse_django import queue as protocol
from pulse_django.queue.words.states import Status

GONE = None  # where a pruned job moves to: its row is gone

Moves = dict[str, dict[Status, set[Status | None]]]


def _read() -> Moves:
    found: Moves = defaultdict(lambda: defaultdict(set))
    verb = targets = ""
    for line in (protocol.__doc__ or "").split("The claim is the lease.")[0].splitlines()[3:]:
        verb, origins, targets = line[4:20].strip() or verb, line[20:44], line[44:].strip() or targets
        for origin in re.findall(r"[A-Z_]+", origins):
            reached = re.findall(r"[A-Z_]+|\(gone\)", targets)
            found[verb][Status(origin)] |= {GONE if target == "(gone)" else Status(target) for target in reached}
    return {verb: dict(moves) for verb, moves in found.items()}


# A status that a verb does not list is left exactly as it was: the verb's WHERE refuses it.
MOVES = _read()

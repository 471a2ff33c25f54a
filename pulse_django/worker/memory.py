"""How much memory this process uses now."""

from __future__ import annotations

import os
import resource
import sys

MIB = 1024 * 1024


def resident_mib() -> int:
    """Return the resident set in MiB; where only its peak is known, that."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // MIB
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak // MIB if sys.platform == "darwin" else peak // 1024

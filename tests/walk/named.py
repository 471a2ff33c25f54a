"""Count the files of the kernel that name a capability, in code or SQL, and all that name Citus: for ``make weight``.

Comments and docstrings do not count, nor do the modules that put together what rooms have.
"""

from __future__ import annotations

import ast
import re

from tests.floors import COMPOSED, KERNEL, imports, modules

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

# What a file says if it knows the capability. ``weight``, ``lane_key`` and ``ready`` are words of the kernel, and words
# with a second meaning are not here: a histogram has buckets, and a search by halves probes an index.
WORDS = {
    "amendments": "amend",
    "chunks": "chunkrun|chunk_of|chunked|chunking|of_chunks|gather",
    "encryption": "crypt|mask",
    "expiry": "expir(?:y|es_at|e_these)|not_started_in_time",
    "limits": "limiter|limited_|rate.?limited|breaker|pulse_django_bucket|is_probe|{probe}",
    "metrics": "vital_sign|minute_stat|traffic|histogram",
    "pauses": "pause[ds]?_?(?:task|queue|key)|django_pause",
    "schedules": "(?<!re)schedule|cron",
    "unique": "unique(?!Constraint)|idempotency",
    "workflows": "batch_id|workflow|awaited|unresolved|dependency|durable_step|stepnames",
}


def named() -> dict[str, list[str]]:
    """Return which files of the kernel name each capability."""
    found: dict[str, list[str]] = {room: [] for room in WORDS}
    for module, path in modules().items():
        if module.partition(".")[0] in KERNEL and module not in COMPOSED:
            text = code_of(path.read_text())
            for room, words in WORDS.items():
                if re.search(words, text, re.IGNORECASE):
                    found[room].append(module)
    return found


def that_name_citus() -> list[str]:
    """Return the modules outside ``citus/`` that name Citus."""
    others = [(module, path) for module, path in modules().items() if module.partition(".")[0] != "citus"]
    return [module for module, path in others if re.search("citus|one_task", code_of(path.read_text()), re.IGNORECASE)]


def code_of(source: str) -> str:
    """Return a source without comments and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body[0] = ast.Pass()
    return ast.unparse(tree)


def circle() -> list[str]:
    """Return the largest set of modules that import each other, directly or not. Type hints count."""
    reached: dict[str, set[str]] = {module: set() for module in modules()}
    for one in imports():
        if one.module in reached and one.module != one.importer:
            reached[one.importer].add(one.module)
    for through in reached:
        for found in reached.values():
            if through in found:
                found |= reached[through]
    return max(([there for there in found if one in reached[there]] for one, found in reached.items()), key=len)


def report() -> str:
    found, around = named(), circle()
    lines = [f"{len(files):6} files of the kernel name {room}: {', '.join(files)}" for room, files in found.items()]
    lines += [f"{len(set().union(*map(set, found.values()))):6} name any"]
    lines += [f"{len(that_name_citus()):6} files outside citus/ name Citus"]
    return "\n".join([*lines, f"{len(around):6} files import each other: {', '.join(sorted(around))}"])

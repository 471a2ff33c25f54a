"""A loose index scan of the jobs: one probe of an index for each distinct value, whatever the number of jobs."""

from __future__ import annotations


def loose_scan(name: str, columns: str, *, where: str, order: str, following: tuple[str, ...], most: str = "") -> str:
    """Return a recursive CTE whose rows are the distinct values in the order of an index, numbered by ``place``.

    Each of ``following`` is a condition that finds the next row; the first that finds one counts. An OR of two would
    not use the index.
    """

    def probe(condition: str = "") -> str:
        found = f"SELECT {columns} FROM pulse_django_job_hot WHERE {where}{condition}"  # noqa: S608 - made of constants
        return f"({found} ORDER BY {order} LIMIT 1)"

    steps = " UNION ALL ".join(probe(f" AND {one}") for one in following) + " LIMIT 1" * (len(following) > 1)
    bound = f"WHERE {name}.place < {most}" if most else ""
    return f"""
WITH RECURSIVE {name} AS (
    SELECT first.*, 1 AS place FROM {probe()} AS first
    UNION ALL
    SELECT following.*, {name}.place + 1 FROM {name} CROSS JOIN LATERAL ({steps}) AS following {bound}
)"""  # noqa: S608 - made of constants

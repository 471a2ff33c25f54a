"""Note changes after which a waiting job may be free to run. ``resolve`` looks at them after the commit.

The row is written by the statement that makes the change, so neither can be committed without the other.
"""

from __future__ import annotations

# One row for each batch, however many of its members are over, and one for each job that others need. Most jobs are
# neither. So the CTE is read once: two reads and a union make the settle of ten such jobs take 4 % longer.
_NOTE_OVER = """
    INSERT INTO pulse_django_unresolved (job_id, batch_id, completed, cancelled)
    SELECT
        CASE WHEN awaited THEN id END, batch_id, count(*) FILTER (WHERE {status} = 'COMPLETED'),
        count(*) FILTER (WHERE {status} <> 'COMPLETED')
    FROM {gone}
    WHERE awaited OR batch_id IS NOT NULL
    GROUP BY 1, 2
"""

_NOTE_STAYED = """
    INSERT INTO pulse_django_unresolved (job_id, batch_id, died)
    SELECT id, NULL::bigint, false FROM {stayed} WHERE verdict = 'WAITING' OR awaited AND verdict = 'DEAD_LETTERED'
    UNION ALL
    SELECT DISTINCT NULL::bigint, batch_id, true FROM {stayed} WHERE batch_id IS NOT NULL AND verdict = 'DEAD_LETTERED'
"""

# Of a row of ``ended``: whether one of the two has noted it.
IS_NOTED = "awaited OR batch_id IS NOT NULL OR verdict = 'WAITING'"


def note_over(gone: str, *, status: str) -> str:
    """Return the SQL that notes which of these jobs are over. ``status`` is what each of them is now."""
    return _NOTE_OVER.format(gone=gone, status=status)


def note_stayed(stayed: str) -> str:
    """Return the SQL that notes which of these runs left a dead letter, or a job that waits for others."""
    return _NOTE_STAYED.format(stayed=stayed)

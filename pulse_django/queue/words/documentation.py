"""The pages of the documentation that messages name. There is no site yet, so they have only titles."""

from __future__ import annotations

TITLES = {
    "explanation/security.md": "Security",
    "how-to/encryption.md": "Encrypt arguments and results",
    "how-to/from-celery.md": "Port a project from Celery",
    "how-to/limits.md": "Limit how many jobs run at once, and how many start in a period",
    "how-to/schedules.md": "Run tasks on a schedule",
    "how-to/several-databases.md": "Several databases",
    "how-to/shards.md": "Shards: jobs in several databases",
    "how-to/symptoms/dead-letters-grow.md": "Dead letters grow",
    "how-to/symptoms/jobs-wait.md": "Jobs wait in PENDING",
    "how-to/symptoms/leases-expire.md": "Leases expire, jobs run twice",
    "how-to/symptoms/table-grows.md": "The table grows",
    "how-to/symptoms/workers-vanish.md": "Workers vanish",
    "how-to/timeouts.md": "Limit the time of a run",
    "how-to/workflows.md": "Workflows, chains and batches",
    "reference/conditions.md": "Conditions",
}


def page(path: str) -> str:
    """Return the words with which a message names a page."""
    return f"the page “{TITLES[path]}” of the documentation"

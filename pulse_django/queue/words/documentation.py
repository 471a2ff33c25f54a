"""The pages of the documentation that messages name. There is no site yet, so they have only titles."""

from __future__ import annotations

TITLES = {
    "explanation/security.md": "Security",
    "how-to/encryption.md": "Encrypt arguments and results",
    "how-to/shards.md": "Shards: jobs in several databases",
}


def page(path: str) -> str:
    """Return the words with which a message names a page."""
    return f"the page “{TITLES[path]}” of the documentation"

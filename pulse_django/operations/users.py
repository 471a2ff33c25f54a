"""Who runs a command."""

from __future__ import annotations

from getpass import getuser


def user_of(command: str) -> str:
    """Return the user of the operating system and the command, as the record of a change shows them."""
    try:
        return f"{getuser()} ({command})"
    except (KeyError, OSError):  # a container's user may have no name
        return command

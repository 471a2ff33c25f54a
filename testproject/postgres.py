"""The PostgreSQL of tests, demo and benchmarks: one for each user of this machine.

python -m testproject.postgres start|stop|status|url
"""

import argparse
import os
import sys
from pathlib import Path

from pulse_django.embedded import starter
from pulse_django.embedded.programs import NoPostgresError
from pulse_django.embedded.server import Server, server_in

EXTRA_ENVIRONMENT: dict[str, str] = {}  # of the server's programs; tests of its clock preload a library


def this_server() -> Server:
    """Describe the server that the environment asks for, running or not."""
    # A fixed name below /tmp could be taken by another user before us.
    default = "/var/lib/pulse-pg" if os.geteuid() == 0 else "~/.cache/pulse-pg"
    return server_in(Path(default), EXTRA_ENVIRONMENT)


def ensure_running() -> str:
    """Start PostgreSQL unless it already answers, and return the URL of its database."""
    server = this_server()
    if starter.start(server):
        print(f"Started PostgreSQL {server.version} in {server.home}", file=sys.stderr)
    return server.url


def stop() -> bool:
    """Stop PostgreSQL and break off what runs in it. False when it was not running."""
    return starter.stop(this_server())


def log_file() -> Path:
    """Return the file that the server logs to."""
    return this_server().log


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m testproject.postgres")
    parser.add_argument("verb", choices=["start", "stop", "status", "url"])
    try:
        return _obey(parser.parse_args().verb)
    except NoPostgresError as error:
        print(error, file=sys.stderr)
        return 1


def _obey(verb: str) -> int:
    server = this_server()
    if verb == "start":
        print(ensure_running())
    elif verb == "stop":
        print(f"PostgreSQL {server.version} {'stopped' if stop() else 'was not running'}")
    elif verb == "url":
        print(server.url)
    elif server.answers():
        print(f"PostgreSQL {server.version} answers at {server.url} and logs to {server.log}")
    else:
        print(f"PostgreSQL {server.version} is not running")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The HTTP port of a worker: probes for its supervisor, and its metrics. It never uses the database.

It has its own threads, which read the memory of the keeper, so no client can block the worker.
"""

from __future__ import annotations

import json
import socket
import socketserver
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured

from pulse_django import conf
from pulse_django.queue.database.workers import Presence
from pulse_django.safe_logging import SafeLogger

logger = SafeLogger("pulse_django.worker")

# Connections. With fewer, probes cut off a scrape. With more, their threads compete with heartbeats.
AT_A_TIME = 8
PATIENCE = 5.0  # seconds for one request, however slow the client is
TEXT = "text/plain; version=0.0.4; charset=utf-8"


# Makes the text of /metrics from the state of a worker and the number of its ready processes.
Exposed = Callable[[Presence, int], str]


class PortRefused(Exception):
    """The port cannot be opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The state of a worker at an instant."""

    hanging: Mapping[str, float]  # seconds since the last turn of each hanging loop
    ready_children: int
    is_stopping: bool
    unanswered: float  # seconds since the last successful heartbeat
    refused: str = ""  # the error, if the role lacks a right
    restarts: Mapping[str, int] = field(default_factory=dict)  # how often threads of the keeper were restarted


class Answer(NamedTuple):
    status: HTTPStatus
    kind: str  # Content-Type
    text: str


def why_unready(standing: Standing, lease: float) -> str:
    """Return why a worker is not ready. Empty: it is ready."""
    if standing.is_stopping:
        return "the worker is stopping"
    if standing.ready_children == 0:
        return "no process is ready"
    if standing.unanswered == float("inf"):
        return "the database has not responded yet"
    if standing.unanswered > lease:
        return f"the database has not responded for {standing.unanswered:.0f} s"
    if standing.refused:
        return f"the database refuses a statement: {standing.refused}"
    return ""


def _probed(said: dict[str, Any], *, is_well: bool) -> Answer:
    status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, "application/json", json.dumps(said))


class HttpPort:
    """The server. ``exposed`` returns the text of /metrics, or raises ImproperlyConfigured."""

    def __init__(self, address: tuple[str, int], standing: Callable[[], Standing], exposed: Callable[[], str]) -> None:
        self._standing, self._exposed = standing, exposed
        try:
            self._server = _Server(address, self.answer)
        except (OSError, UnicodeError) as error:  # UnicodeError: not a host name
            why = getattr(error, "strerror", None) or error
            raise PortRefused(f"--metrics-port: cannot listen on {address[0]}:{address[1]}: {why}") from error

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def serve(self) -> None:
        """Serve until closed."""
        logger.info("Serving probes and metrics on %s:%d", *self._server.server_address[:2])
        self._server.serve_forever()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str) -> Answer:
        match path.partition("?")[0]:
            case "/live":
                standing = self._standing()
                hanging = {name: round(seconds, 1) for name, seconds in standing.hanging.items()}
                said = {"live": not hanging, "hanging": hanging, "restarts": dict(standing.restarts)}
                return _probed(said, is_well=not hanging)
            case "/ready":
                why = why_unready(self._standing(), conf.current().lease_ttl.total_seconds())
                return _probed({"ready": not why, "reason": why}, is_well=not why)
            case "/metrics":
                try:
                    return Answer(HTTPStatus.OK, TEXT, self._exposed())
                except ImproperlyConfigured as error:
                    return Answer(HTTPStatus.NOT_IMPLEMENTED, "text/plain", f"{error}\n")
        return Answer(HTTPStatus.NOT_FOUND, "text/plain", "Not found. Use /live, /ready or /metrics.\n")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_port = False  # two workers on one port would answer alternately

    def __init__(self, address: tuple[str, int], answer: Callable[[str], Answer]) -> None:
        self.answer = answer
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._begun: dict[Any, float] = {}  # start times of connections, the oldest first
        self.answering: set[Any] = set()  # connections whose request has arrived
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # that of HTTPServer also resolves the host name

    def process_request(self, request: Any, client_address: Any) -> None:
        """Accept a connection. If there are too many, close the oldest: silent clients must not block probes."""
        begun = list(self._begun)
        if len(begun) >= AT_A_TIME:
            silent = [one for one in begun if one not in self.answering]
            self._hang_up((silent or begun)[0])
        self._begun[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._begun.pop(request, None)
        self.answering.discard(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Close connections that take too long. A socket timeout alone restarts with every byte."""
        for request, begun in list(self._begun.items()):
            if time.monotonic() - begun > PATIENCE:
                self._hang_up(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("A request to the metrics port failed", exc_info=True)

    def _hang_up(self, request: Any) -> None:
        self._begun.pop(request, None)
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "pulse", ""
    timeout = PATIENCE

    def do_POST(self) -> None:
        self.send_error(HTTPStatus.METHOD_NOT_ALLOWED)

    do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_POST  # noqa: N815 - what http.server calls

    def do_GET(self) -> None:
        self.server.answering.add(self.request)
        try:
            answer = self.server.answer(self.path)
        except Exception:
            logger.exception("Answering %s failed", self.path.partition("?")[0])
            answer = Answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", "See the log of the worker.\n")
        body = answer.text.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - what http.server calls

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug(format, *args)

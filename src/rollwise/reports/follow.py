"""Serve the report of a run while it runs, to this machine alone unless asked otherwise."""

import errno
import hashlib
import html
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from rollwise.errors import RunError
from rollwise.records import RunFolder
from rollwise.reports.report import run_page

PORT = 8008
"""The port by default; any free one where it is taken."""

LOCAL = ("127.0.0.1", "localhost", "::1")
"""Names of this machine. A page of another site that has its own name point here is refused."""

LOOK_EVERY = 1.0
"""Seconds between looks at whether the run has ended."""

LAST_LOOK = 10.0
"""Seconds that pages have to get the last state, once the run has ended."""

WAITING = (
    '<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="3">'
    "<title>rollwise</title><p>"
)
"""Before a page that asks again."""

FILES = ("config.json", "metrics.jsonl", "samples", "visits", "summary.json")
"""What changes when the records do: a folder does when a file in it takes its name."""


class LivePage:
    """The page of a run, made anew when its records have changed.

    Args:
        path: The run's folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._made: tuple[str, bytes] | None = None

    def tag(self) -> str:
        """Name the state of the records."""
        found = []
        for name in FILES:
            try:
                stat = (self._path / name).stat()
                found.append((name, stat.st_size, stat.st_mtime_ns))
            except OSError:
                continue
        return f'"{hashlib.sha256(repr(found).encode()).hexdigest()[:16]}"'

    def get(self) -> tuple[str, bytes]:
        """Return the state of the records, and the page of it.

        Raises:
            RunError: The run has no metrics yet, or they are broken.
        """
        with self._lock:
            tag = self.tag()
            if self._made is None or self._made[0] != tag:
                self._made = tag, run_page(self._path, live=True).encode()
            return self._made


class _Handler(BaseHTTPRequestHandler):
    """Answers for `/` alone, so that no path leads anywhere."""

    page: ClassVar[LivePage]
    local: ClassVar[bool]
    seen: ClassVar[set[str]]

    def do_GET(self) -> None:
        """Answer a request; the standard library has named this."""
        if self.local and not _is_local(self.headers.get("Host", "")):
            self._answer(421, b"this server answers for localhost alone\n", "text/plain")
        elif self.path != "/":
            self._answer(404, b"there is the report alone, at /\n", "text/plain")
        elif self.headers.get("If-None-Match") == self.page.tag():
            self.seen.add(self.page.tag())
            self._answer(304, b"")
        else:
            self._page()

    do_HEAD = do_GET

    def _page(self) -> None:
        try:
            tag, page = self.page.get()
        except RunError as error:
            self._answer(503, (WAITING + html.escape(str(error))).encode())
            return
        self._answer(200, page, tag=tag)
        self.seen.add(tag)

    def _answer(
        self, code: int, body: bytes, kind: str = "text/html; charset=utf-8", tag: str = ""
    ) -> None:
        self.send_response(code)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"),
            ("ETag", tag),
        ):
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing of requests."""


def _is_local(host: str) -> bool:
    name = host[1:].partition("]")[0] if host.startswith("[") else host.rpartition(":")[0] or host
    return name.lower() in LOCAL


def serve_report(
    path: Path,
    host: str = "127.0.0.1",
    port: int | None = None,
    started: Callable[[str], object] = lambda address: None,
) -> None:
    """Serve the report of a run until the run has ended, or Ctrl-C.

    Args:
        path: The run's folder.
        host: The address to listen at; any other than this machine's shows the run to the network.
        port: By default `PORT`, or any free one where it is taken.
        started: Is called with the address of the page.

    Raises:
        RunError: There is no run in the folder, or the address cannot be used.
    """
    folder = RunFolder(path)
    folder.read_config()
    handler = type(
        "Handler", (_Handler,), {"page": LivePage(path), "local": host in LOCAL, "seen": set()}
    )
    with _listen(host, port, handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            started(f"http://{host if ':' not in host else f'[{host}]'}:{server.server_port}/")
            while folder.read_summary() is None:
                time.sleep(LOOK_EVERY)
            _show_the_end(handler)
        finally:
            server.shutdown()


def _show_the_end(handler: Any) -> None:
    """Wait until the last state has been fetched, if anybody looks."""
    until = time.monotonic() + LAST_LOOK
    while handler.seen and handler.page.tag() not in handler.seen and time.monotonic() < until:
        time.sleep(LOOK_EVERY / 10)


class _Server6(ThreadingHTTPServer):
    address_family = socket.AF_INET6


def _listen(host: str, port: int | None, handler: Any) -> ThreadingHTTPServer:
    server = _Server6 if ":" in host else ThreadingHTTPServer
    try:
        return server((host, PORT if port is None else port), handler)
    except OSError as error:
        if port is None and error.errno == errno.EADDRINUSE:
            return server((host, 0), handler)
        raise RunError(f"cannot listen at {host}, port {port or PORT}: {error}") from None

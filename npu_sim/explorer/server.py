"""The web server of the explorer: who may ask what, and how much of it; what is answered is in :mod:`npu_sim.explorer.routes`.

It listens on the loopback address and answers only pages of its own; elsewhere only those who know its token. Every limit is one here.
"""

import io
import json
import secrets
import threading
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

from npu_sim.explorer.patience import Patience
from npu_sim.explorer.routes import (
    Reply,
    answered,
    cancel_reply,
    file_reply,
    get_reply,
    refused,
    run_reply,
)
from npu_sim.explorer.state import language_of
from npu_sim.explorer.workbench import Workbench
from npu_sim.files.reading import DROPPED_BYTES
from npu_sim.language import speaking

LOOPBACK = "127.0.0.1"
LOCAL_NAMES = (LOOPBACK, "localhost")
LONGEST_BODY = 65536
"""Bytes of a request to run or to cancel."""
MOST_CONNECTIONS = 32
"""Connections answered at once; further ones wait, and those beyond the backlog are turned away."""
BACKLOG = 64
PATIENCE_SECONDS = 20
"""How long a client may take to send a request, or to read an answer."""
TOKEN_HEADER = "X-Npu-Sim-Token"
TOKEN_COOKIE = "npu_sim_token"
HTTP_PORT = 80
"""Browsers leave this port out."""
MOST_FIELDS = 100
"""Fields of one query."""
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
"""What the page may load: only what this server gives."""
BYTES = "application/octet-stream"
POSTED = (
    ("/api/run", "application/json"),
    ("/api/cancel", "application/json"),
    ("/api/file", BYTES),
)
"""What may be sent where."""


@dataclass
class Explorer(Workbench):
    """A workbench and where it is served."""

    port: int = 0
    host: str = LOOPBACK

    @cached_property
    def server(self) -> ThreadingHTTPServer:
        """The server, bound to its address; port 0 takes a free one."""
        explorer = self

        class Handler(_Handler):
            pass

        Handler.explorer = explorer
        return _Server((self.host, self.port), Handler)

    @property
    def is_open(self) -> bool:
        """Whether other machines reach the server: they then need the token for everything."""
        return self.host not in LOCAL_NAMES

    @property
    def address(self) -> str:
        """Address of the page, with the token where one is needed to open it."""
        return f"http://{self.host}:{self.server.server_address[1]}/" + (
            f"?token={self.token}" if self.is_open else ""
        )

    def close(self) -> None:
        """Give up the address, and all that is on the workbench."""
        self.server.server_close()
        self.clear()


DRAINED_BYTES = 1 << 16
"""Bytes that are read at once of what nobody wants."""


class _Server(ThreadingHTTPServer):
    """Answers so many connections at once and no more."""

    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(self, *arguments: Any) -> None:
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Wait for a connection to end before one more is answered; turn it away when none does."""
        if not self._free.acquire(timeout=PATIENCE_SECONDS):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep the terminal quiet about clients that went away."""


class _Body(io.BufferedIOBase):
    """What a request brings along: so many bytes of a connection that goes on behind them."""

    def __init__(self, connection: io.BufferedIOBase, length: int) -> None:
        self._connection, self._left = connection, length

    def read(self, size: int | None = -1, /) -> bytes:
        """Return at most ``size`` bytes of what is left."""
        piece = self._connection.read(
            self._left if size is None or size < 0 else min(size, self._left)
        )
        self._left -= len(piece)
        return piece

    def drain(self) -> None:
        """Read what is left, and forget it."""
        while self._left and self.read(DRAINED_BYTES):
            pass


class _Handler(BaseHTTPRequestHandler):
    explorer: Explorer
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE_SECONDS

    def setup(self) -> None:
        """Read requests with a time for each."""
        super().setup()
        self._patience = Patience(self.connection, self.timeout)
        self.rfile = io.BufferedReader(self._patience)

    def handle_one_request(self) -> None:
        """Wait for a request and answer it."""
        self._patience.again()
        super().handle_one_request()

    def do_GET(self) -> None:
        """Answer a request for a file of the page, a plan, a download, or how far a computation is."""
        if not self._is_welcome():
            return
        state = self._query()
        if state is not None:
            with speaking(language_of(state)):
                self._send(answered(get_reply, self.explorer, urlsplit(self.path).path, state))

    def do_POST(self) -> None:
        """Start or cancel a computation, or take a file."""
        if not self._is_welcome():
            return
        if not secrets.compare_digest(
            (self.headers.get(TOKEN_HEADER) or "").encode(), self.explorer.token.encode()
        ):
            self._refuse(HTTPStatus.FORBIDDEN, "only for the page of this server: reload it")
            return
        path, kind = urlsplit(self.path).path, self.headers.get("Content-Type")
        if (path, kind) not in POSTED:
            self._refuse(HTTPStatus.NOT_FOUND, "not found")
            return
        text = self.headers.get("Content-Length") or "0"
        if not (text.isascii() and text.isdigit() and len(text) < 10) or self.headers.get(
            "Transfer-Encoding"
        ):
            self._refuse(HTTPStatus.BAD_REQUEST, "Content-Length is no length")
            return
        most = DROPPED_BYTES if kind == BYTES else LONGEST_BODY
        if int(text) > most:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {most} bytes")
            return
        if kind == BYTES:
            self._take_file(int(text))
        else:
            self._take_object(path, int(text))

    def _take_object(self, path: str, length: int) -> None:
        try:
            body = json.loads(self.rfile.read(length))
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            self._refuse(HTTPStatus.BAD_REQUEST, "expected a JSON object")
            return
        answer = run_reply if path == "/api/run" else cancel_reply
        state = {str(key): str(value) for key, value in body.items()}
        with speaking(language_of(state)):
            self._send(answered(answer, self.explorer, state))

    def _take_file(self, length: int) -> None:
        state = self._query()
        if state is not None:
            body = _Body(self.rfile, length)
            with speaking(language_of(state)):
                answer = answered(file_reply, self.explorer, state, body, length)
            body.drain()  # a browser that is still sending does not hear an answer
            self._send(answer)

    def _query(self) -> dict[str, str] | None:
        """Return the fields of the address; refuse too many of them."""
        try:
            return dict(
                parse_qsl(
                    urlsplit(self.path).query, keep_blank_values=True, max_num_fields=MOST_FIELDS
                )
            )
        except ValueError:
            self._refuse(HTTPStatus.BAD_REQUEST, f"more than {MOST_FIELDS} fields")
            return None

    def _is_welcome(self) -> bool:
        """Refuse what a page of another origin could send through the user's browser, and elsewhere whoever lacks the token."""
        name, origin = self.headers.get("Host") or "", self.headers.get("Origin")
        port = self.explorer.server.server_address[1]
        if self.explorer.is_open:
            welcome = self._has_token() and (origin is None or urlsplit(origin).netloc == name)
        else:
            here = {f"{one}:{port}" for one in LOCAL_NAMES} | (
                set(LOCAL_NAMES) if port == HTTP_PORT else set()
            )
            welcome = name in here and (
                origin is None
                or (urlsplit(origin).scheme == "http" and urlsplit(origin).netloc in here)
            )
        if not welcome:
            self._refuse(HTTPStatus.FORBIDDEN, "only for pages of this server")
        return welcome

    def _has_token(self) -> bool:
        """Whether the token is in the address, as in the link that the command printed, or in the cookie of an opened page."""
        query = parse_qs(urlsplit(self.path).query, max_num_fields=MOST_FIELDS).get("token", [""])[
            -1
        ]
        cookie = f"; {self.headers.get('Cookie') or ''};".partition(f"; {TOKEN_COOKIE}=")[
            2
        ].partition(";")[0]
        return any(
            secrets.compare_digest(given.encode(), self.explorer.token.encode())
            for given in (query, cookie)
        )

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        """Answer with a sentence and end the connection: what else was sent on it is not read."""
        self.close_connection = True
        self._send(refused(status, why))

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.kind)
        self.send_header("Content-Length", str(len(reply.content)))
        if reply.file_name:
            self.send_header("Content-Disposition", f'attachment; filename="{reply.file_name}"')
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        if self.close_connection:
            self.send_header("Connection", "close")
        elif self.explorer.is_open:
            self.send_header(
                "Set-Cookie",
                f"{TOKEN_COOKIE}={self.explorer.token}; HttpOnly; SameSite=Strict; Path=/",
            )
        self.end_headers()
        self.wfile.write(reply.content)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the terminal quiet."""


def serve(explorer: Explorer) -> None:
    """Answer until interrupted."""
    try:
        explorer.server.serve_forever()
    finally:
        explorer.close()

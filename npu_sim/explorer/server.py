"""The web server of the explorer: static files and four answers in JSON.

It listens on the loopback address and answers only pages of its own; elsewhere only those who know its token. Every limit is one here.
"""

import io
import json
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

from npu_sim.cores import Profile
from npu_sim.explorer.answers import plan_answer
from npu_sim.explorer.jobs import MOST_WAITING, Jobs
from npu_sim.explorer.patience import Patience
from npu_sim.explorer.state import catalog
from npu_sim.files.schemas import schema

LOOPBACK = "127.0.0.1"
LOCAL_NAMES = (LOOPBACK, "localhost")
LONGEST_BODY = 65536
"""Bytes of a request to run."""
MOST_CONNECTIONS = 32
"""Connections answered at once; further ones wait, and those beyond the backlog are turned away."""
BACKLOG = 64
PATIENCE_SECONDS = 20
"""How long a client may take to send a request, or to read an answer."""
TOKEN_HEADER = "X-Npu-Sim-Token"
TOKEN_COOKIE = "npu_sim_token"
TOKEN_PLACE = b"{{token}}"
"""Where the page has the token: a page of another origin cannot read it."""
HTTP_PORT = 80
"""Browsers leave this port out."""
MOST_FIELDS = 100
"""Fields of one query."""
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
"""What the page may load: only what this server gives."""
FILES = {
    "/": ("npu_sim.explorer", "page/index.html", "text/html"),
    "/explore.js": ("npu_sim.explorer", "page/explore.js", "text/javascript"),
    "/explore.css": ("npu_sim.explorer", "page/explore.css", "text/css"),
    "/report.css": ("npu_sim.show.reports", "assets/report.css", "text/css"),
}


@dataclass
class Explorer:
    """What the server answers from."""

    products: Mapping[str, Profile]
    port: int = 0
    host: str = LOOPBACK
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    jobs: Jobs = field(init=False)

    def __post_init__(self) -> None:
        self.jobs = Jobs(self.products)

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
        return f"http://{self.host}:{self.server.server_address[1]}/" + (f"?token={self.token}" if self.is_open else "")


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
        """Answer a request for a file, a plan or the progress of a run."""
        if not self._is_welcome():
            return
        address = urlsplit(self.path)
        try:
            state = dict(parse_qsl(address.query, keep_blank_values=True, max_num_fields=MOST_FIELDS))
        except ValueError:
            self._refuse(HTTPStatus.BAD_REQUEST, f"more than {MOST_FIELDS} fields")
            return
        if address.path in FILES:
            package, name, kind = FILES[address.path]
            content = resources.files(package).joinpath(name).read_bytes()
            self._send(content.replace(TOKEN_PLACE, self.explorer.token.encode()), f"{kind}; charset=utf-8")
        elif address.path == "/api/catalog":
            self._json(catalog(self.explorer.products))
        elif address.path == "/api/plan":
            self._json(plan_answer(state, self.explorer.products))
        elif address.path == "/api/run":
            job = self.explorer.jobs.report(state.get("number", ""))
            self._json(job if job is not None else {"stage": "done", "answer": {"outcome": "failed", "text": "no such run"}})
        elif address.path == "/favicon.ico":
            self._send(b"", "image/x-icon", HTTPStatus.NO_CONTENT)
        else:
            self._send(b"not found", "text/plain", HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        """Start a run."""
        if not self._is_welcome():
            return
        if not secrets.compare_digest((self.headers.get(TOKEN_HEADER) or "").encode(), self.explorer.token.encode()):
            self._refuse(HTTPStatus.FORBIDDEN, "only for the page of this server: reload it")
            return
        if self.headers.get("Content-Type") != "application/json" or urlsplit(self.path).path != "/api/run":
            self._refuse(HTTPStatus.NOT_FOUND, "not found")
            return
        text = self.headers.get("Content-Length") or "0"
        if not (text.isascii() and text.isdigit() and len(text) < 10) or self.headers.get("Transfer-Encoding"):
            self._refuse(HTTPStatus.BAD_REQUEST, "Content-Length is no length")
            return
        if int(text) > LONGEST_BODY:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {LONGEST_BODY} bytes")
            return
        try:
            body = json.loads(self.rfile.read(int(text)))
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            self._refuse(HTTPStatus.BAD_REQUEST, "expected a JSON object")
            return
        number = self.explorer.jobs.start({str(key): str(value) for key, value in body.items()})
        if number is None:
            self._refuse(HTTPStatus.TOO_MANY_REQUESTS, f"{MOST_WAITING} runs wait already")
            return
        self._json({"number": number})

    def _is_welcome(self) -> bool:
        """Refuse what a page of another origin could send through the user's browser, and elsewhere whoever lacks the token."""
        name, origin = self.headers.get("Host") or "", self.headers.get("Origin")
        port = self.explorer.server.server_address[1]
        if self.explorer.is_open:
            welcome = self._has_token() and (origin is None or urlsplit(origin).netloc == name)
        else:
            here = {f"{one}:{port}" for one in LOCAL_NAMES} | (set(LOCAL_NAMES) if port == HTTP_PORT else set())
            welcome = name in here and (origin is None or (urlsplit(origin).scheme == "http" and urlsplit(origin).netloc in here))
        if not welcome:
            self._refuse(HTTPStatus.FORBIDDEN, "only for pages of this server")
        return welcome

    def _has_token(self) -> bool:
        """Whether the token is in the address, as in the link that the command printed, or in the cookie of an opened page."""
        query = parse_qs(urlsplit(self.path).query, max_num_fields=MOST_FIELDS).get("token", [""])[-1]
        cookie = f"; {self.headers.get('Cookie') or ''};".partition(f"; {TOKEN_COOKIE}=")[2].partition(";")[0]
        return any(secrets.compare_digest(given.encode(), self.explorer.token.encode()) for given in (query, cookie))

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        """Answer with a sentence and end the connection: what else was sent on it is not read."""
        self.close_connection = True
        self._send(why.encode(), "text/plain; charset=utf-8", status)

    def _json(self, content: Mapping[str, Any]) -> None:
        text = json.dumps({"schema": schema("explorer"), **content}, ensure_ascii=False)
        self._send(text.encode("utf-8"), "application/json; charset=utf-8")

    def _send(self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        if self.close_connection:
            self.send_header("Connection", "close")
        elif self.explorer.is_open:
            self.send_header("Set-Cookie", f"{TOKEN_COOKIE}={self.explorer.token}; HttpOnly; SameSite=Strict; Path=/")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the terminal quiet."""


def serve(explorer: Explorer) -> None:
    """Answer until interrupted."""
    try:
        explorer.server.serve_forever()
    finally:
        explorer.server.server_close()

"""The web server of the explorer: static files and four answers in JSON, on the loopback address only."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from npu_sim.cores import Profile
from npu_sim.explorer.answers import plan_answer
from npu_sim.explorer.jobs import Jobs
from npu_sim.explorer.state import catalog
from npu_sim.files.schemas import schema

LOOPBACK = "127.0.0.1"
LOCAL_NAMES = (LOOPBACK, "localhost")
LONGEST_BODY = 65536
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
    jobs: Jobs = field(init=False)

    def __post_init__(self) -> None:
        self.jobs = Jobs(self.products)

    @cached_property
    def server(self) -> ThreadingHTTPServer:
        """The server, bound to the loopback address; port 0 takes a free one."""
        explorer = self

        class Handler(_Handler):
            pass

        Handler.explorer = explorer
        server = ThreadingHTTPServer((LOOPBACK, self.port), Handler)
        server.daemon_threads = True
        return server

    @property
    def address(self) -> str:
        """Address of the page."""
        return f"http://{LOOPBACK}:{self.server.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    explorer: Explorer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a request for a file, a plan or the progress of a run."""
        if not self._is_local():
            return
        address = urlsplit(self.path)
        state = dict(parse_qsl(address.query, keep_blank_values=True))
        if address.path in FILES:
            package, name, kind = FILES[address.path]
            self._send(resources.files(package).joinpath(name).read_bytes(), f"{kind}; charset=utf-8")
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
        length = int(self.headers.get("Content-Length") or 0)
        foreign = self.headers.get("Content-Type") != "application/json" or length > LONGEST_BODY
        if not self._is_local():
            return
        if foreign or urlsplit(self.path).path != "/api/run":
            self.close_connection = True
            self._send(b"not found", "text/plain", HTTPStatus.NOT_FOUND)
            return
        try:
            body = json.loads(self.rfile.read(length))
        except ValueError:
            body = None
        if not isinstance(body, dict):
            self._send(b"expected a JSON object", "text/plain", HTTPStatus.BAD_REQUEST)
            return
        self._json({"number": self.explorer.jobs.start({str(key): str(value) for key, value in body.items()})})

    def _is_local(self) -> bool:
        """Refuse what a page of another origin could send through the user's browser."""
        host = (self.headers.get("Host") or "").rpartition(":")[0] or self.headers.get("Host")
        origin = self.headers.get("Origin")
        if host in LOCAL_NAMES and (origin is None or urlsplit(origin).hostname in LOCAL_NAMES):
            return True
        self.close_connection = True
        self._send(b"only for pages of this server", "text/plain", HTTPStatus.FORBIDDEN)
        return False

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

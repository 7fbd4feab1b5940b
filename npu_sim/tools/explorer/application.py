"""The explorer's web application and server: routes, limits of requests, and headers of responses.

The server is uvicorn's, with a time limit for the headers of a request.
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from http import HTTPStatus
from importlib import resources
from io import BytesIO
from socket import SO_REUSEADDR, SOL_SOCKET, socket
from tempfile import SpooledTemporaryFile
from types import MappingProxyType
from typing import IO, Any
from urllib.parse import parse_qsl

import h11
from jinja2 import Environment
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from npu_sim.cores import Profile, load_profile
from npu_sim.files.reading import DROPPED_BYTES
from npu_sim.files.writing import schema
from npu_sim.language import Text, language, translated, using_language
from npu_sim.show.forms.html import DRAWING_SCRIPTS, picture_texts
from npu_sim.status import NpuSimError
from npu_sim.tools.explorer.access import LOOPBACK, Access
from npu_sim.tools.explorer.answers import (
    failure,
    nearest_answer,
    plan_answer,
    plan_json,
    refusal,
    report_html,
    trace_json,
    work_answer,
)
from npu_sim.tools.explorer.jobs import (
    MOST_WAITING,
    PRODUCT,
    DroppedFiles,
    Jobs,
    Task,
    kind_of,
    without_folder,
)
from npu_sim.tools.explorer.state import LANGUAGE_NAMES, State, catalog, language_of, page_texts

BACKLOG = 64
LONGEST_BODY = 65536
"""Bytes of a request to run or to cancel."""
IN_MEMORY = 1 << 20
"""Bytes of a dropped file that are held in memory; larger ones are spooled to disk."""
MOST_FIELDS = 100
"""Fields of one query."""
BODY_SECONDS = 20
"""Time for the body of a request to arrive."""
HEADERS = MappingProxyType(
    {
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
    }
)
"""Headers of every response; the page loads nothing but what this server sends."""
JSON, BYTES = "application/json", "application/octet-stream"
SCRIPTS = ("main", "elements", "texts", "address", "fields", "panes", "jobs", "files", "sharing")
"""Modules of the page."""
FILES = MappingProxyType(
    {
        "/": ("npu_sim.tools.explorer", "page/index.html", "text/html"),
        **{
            f"/{name}.js": ("npu_sim.tools.explorer", f"page/{name}.js", "text/javascript")
            for name in SCRIPTS
        },
        "/explore.css": ("npu_sim.tools.explorer", "page/explore.css", "text/css"),
        **{
            f"/{name}": ("npu_sim.show.forms", f"assets/{name}", "text/javascript")
            for name in DRAWING_SCRIPTS
        },
        "/report.css": ("npu_sim.show.forms", "assets/report.css", "text/css"),
    }
)
FILE_NAME = "file.name"
"""Name of a dropped file in the query of its address; no operator has an argument with a dot."""


@dataclass
class Explorer:
    """One running explorer: what its page can choose, compute and read, and its address."""

    products: Mapping[str, Profile]
    """Products by the names that the page shows; replaced as a whole when one is added."""
    port: int = 0
    """Port to listen on; 0 takes a free one."""
    host: str = LOOPBACK
    """Address to listen on."""
    jobs: Jobs = field(default_factory=Jobs, kw_only=True)
    dropped: DroppedFiles = field(default_factory=DroppedFiles, kw_only=True)

    @cached_property
    def socket(self) -> socket:
        """The listening socket, bound on first use.

        Raises OSError if the address or port cannot be used.
        """
        listening = socket()
        try:
            listening.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
            listening.bind((self.host, self.port))
            listening.listen(BACKLOG)
        except OSError:
            listening.close()
            raise
        return listening

    @cached_property
    def access(self) -> Access:
        """Address and token of this explorer."""
        return Access(self.host, self.socket.getsockname()[1])

    def close(self) -> None:
        """Close the socket, end the computation and remove dropped files."""
        self.socket.close()
        self.jobs.end()
        self.dropped.forget()


Handler = Callable[[Explorer, State], Response]
"""Function that answers a request; the state is its query, or the JSON object of its body."""


def application(explorer: Explorer) -> Starlette:
    """Return the web application of an explorer."""

    def endpoint_of(
        handler: Handler, read: Callable[[Request], Awaitable[State]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return await _respond(handler, explorer, await read(request))

        return endpoint

    async def upload(request: Request) -> Response:
        length = _body_length(request, BYTES, DROPPED_BYTES)
        state = await _query(request)
        with SpooledTemporaryFile(max_size=IN_MEMORY) as body:
            await _receive(request, body)
            body.seek(0)
            return await _respond(partial(receive_file, body=body, length=length), explorer, state)

    async def guard(request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Refuse requests of other pages and programs, and set the headers of every response."""
        access = explorer.access
        why = access.refusal(request)
        if why:
            response = refused(HTTPStatus.FORBIDDEN, why)
        elif request.scope["path"] == "/" and access.opens_page(request):
            # The token must not stay in the address bar, from which links are copied.
            response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
            response.set_cookie(access.cookie, access.token, httponly=True, samesite="strict")
        else:
            response = await call_next(request)
        response.headers.update(HEADERS)
        return response

    gets: dict[str, Handler] = {
        **GET_HANDLERS,
        **{path: partial(file_of_page, path=path) for path in FILES},
    }
    posts = {
        "/api/run": endpoint_of(
            lambda explorer, state: _started(explorer, Task(state, explorer.products)), _json_body
        ),
        "/api/cancel": endpoint_of(cancel_run, _json_body),
        "/api/file": upload,
    }
    return Starlette(
        routes=[
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in posts.items()),
            *(Route(path, endpoint_of(handler, _query)) for path, handler in gets.items()),
        ],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)],
        exception_handlers={HTTPException: _on_http_error},
    )


# Requests


async def _query(request: Request) -> dict[str, str]:
    """Return the fields of the address.

    Raises HTTPException if there are too many.
    """
    text = request.url.query
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:
        raise HTTPException(
            400, Text("more than {most_fields} fields", most_fields=MOST_FIELDS)
        ) from None


def _body_length(request: Request, kind: str, most: int) -> int:
    """Return the length of a request's body, which is checked before any of it is read.

    Raises HTTPException if the body is not of the kind that the address takes, or longer than
    ``most`` bytes.
    """
    if request.headers.get("Content-Type") != kind:
        raise HTTPException(404)
    text = request.headers.get("Content-Length", "0")
    is_length = text.isascii() and text.isdigit() and len(text) < 10
    if not is_length or "Transfer-Encoding" in request.headers:
        raise HTTPException(400, "Content-Length is not a length")
    if int(text) > most:
        raise HTTPException(413, Text("more than {most} bytes", most=most))
    return int(text)


async def _receive(request: Request, body: IO[bytes]) -> None:
    """Write the body of a request to a file.

    Raises
    ------
    HTTPException
        If it takes longer than ``BODY_SECONDS``, or the client goes away.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                body.write(piece)
    except (TimeoutError, ClientDisconnect):
        raise HTTPException(408) from None


async def _json_body(request: Request) -> dict[str, str]:
    """Return the object that the body of a request holds, its values as text.

    Raises
    ------
    HTTPException
        If the body is not a JSON object.
    """
    _body_length(request, JSON, LONGEST_BODY)
    received = BytesIO()
    await _receive(request, received)
    body = None
    with suppress(ValueError, RecursionError):
        body = json.loads(received.getvalue())
    if not isinstance(body, dict):
        raise HTTPException(400, "expected a JSON object")
    return {str(key): str(value) for key, value in body.items()}


# Responses


def refused(status: int, why: str) -> Response:
    """Return a sentence with an error status; the connection ends, the rest of its input unread."""
    return Response(
        encoded(translated(why)),
        status,
        {"Connection": "close"},
        media_type="text/plain; charset=utf-8",
    )


def encoded(text: str) -> bytes:
    """Return UTF-8, with lone surrogates escaped: a name in a dropped file may have them."""
    return text.encode("utf-8", "backslashreplace")


def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        return refused(HTTPStatus.NOT_FOUND, "not found")
    return refused(error.status_code, error.detail)


def json_answer(content: Mapping[str, Any]) -> Response:
    """Return data in the form of the page."""
    text = json.dumps(
        {"schema": schema("explorer"), **content}, ensure_ascii=False, allow_nan=False
    )
    return Response(encoded(text), media_type=JSON)


async def _respond(handler: Handler, explorer: Explorer, state: State) -> Response:
    """Return a handler's response, computed in a thread; a bug becomes one with status 500."""

    def response() -> Response:
        with using_language(language_of(state)):
            try:
                return handler(explorer, state)
            except Exception as error:
                return refused(HTTPStatus.INTERNAL_SERVER_ERROR, failure(error)["text"])

    return await run_in_threadpool(response)


def file_of_page(explorer: Explorer, state: State, path: str) -> Response:
    """Return a file of the page; the token is inserted into the HTML page."""
    package, name, kind = FILES[path]
    content = resources.files(package).joinpath(name).read_text(encoding="utf-8")
    if path == "/":
        page = Environment(autoescape=True).from_string(content)
        content = page.render(token=explorer.access.token)
    return Response(content, media_type=kind)


def _catalog(explorer: Explorer, state: State) -> Response:
    chosen = language()
    return json_answer(
        {
            **catalog(explorer.products),
            "language": chosen,
            "languages": dict(LANGUAGE_NAMES),
            "texts": page_texts(chosen),
            "picture_texts": picture_texts(),
        }
    )


def _job(explorer: Explorer, state: State) -> Response:
    """Return the progress of a computation, or its answer."""
    unknown = {"stage": "done", "answer": {"outcome": "failed", "text": translated("no such run")}}
    return json_answer(explorer.jobs.report(state.get("number", "")) or unknown)


def _download(make: Callable[..., str], kind: str, file_name: str) -> Handler:
    def answer(explorer: Explorer, state: State) -> Response:
        try:
            content = make(state, explorer.products)
        except NpuSimError as error:
            return refused(HTTPStatus.CONFLICT, str(refusal(error)["text"]))
        return Response(
            encoded(content),
            headers={"Content-Disposition": f'attachment; filename="{file_name}"'},
            media_type=f"{kind}; charset=utf-8",
        )

    return answer


GET_HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "/api/catalog": _catalog,
        "/api/plan": lambda explorer, state: json_answer(plan_answer(state, explorer.products)),
        "/api/nearest": lambda explorer, state: json_answer(
            nearest_answer(state, explorer.products)
        ),
        "/api/work": lambda explorer, state: json_answer(work_answer(state, explorer.products)),
        "/api/run": _job,
        "/api/report": _download(report_html, "text/html", "plan.html"),
        "/api/trace": _download(trace_json, "application/json", "trace.json"),
        "/api/json": _download(plan_json, "application/json", "plan.json"),
        "/favicon.ico": lambda explorer, state: Response(status_code=204),
    }
)


def cancel_run(explorer: Explorer, state: State) -> Response:
    """End a computation."""
    explorer.jobs.cancel(state.get("number", ""))
    return json_answer({})


def receive_file(explorer: Explorer, state: State, body: IO[bytes], length: int) -> Response:
    """Store a dropped file; add the product it describes, or start the computation on it."""
    name = state.get(FILE_NAME, "")
    try:
        kind = kind_of(name)
        path = explorer.dropped.keep(name, body, length)
    except NpuSimError as error:
        return json_answer(refusal(error))
    if kind != PRODUCT:
        return _started(explorer, Task(state, explorer.products, kind, path))
    try:
        profile = load_profile(path)
    except NpuSimError as error:
        return json_answer(refusal(without_folder(error, path.parent)))
    explorer.products = {**explorer.products, name: profile}
    return json_answer({"outcome": "product", "product": name})


def _started(explorer: Explorer, task: Task) -> Response:
    number = explorer.jobs.start(task)
    if number is None:
        return refused(
            HTTPStatus.TOO_MANY_REQUESTS,
            Text("{most_waiting} computations wait already", most_waiting=MOST_WAITING),
        )
    return json_answer({"outcome": "started", "number": number})


MOST_CONNECTIONS = 256
"""Open connections; a request on a further one gets status 503."""
HEADER_SECONDS = 20
"""Time for the headers of a request to arrive; uvicorn alone would wait for ever."""
SHUTDOWN_SECONDS = 1
"""Time for requests in progress to end when the server stops."""


class _HeaderTimeout(H11Protocol):
    """Closes connections whose request headers do not arrive in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first request."""
        super().connection_made(transport)
        self._start_timer()

    def handle_events(self) -> None:
        """Stop the time limit once headers are complete; start it when the next ones begin."""
        super().handle_events()
        # h11 stores the bytes of an incomplete request head here.
        headers_begun = bool(self.conn.trailing_data[0])
        if self.conn.their_state is not h11.IDLE:
            self._timer.cancel()
        elif headers_begun and self._timer.cancelled():
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limit."""
        self._timer.cancel()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(HEADER_SECONDS, self.transport.abort)


def make_server(explorer: Explorer) -> Server:
    """Return the uvicorn server of an explorer; it prints nothing."""
    return Server(
        Config(
            application(explorer),
            http=_HeaderTimeout,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
    )


def serve(explorer: Explorer) -> None:
    """Answer requests until interrupted."""
    with closing(explorer):
        make_server(explorer).run(sockets=[explorer.socket])


@contextmanager
def serving(explorer: Explorer) -> Iterator[Explorer]:
    """Answer requests in a thread until the block ends."""
    server = make_server(explorer)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [explorer.socket]}, daemon=True)
    thread.start()
    try:
        yield explorer
    finally:
        server.should_exit = True
        thread.join()
        explorer.close()

"""The explorer's HTTP server: uvicorn, with a time limit for the headers of a request."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import h11
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from npu_sim.explorer.application import Explorer, application

MOST_CONNECTIONS = 256
"""Open connections; a request on a further one gets status 503."""
HEADER_SECONDS = 20
"""Time for the headers of a request to arrive; uvicorn alone would wait for ever."""
SHUTDOWN_SECONDS = 1
"""Time for requests in progress to end when the server stops."""


class _HeaderTimeout(H11Protocol):
    """Closes connections whose request headers do not arrive in time."""

    _timer: asyncio.TimerHandle | None = None

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
            self._stop_timer()
        elif headers_begun and self._timer is None:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limit."""
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def make_server(explorer: Explorer) -> Server:
    """Return the uvicorn server of an explorer; it prints nothing."""
    config = Config(
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
    return Server(config)


def serve(explorer: Explorer) -> None:
    """Answer requests until interrupted."""
    try:
        make_server(explorer).run(sockets=[explorer.socket])
    finally:
        explorer.close()


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

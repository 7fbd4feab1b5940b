"""Reading requests of clients that may be slow, but not for ever."""

import io
import socket
import time
from typing import Any


class Patience(io.RawIOBase):
    """What a client sends; every request has so long in all, however little comes at a time.

    Parameters
    ----------
    connection
        The connection to read from.
    seconds
        How long a request may take to arrive, from :meth:`again` on.
    """

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection, self._seconds = connection, seconds
        self.again()

    def again(self) -> None:
        """Wait anew: for the next request."""
        self._end = time.monotonic() + self._seconds

    def readable(self) -> bool:
        """Say that this can be read."""
        return True

    def readinto(self, room: Any) -> int:
        """Read what is there; TimeoutError when the time is up."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(room)
        finally:
            self._connection.settimeout(self._seconds)  # for the answer

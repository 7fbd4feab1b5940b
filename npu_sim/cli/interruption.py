"""Interruptions: Ctrl-C gives one line of output and exit code 130 within a second, at any time."""

import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import NoReturn

INTERRUPTED = 128 + signal.SIGINT
"""Exit code of a command that was interrupted."""

GRACE_SECONDS = 0.7
"""Time for a normal exit after SIGINT."""


class Interruption:
    """Handling of SIGINT.

    Python raises KeyboardInterrupt only between two bytecode instructions, and the exception is
    lost in callbacks whose errors a library ignores. Both happen while kernels are compiled. A
    thread therefore watches for the signal as well and ends the process if it has not ended soon
    after. Files are written whole or not at all, so no file is left incomplete.

    Attributes
    ----------
    raised
        The last KeyboardInterrupt; None before an interruption. Its traceback keeps the objects of
        the interrupted functions until the process ends: llvmlite crashes when it frees a module
        that it was passing on.
    """

    def __init__(self) -> None:
        self.raised: KeyboardInterrupt | None = None
        self._unreported = threading.Lock()

    def report(self, text: str = "interrupted") -> None:
        """Print a line about the interruption, the first time only."""
        if self._unreported.acquire(blocking=False):
            with suppress(OSError, ValueError):
                print(text, file=sys.stderr, flush=True)

    def interrupt(self, *_: object) -> NoReturn:
        """Raise KeyboardInterrupt and record it, as a library may catch, replace or ignore it."""
        self.raised = KeyboardInterrupt()
        sys.unraisablehook = lambda _: None
        raise self.raised

    def watch(self) -> None:
        """Start watching; call this from the main thread."""
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._end, args=(reader, writer), daemon=True).start()

    def _end(self, reader: socket.socket, _writer: socket.socket) -> None:
        while signal.SIGINT not in reader.recv(16):
            pass
        time.sleep(GRACE_SECONDS)
        self.report()
        os._exit(INTERRUPTED)


INTERRUPTION = Interruption()
"""The instance of this process."""

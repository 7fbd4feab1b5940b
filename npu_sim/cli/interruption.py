"""Ctrl-C: one line and exit code 130 within a second, whatever the process is doing."""

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

PATIENCE_SECONDS = 0.7


class Interruption:
    """What happens when the user interrupts.

    Python raises KeyboardInterrupt where the program is, which is heard only between two of its own instructions, and is lost where
    a library calls back and passes errors over: both happen while kernels are compiled. So a thread hears of the signal as well, and
    ends the process when that has not ended by itself soon. Files are written whole or not at all, so nothing is lost.

    Attributes
    ----------
    heard
        Whether there was one.
    """

    def __init__(self) -> None:
        self.heard = False
        self._unsaid = threading.Lock()

    def say(self, text: str = "interrupted") -> None:
        """Print what became of the command, unless that was said before."""
        if self._unsaid.acquire(blocking=False):
            with suppress(OSError, ValueError):
                print(text, file=sys.stderr, flush=True)

    def interrupt(self, *_: object) -> NoReturn:
        """Raise KeyboardInterrupt, and remember it: a library may catch it, make another error of it, or pass over it without a word."""
        self.heard = True
        sys.unraisablehook = lambda _: None
        raise KeyboardInterrupt

    def watch(self) -> None:
        """Listen from now on; to be called from the main thread."""
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._end, args=(ours, theirs), daemon=True).start()

    def _end(self, ours: socket.socket, theirs: socket.socket) -> None:
        while signal.SIGINT not in ours.recv(16):
            pass
        time.sleep(PATIENCE_SECONDS)
        self.say()
        os._exit(INTERRUPTED)


INTERRUPTION = Interruption()
"""The process has one."""

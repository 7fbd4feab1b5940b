"""A process that computes one task after the other, and can be ended at any moment: kernels do not stop when they are asked to."""

import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from npu_sim.explorer.answers import failure, refusal
from npu_sim.explorer.computations import Task, Tell, compute
from npu_sim.explorer.dropped import without_folder
from npu_sim.explorer.state import language_of
from npu_sim.language import speaking
from npu_sim.status import NpuSimError

Message = tuple[str, Any]
"""A stage with its share, or ``done`` with the answer."""
DONE = "done"


class Worker:
    """The process, from outside; it starts with the first task and again after it was ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._connection: Any = None

    def compute(self, task: Task) -> Iterator[Message]:
        """Yield how far a task is, then its answer; neither comes after :meth:`end`."""
        with self._lock:
            if self._process is None or not self._process.is_alive():
                self._start()
            connection = self._connection
        try:
            connection.send(task)
            message = ("", None)
            while message[0] != DONE:
                message = connection.recv()
                yield message
        except (EOFError, OSError):
            return

    def end(self) -> None:
        """End the process, whatever it is doing."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._process.join()
                self._process = self._connection = (
                    None  # not closed: whoever reads it comes to its end
                )

    def _start(self) -> None:
        context = get_context("spawn")  # a forked one would share the threads of the server
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()


def _work(connection: "Connection[Message, Task]") -> None:
    """Compute what is asked for until nobody asks any more."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the server, with which this process ends
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(
            (DONE, answer_of(task, lambda stage, share: connection.send((stage, share))))
        )


def answer_of(task: Task, tell: Tell) -> dict[str, Any]:
    """Return the answer to a task, also when it is refused or ends in a bug, of which the page must hear."""
    with speaking(language_of(task.state)):
        try:
            return compute(task, tell)
        except NpuSimError as error:
            return refusal(error if task.file is None else without_folder(error, task.file.parent))
        except Exception as error:
            return failure(error)


def _end_with_the_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)

"""Computations in the background: one at a time, in a process that can be killed.

Kernels do not stop on request, so cancelling a computation ends the process.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from npu_sim.explorer.answers import failure, refusal
from npu_sim.explorer.computations import Report, Task, compute
from npu_sim.explorer.dropped import without_folder
from npu_sim.explorer.state import language_of
from npu_sim.explorer.texts import UNFINISHED
from npu_sim.language import using_language
from npu_sim.status import NpuSimError

Message = tuple[str, Any]
"""``(stage, fraction from 0 to 1)``, or ``(DONE, answer)``."""
DONE = "done"


class Worker:
    """The process that computes; it starts with the first task, and again after it was killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._connection: Any = None

    def compute(self, task: Task) -> Iterator[Message]:
        """Yield the progress of a task and then its answer.

        Ends without :data:`DONE` if the process was killed.
        """
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
        """Kill the process."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._process.join()
                # The connection is not closed: its reader gets EOFError.
                self._process = self._connection = None

    def _start(self) -> None:
        context = get_context("spawn")  # a fork would inherit locks of the server's threads
        self._connection, worker_end = context.Pipe()
        self._process = context.Process(target=_work, args=(worker_end,), daemon=True)
        self._process.start()
        worker_end.close()


def _work(connection: "Connection[Message, Task]") -> None:
    """Compute tasks until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the server, which ends this process
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        answer = answer_of(task, lambda stage, fraction: connection.send((stage, fraction)))
        connection.send((DONE, answer))


def answer_of(task: Task, report: Report) -> dict[str, Any]:
    """Return the answer to a task; refusals and bugs become answers too."""
    with using_language(language_of(task.state)):
        try:
            return compute(task, report)
        except NpuSimError as error:
            return refusal(error if task.file is None else without_folder(error, task.file.parent))
        except Exception as error:
            return failure(error)


def _end_with_the_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


STORED_JOBS = 8
"""Finished computations whose answers are stored."""
MOST_WAITING = 4
"""Computations that may wait for the running one; a page has one at a time."""
WAITING = "waiting"


@dataclass
class Job:
    """One computation."""

    stage: str = WAITING
    """`WAITING`, a stage of the computation, or `DONE`."""
    fraction: float | None = None
    """Completed fraction of the stage; None if unknown."""
    answer: dict[str, Any] | None = None
    """The answer, when it is done."""
    cancelled: bool = False
    """Whether the user cancelled it."""
    began: float = field(default_factory=time.monotonic)
    """Start in seconds: of waiting, then of computing."""
    seconds: float | None = None
    """Duration, when it is done."""


@dataclass
class Jobs:
    """The computations of one explorer; one runs at a time."""

    _jobs: dict[str, Job] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)
    _worker: Worker = field(default_factory=Worker)

    def start(self, task: Task) -> str | None:
        """Start a computation; return its number, or None if too many are waiting."""
        with self._lock:
            if sum(job.stage == WAITING for job in self._jobs.values()) >= MOST_WAITING:
                return None
            number = str(1 + max(map(int, self._jobs), default=0))
            self._jobs[number] = Job()
            finished = [old for old, job in self._jobs.items() if job.stage == DONE]
            for old in finished[:-STORED_JOBS]:
                del self._jobs[old]
        threading.Thread(target=self._run, args=(number, task), daemon=True).start()
        return number

    def report(self, number: str) -> dict[str, Any] | None:
        """Return a computation as the page reads it; None for an unknown number."""
        with self._lock:
            job = self._jobs.get(number)
            if job is None:
                return None
            elapsed = time.monotonic() - job.began if job.seconds is None else job.seconds
            return {
                "stage": job.stage,
                "share": job.fraction,
                "answer": job.answer,
                "elapsed": elapsed,
            }

    def cancel(self, number: str) -> None:
        """End a computation; finished ones are left as they are."""
        with self._lock:
            job = self._jobs.get(number)
            if job is None or job.stage == DONE:
                return
            if job.stage != WAITING:
                self._worker.end()  # under the lock: the next computation cannot have begun
            job.cancelled, job.stage = True, DONE
            job.answer = {"outcome": "cancelled", "text": "cancelled"}
            job.seconds = time.monotonic() - job.began

    def end(self) -> None:
        """End the process that computes."""
        self._worker.end()

    def _set(self, number: str, **changes: Any) -> bool:
        """Change a job; return False if it was cancelled or removed."""
        with self._lock:
            job = self._jobs.get(number)
            if job is None or job.cancelled:
                return False
            self._jobs[number] = replace(job, **changes)
            return True

    def _run(self, number: str, task: Task) -> None:
        with self._one_at_a_time:
            began = time.monotonic()
            if not self._set(number, stage="starting", began=began):
                return
            answer = {"outcome": "failed", "text": UNFINISHED}
            for stage, value in self._worker.compute(task):
                if stage == DONE:
                    answer = value
                elif not self._set(number, stage=stage, fraction=value):
                    # `cancel` found no process to kill; kill it at its first message.
                    self._worker.end()
            seconds = time.monotonic() - began
            self._set(number, stage=DONE, fraction=None, answer=answer, seconds=seconds)

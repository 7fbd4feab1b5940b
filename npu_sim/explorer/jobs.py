"""What the page waits for: one computation at a time, in the background, with the stage it is in; it can be cancelled."""

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from npu_sim.explorer.computations import Task
from npu_sim.explorer.worker import DONE, Worker

KEPT_JOBS = 8
"""Computations that are over and can still be asked for."""
MOST_WAITING = 4
"""Computations that wait for the one at work; a page has one at a time."""
WAITING = "waiting"
UNFINISHED = "the computation ended before its end: not enough memory?"

Job = dict[str, Any]


@dataclass
class Jobs:
    """Computations that were asked for."""

    _jobs: dict[str, Job] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)
    _worker: Worker = field(default_factory=Worker)

    def start(self, task: Task) -> str | None:
        """Start a computation; return its number, or None when too many wait already."""
        with self._lock:
            if sum(job["stage"] == WAITING for job in self._jobs.values()) >= MOST_WAITING:
                return None
            number = str(1 + max(map(int, self._jobs), default=0))
            self._jobs[number] = {
                "stage": WAITING,
                "share": None,
                "began": time.monotonic(),
                "answer": None,
                "cancelled": False,
            }
            over = [old for old, job in self._jobs.items() if job["stage"] == DONE]
            for old in over[:-KEPT_JOBS]:
                del self._jobs[old]
        threading.Thread(target=self._run, args=(number, task), daemon=True).start()
        return number

    def report(self, number: str) -> Job | None:
        """Return how far a computation is: its stage, the share of it where that is known, the seconds, and in the end its answer."""
        with self._lock:
            job = self._jobs.get(number)
            if job is None:
                return None
            seconds = job.get("seconds", time.monotonic() - job["began"])
            return {
                "stage": job["stage"],
                "share": job["share"],
                "elapsed": seconds,
                "answer": job["answer"],
            }

    def cancel(self, number: str) -> None:
        """End a computation; nothing happens to one that is over."""
        with self._lock:
            job = self._jobs.get(number)
            if job is None or job["stage"] == DONE:
                return
            if job["stage"] != WAITING:
                self._worker.end()  # with the lock: the next computation cannot have begun
            job.update(
                cancelled=True, stage=DONE, answer={"outcome": "cancelled", "text": "cancelled"}
            )

    def end(self) -> None:
        """End the process that computes."""
        self._worker.end()

    def _set(self, number: str, **changes: Any) -> bool:
        """Change a job; return False when nobody waits for it any more."""
        with self._lock:
            job = self._jobs.get(number)
            if job is None or job["cancelled"]:
                return False
            job.update(changes)
            return True

    def _run(self, number: str, task: Task) -> None:
        with self._one_at_a_time:
            began = time.monotonic()
            if not self._set(number, stage="starting", began=began):
                return
            answer = {"outcome": "failed", "text": UNFINISHED}
            for stage, told in self._worker.compute(task):
                if stage == DONE:
                    answer = told
                elif not self._set(number, stage=stage, share=told):
                    self._worker.end()  # cancelled before the process began
            self._set(
                number, stage=DONE, share=None, answer=answer, seconds=time.monotonic() - began
            )

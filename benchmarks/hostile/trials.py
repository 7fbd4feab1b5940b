"""All kinds of trials by name, and batches of them in another process.

A crash of that process is a failure, and the other trials continue.
"""

import faulthandler
import multiprocessing
import os
import traceback
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field

import numpy as np

from benchmarks.hostile.campaign import CALLS, Trial
from benchmarks.hostile.folders import FOLDERS
from benchmarks.hostile.interference import INTERFERENCE
from benchmarks.hostile.names import NAMED
from npu_sim import NpuSimError

TRIALS: dict[str, Trial] = {**CALLS, **INTERFERENCE, **NAMED, **FOLDERS}


def attempt(trial: Trial, seed: int) -> bool:
    """Run one trial; return whether it was answered."""
    try:
        return trial(np.random.default_rng(seed))
    except NpuSimError:
        return False


BATCH = 5000


@dataclass
class Count:
    """Outcomes of trials."""

    answered: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)

    def __iadd__(self, other: "Count") -> "Count":
        self.answered += other.answered
        self.refused += other.refused
        self.failures += other.failures
        return self

    def __str__(self) -> str:
        trials = self.answered + self.refused
        outcomes = f"{self.answered} answered, {self.refused} refused"
        return f"{trials} trials, {outcomes}, {len(self.failures)} failures"


def trials(kind: str, seeds: range) -> Count:
    """Run trials in this process."""
    faulthandler.enable()
    count, parent = Count(), multiprocessing.parent_process()
    for seed in seeds:
        if parent is not None and not parent.is_alive():
            os._exit(1)  # the parent process has ended
        try:
            answered = attempt(TRIALS[kind], seed)
        except Exception:
            count.failures.append(
                f"--only {kind} --seed {seed} --trials 1\n{traceback.format_exc()}"
            )
        else:
            count += Count(int(answered), int(not answered))
    return count


class ChildProcess:
    """Runs trials in another process, which is replaced when a trial ends it."""

    def __init__(self) -> None:
        self._pool = self._new_pool()

    def trials(self, kind: str, seeds: range) -> Count:
        try:
            return self._pool.submit(trials, kind, seeds).result()
        except BrokenProcessPool:
            self._pool = self._new_pool()
        if len(seeds) == 1:
            return Count(failures=[f"--only {kind} --seed {seeds[0]} --trials 1\nthe process died"])
        middle = len(seeds) // 2
        count = self.trials(kind, seeds[:middle])
        count += self.trials(kind, seeds[middle:])
        return count

    def close(self) -> None:
        self._pool.shutdown()

    @staticmethod
    def _new_pool() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

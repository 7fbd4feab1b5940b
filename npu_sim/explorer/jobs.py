"""Runs on generated data: one at a time, in the background, with the stage it is in."""

import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from npu_sim.cores import Profile
from npu_sim.explorer.answers import refusal, result_answer
from npu_sim.explorer.state import State, call_of
from npu_sim.numbers.formats import TensorSpec
from npu_sim.registry import load_operator
from npu_sim.status import NpuSimError, UsageError

MOST_BYTES = 1 << 31
"""Tensors of one run together; more is for the command line."""
STAGES = ("planning", "generating data", "computing", "done")
"""Stages of a run in order; the first computation of an operator compiles its kernel."""
KEPT_JOBS = 8
MOST_WAITING = 4
"""Runs that wait for the one being computed; a page has one at a time."""

Job = dict[str, Any]


@dataclass
class Jobs:
    """Runs that were asked for."""

    products: Mapping[str, Profile]
    _jobs: dict[str, Job] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    def start(self, state: State) -> str | None:
        """Start a run; return its number, or None when too many wait already."""
        with self._lock:
            if sum(job["stage"] == "waiting" for job in self._jobs.values()) >= MOST_WAITING:
                return None
            number = str(1 + max(map(int, self._jobs), default=0))
            self._jobs[number] = {"stage": "waiting", "began": time.monotonic()}
            for old in sorted(self._jobs, key=int)[:-KEPT_JOBS]:
                del self._jobs[old]
        threading.Thread(target=self._run, args=(number, dict(state)), daemon=True).start()
        return number

    def report(self, number: str) -> Job | None:
        """Return how far a run is: its stage, the seconds since it began, and in the end its answer."""
        with self._lock:
            job = self._jobs.get(number)
            if job is None:
                return None
            seconds = job.get("seconds", time.monotonic() - job["began"])
            return {"stage": job["stage"], "stages": list(STAGES), "elapsed": seconds, "answer": job.get("answer")}

    def _set(self, number: str, **changes: Any) -> None:
        with self._lock:
            if number in self._jobs:
                self._jobs[number].update(changes)

    def _run(self, number: str, state: State) -> None:
        with self._one_at_a_time:
            began = time.monotonic()
            self._set(number, began=began)
            try:
                answer = compute(state, self.products, lambda stage: self._set(number, stage=stage))
            except NpuSimError as error:
                answer = refusal(error)
            except Exception as error:  # the page must hear of a bug, not wait for ever
                traceback.print_exc()
                answer = {"outcome": "failed", "text": f"internal error: {type(error).__name__}: {error}"}
            self._set(number, stage="done", answer=answer, seconds=time.monotonic() - began)


def compute(state: State, products: Mapping[str, Profile], enter: Callable[[str], None]) -> dict[str, Any]:
    """Generate data for the call of a state and run it, announcing every stage."""
    from npu_sim.operators import plan, run

    enter("planning")
    call = call_of(state, products)
    plan(call.operator, **call.options)
    declared = load_operator(call.operator)
    arguments = declared.build(call.arguments)
    require_runnable(arguments)
    enter("generating data")
    from npu_sim.operators.generate import generate  # only now: data and kernels cost time to load

    data = generate(call.operator, arguments, seed=0)
    enter("computing")
    return result_answer(run(call.operator, **{**call.options, **data}))


def require_runnable(arguments: Mapping[str, Any]) -> None:
    """Refuse tensors that a page should not try to fill."""
    specs = {name: spec for name, spec in arguments.items() if isinstance(spec, TensorSpec)}
    total = sum(spec.nbytes for spec in specs.values())
    if total > MOST_BYTES:
        largest = max(specs, key=lambda name: specs[name].nbytes)
        message = f"the tensors have {total} bytes, more than the {MOST_BYTES} that this page generates data for"
        raise UsageError(largest, message, "make them smaller, or use npu-sim run with files")

"""What takes longer than a page waits: runs on generated data, profiles of devices, files of calls. Computed in a process of its own."""

import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from npu_sim.cores import Profile
from npu_sim.explorer.answers import document_answer, result_answer
from npu_sim.explorer.state import State, call_of, panes, profile_of
from npu_sim.files.reading import lines_of
from npu_sim.framework.operator import Operator
from npu_sim.numbers.formats import TensorSpec
from npu_sim.registry import load_operator
from npu_sim.releases import default_release
from npu_sim.status import NpuSimError, UsageError

if TYPE_CHECKING:
    from npu_sim.questions.preflight import Column

MOST_BYTES = 1 << 31
"""Tensors of one run together; more is for the command line."""
TELL_SECONDS = 0.05
"""Time between two reports of a share."""

Tell = Callable[[str, float | None], None]
"""Takes the stage that begins or goes on, and the share of it that is done where that is known."""


@dataclass(frozen=True)
class Task:
    """What to compute: a run of a state (without ``file``), or a ``file`` of the ``kind`` ``profile`` or ``calls`` on products."""

    state: State
    products: Mapping[str, Profile]
    kind: str = "run"
    file: Path | None = None


def compute(task: Task, tell: Tell) -> dict[str, Any]:
    """Compute a task, telling how far it is.

    Raises
    ------
    NpuSimError
        When the call is refused, or the file is none.
    """
    if task.kind == "run":
        return run_answer(task, tell)
    return profile_answer(task, tell) if task.kind == "profile" else calls_answer(task, tell)


def run_answer(task: Task, tell: Tell) -> dict[str, Any]:
    """Generate data for the call of a state and run it."""
    from npu_sim.operators import plan, run

    tell("planning", None)
    call = call_of(task.state, task.products)
    plan(call.operator, **call.options)
    declared: Operator = load_operator(call.operator)
    arguments = declared.build(call.arguments)
    require_runnable(arguments)
    from npu_sim.operators.shared.generate import (
        generate,
    )  # only now: data and kernels cost time to load

    progress = Progress("generating data", drawn_elements(declared, arguments), tell)
    data = generate(call.operator, arguments, CountingGenerator(np.random.PCG64(0), progress))
    tell("computing", None)
    return result_answer(run(call.operator, **{**call.options, **data}))


def require_runnable(arguments: Mapping[str, Any]) -> None:
    """Refuse tensors that a page should not try to fill."""
    specs = specs_of(arguments)
    total = sum(spec.nbytes for spec in specs.values())
    if total > MOST_BYTES:
        largest = max(specs, key=lambda name: specs[name].nbytes)
        message = f"the tensors have {total} bytes, more than the {MOST_BYTES} that this page generates data for"
        raise UsageError(largest, message, "make them smaller, or use npu-sim run with files")


def specs_of(arguments: Mapping[str, Any]) -> dict[str, TensorSpec]:
    """Return the tensors of a call."""
    return {name: spec for name, spec in arguments.items() if isinstance(spec, TensorSpec)}


def drawn_elements(operator: Operator, arguments: Mapping[str, Any]) -> int:
    """Return how many elements the floating inputs of a call have: about as many normal numbers are drawn for its data."""
    from npu_sim.operators.shared.generate import FLOATING

    drawn = (
        spec
        for name, spec in specs_of(arguments).items()
        if name in operator.input_names and spec.dtype in FLOATING
    )
    return sum(spec.numel for spec in drawn)


class Progress:
    """Counts what is done of a stage and tells its share now and then; from several threads."""

    def __init__(self, stage: str, total: int, tell: Tell) -> None:
        self.stage, self.total, self._tell = stage, max(total, 1), tell
        self._done, self._told = 0, 0.0
        self._lock = threading.Lock()
        tell(stage, 0.0)

    def add(self, count: int) -> None:
        """Count so much more."""
        with self._lock:
            self._done += count
            if time.monotonic() - self._told > TELL_SECONDS:
                self._told = time.monotonic()
                self._tell(self.stage, min(self._done / self.total, 1.0))


class CountingGenerator(np.random.Generator):
    """A generator of random numbers that counts the normal ones, of which tensors are made."""

    def __init__(self, bits: np.random.BitGenerator, progress: Progress) -> None:
        super().__init__(bits)
        self._progress = progress

    def standard_normal(self, *arguments: Any, **options: Any) -> Any:
        """Draw, then count."""
        drawn = super().standard_normal(*arguments, **options)
        self._progress.add(np.size(drawn))
        return drawn

    def spawn(self, n_children: int) -> list[np.random.Generator]:
        """Return generators that count for the same tensor."""
        return [
            CountingGenerator(bits, self._progress) for bits in self.bit_generator.spawn(n_children)
        ]


def profile_answer(task: Task, tell: Tell) -> dict[str, Any]:
    """Read the profile of a device; where the file does not say of which, it is taken to be of the SoC that the page shows."""
    from npu_sim.questions.measured_profile import read_profile
    from npu_sim.show.reports.measured_profile import measured_report

    assert task.file is not None
    tell("reading", None)
    try:
        answer = read_profile(task.file)
    except NpuSimError as error:
        if error.argument != "soc":
            raise
        answer = read_profile(task.file, soc=task.state.get("soc"))
    return document_answer(measured_report(replace(answer, file=task.file.name)))


def calls_answer(task: Task, tell: Tell) -> dict[str, Any]:
    """Check a file of calls for the products that the page shows."""
    from npu_sim.questions.preflight import check_file
    from npu_sim.show.reports.preflight import preflight_report

    assert task.file is not None
    targets = list(dict.fromkeys(_target(state, task.products) for state in panes(task.state)))
    with task.file.open("rb") as file:
        lines = _counted(file, Progress("checking calls", task.file.stat().st_size, tell))
        matrix = check_file(lines, targets, directory=task.file.parent)
    return document_answer(
        preflight_report(matrix, task.file.name, f"npu-sim preflight {shlex.quote(task.file.name)}")
    )


def _target(state: State, products: Mapping[str, Profile]) -> "Column":
    from npu_sim.questions.preflight import Column

    profile = profile_of(state, products)
    release = "" if profile.release == default_release() else f" {profile.release}"
    return Column(profile, f"{state.get('product') or profile.name} {profile.soc}{release}")


def _counted(file: IO[bytes], progress: Progress) -> Iterator[bytes]:
    for line in lines_of(file):
        progress.add(len(line))
        yield line

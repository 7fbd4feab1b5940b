"""Computations that take long: runs on generated data, device profiles, files of calls."""

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
from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.registry import load_operator
from npu_sim.releases import default_release
from npu_sim.status import NpuSimError, UsageError

if TYPE_CHECKING:
    from npu_sim.questions.preflight import Column

MOST_BYTES = 1 << 31
"""Largest total size of the tensors of one run; larger runs are left to the command line."""
REPORT_SECONDS = 0.05
"""Minimum time between two progress reports."""

Report = Callable[[str, float | None], None]
"""Receives the current stage and its completed fraction, or None if unknown."""


@dataclass(frozen=True)
class Task:
    """A run of a state, or a file to read."""

    state: State
    """State of the page."""
    products: Mapping[str, Profile]
    """Products that can be chosen."""
    kind: str = "run"
    """``run``, ``profile`` or ``calls``."""
    file: Path | None = None
    """The file of a ``profile`` or of ``calls``."""


def compute(task: Task, report: Report) -> dict[str, Any]:
    """Compute a task and report its progress.

    Raises NpuSimError if the call is refused, or the file is invalid.
    """
    answers = {"run": run_answer, "profile": profile_answer, "calls": calls_answer}
    return answers[task.kind](task, report)


def run_answer(task: Task, report: Report) -> dict[str, Any]:
    """Generate data for the call of a state and run it."""
    from npu_sim.operators import plan, run

    report("planning", None)
    call = call_of(task.state, task.products)
    plan(call.operator, **call.options)
    declared: Operator = load_operator(call.operator)
    arguments = declared.build(call.arguments)
    require_runnable(arguments)
    from npu_sim.operators.shared.generate import generate  # imports kernels

    progress = Progress("generating data", drawn_elements(declared, arguments), report)
    data = generate(call.operator, arguments, CountingGenerator(np.random.PCG64(0), progress))
    report("computing", None)
    return result_answer(run(call.operator, **{**call.options, **data}))


def require_runnable(arguments: Mapping[str, Any]) -> None:
    """Refuse tensors that are too large for generated data."""
    specs = specs_of(arguments)
    total = sum(spec.nbytes for spec in specs.values())
    if total > MOST_BYTES:
        largest = max(specs, key=lambda name: specs[name].nbytes)
        message = Text(
            "the tensors have {total} bytes, more than the {most_bytes} that this page generates "
            "data for",
            total=total,
            most_bytes=MOST_BYTES,
        )
        raise UsageError(largest, message, "make them smaller, or use npu-sim run with files")


def specs_of(arguments: Mapping[str, Any]) -> dict[str, TensorSpec]:
    """Return the tensors of a call."""
    return {name: spec for name, spec in arguments.items() if isinstance(spec, TensorSpec)}


def drawn_elements(operator: Operator, arguments: Mapping[str, Any]) -> int:
    """Return the number of elements of the floating inputs: the normal numbers drawn for them."""
    from npu_sim.operators.shared.generate import FLOATING

    drawn = (
        spec
        for name, spec in specs_of(arguments).items()
        if name in operator.input_names and spec.dtype in FLOATING
    )
    return sum(spec.numel for spec in drawn)


class Progress:
    """Thread-safe counter of the completed work of a stage; reports its fraction."""

    def __init__(self, stage: str, total: int, report: Report) -> None:
        self.stage, self.total, self._report = stage, max(total, 1), report
        self._done, self._reported = 0, 0.0
        self._lock = threading.Lock()
        report(stage, 0.0)

    def add(self, count: int) -> None:
        """Add completed work."""
        with self._lock:
            self._done += count
            if time.monotonic() - self._reported > REPORT_SECONDS:
                self._reported = time.monotonic()
                self._report(self.stage, min(self._done / self.total, 1.0))


class CountingGenerator(np.random.Generator):
    """Random generator that counts the normal numbers it draws."""

    def __init__(self, bits: np.random.BitGenerator, progress: Progress) -> None:
        super().__init__(bits)
        self._progress = progress

    def standard_normal(self, *arguments: Any, **options: Any) -> Any:
        """Draw numbers and count them."""
        drawn = super().standard_normal(*arguments, **options)
        self._progress.add(np.size(drawn))
        return drawn

    def spawn(self, n_children: int) -> list[np.random.Generator]:
        """Return generators that count into the same progress."""
        return [
            CountingGenerator(bits, self._progress) for bits in self.bit_generator.spawn(n_children)
        ]


def profile_answer(task: Task, report: Report) -> dict[str, Any]:
    """Read the profile of a device; a file without a SoC gets the SoC of the page."""
    from npu_sim.questions.measured_profile import read_profile
    from npu_sim.show.reports.measured_profile import measured_report

    assert task.file is not None
    report("reading", None)
    try:
        answer = read_profile(task.file)
    except NpuSimError as error:
        if error.argument != "soc":
            raise
        answer = read_profile(task.file, soc=task.state.get("soc"))
    return document_answer(measured_report(replace(answer, file=task.file.name)))


def calls_answer(task: Task, report: Report) -> dict[str, Any]:
    """Check a file of calls for the products that the page shows."""
    from npu_sim.questions.preflight import check_file
    from npu_sim.show.reports.preflight import preflight_report

    assert task.file is not None
    targets = list(dict.fromkeys(_target(state, task.products) for state in panes(task.state)))
    with task.file.open("rb") as file:
        lines = _counted(file, Progress("checking calls", task.file.stat().st_size, report))
        matrix = check_file(lines, targets, directory=task.file.parent)
    command = f"npu-sim preflight {shlex.quote(task.file.name)}"
    return document_answer(preflight_report(matrix, task.file.name, command))


def _target(state: State, products: Mapping[str, Profile]) -> "Column":
    from npu_sim.questions.preflight import Column

    profile = profile_of(state, products)
    release = "" if profile.release == default_release() else f" {profile.release}"
    return Column(profile, f"{state.get('product') or profile.name} {profile.soc}{release}")


def _counted(file: IO[bytes], progress: Progress) -> Iterator[bytes]:
    for line in lines_of(file):
        progress.add(len(line))
        yield line

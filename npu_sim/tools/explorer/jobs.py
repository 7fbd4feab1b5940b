"""Computations that take long: runs on generated data, device profiles, files of calls.

They run in the background, one at a time, in a process that can be killed: kernels do not stop on
request, so cancelling a computation ends the process.

Files dropped on the page are stored here as well: products, device profiles and files of calls.
"""

import os
import re
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import IO, Any

import numpy as np

from npu_sim.cores import Profile, default_release
from npu_sim.files.reading import CONFIG_BYTES, DROPPED_BYTES, lines_of, open_plain
from npu_sim.framework.inference import arguments_of
from npu_sim.framework.operator import Operator
from npu_sim.language import using_language, with_changed_fields
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.loading import load_operator
from npu_sim.status import NpuSimError, UsageError
from npu_sim.system import replacing
from npu_sim.tools.explorer.answers import document_answer, failure, refusal, result_answer
from npu_sim.tools.explorer.state import UNFINISHED, State, call_of, language_of, panes, profile_of

PRODUCT, PROFILE, CALLS = "product", "profile", "calls"
KINDS = {
    ".yaml": PRODUCT,
    ".yml": PRODUCT,
    ".csv": PROFILE,
    ".db": PROFILE,
    ".jsonl": CALLS,
    ".json": CALLS,
}
"""Kind of a file by its suffix."""
MOST_FILE_BYTES = {PRODUCT: CONFIG_BYTES, PROFILE: DROPPED_BYTES, CALLS: DROPPED_BYTES}
MOST_FILES = 16
NAME = re.compile(r"[\w +-][\w. +-]{0,99}")
"""A plain file name. It does not begin with a dot, so files that are not whole do not match."""


def kind_of(name: str) -> str:
    """Return the kind of a file; see ``KINDS``.

    Raises UsageError if the suffix is unknown, or the name is not a plain file name.
    """
    kind = KINDS.get(Path(name).suffix.lower())
    if kind is None or not NAME.fullmatch(name):
        raise UsageError(
            "file",
            "{name}: not a file that is read here",
            ".yaml for a product, .csv or .db for what a profiler wrote, .jsonl for "
            "calls; letters, digits, blanks and . _ + - before it",
            name=name[:100],
        )
    return kind


class DroppedFiles:
    """The newest dropped files, in a temporary folder of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @cached_property
    def folder(self) -> TemporaryDirectory[str]:
        """The folder, made for the first file."""
        return TemporaryDirectory(prefix="npu_sim_explorer_")

    def keep(self, name: str, body: IO[bytes], length: int) -> Path:
        """Store a file, replacing one of the same name, and remove the oldest files.

        - ``name``: name that :func:`kind_of` accepts.
        - ``body``, ``length``: content, and its length in bytes.

        Raises UsageError if the file is too large for its kind.
        """
        most = MOST_FILE_BYTES[kind_of(name)]
        if length > most:
            raise UsageError(
                "file",
                "{name} has {length} bytes, more than the {most} that are read of such a file",
                "",
                name=name,
                length=length,
                most=most,
            )
        with self._lock:
            folder = Path(self.folder.name)
            with replacing(folder / name) as file:
                copyfileobj(body, file)
            files = [file for file in folder.iterdir() if NAME.fullmatch(file.name)]
            files.sort(key=lambda file: file.stat().st_mtime_ns)
            for old in files[:-MOST_FILES]:
                old.unlink()
        return folder / name

    def forget(self) -> None:
        """Remove the folder if a file was dropped."""
        if "folder" in vars(self):
            self.folder.cleanup()


def without_folder(error: NpuSimError, folder: Path) -> NpuSimError:
    """Return an error whose message omits the temporary folder from file names."""

    def without(text: str) -> str:
        return type(text)(text.replace(f"{folder}{os.sep}", ""))

    message, hint = (with_changed_fields(text, without) for text in (error.message, error.hint))
    return type(error)(*(*error.args[:-2], message, hint))


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


def run_answer(task: Task, report: Report) -> dict[str, Any]:
    """Generate data for the call of a state and run it."""
    from npu_sim.operators import plan, run

    report("planning", None)
    call = call_of(task.state, task.products)
    plan(call.operator, **call.options)
    declared = load_operator(call.operator)
    arguments = arguments_of(declared, call.arguments)
    require_runnable(arguments)
    from npu_sim.operators.shared.generate import generate  # imports kernels

    counter = StageCounter("generating data", drawn_elements(declared, arguments), report)
    data = generate(call.operator, arguments, CountingGenerator(np.random.PCG64(0), counter))
    report("computing", None)
    return result_answer(run(call.operator, **{**call.options, **data}))


def require_runnable(arguments: Mapping[str, Any]) -> None:
    """Refuse tensors that are too large for generated data."""
    specs = specs_of(arguments)
    total = sum(spec.nbytes for spec in specs.values())
    if total > MOST_BYTES:
        largest = max(specs, key=lambda name: specs[name].nbytes)
        raise UsageError(
            largest,
            "the tensors have {total} bytes, more than the {most_bytes} that this page generates "
            "data for",
            "make them smaller, or use npu-sim run with files",
            total=total,
            most_bytes=MOST_BYTES,
        )


def specs_of(arguments: Mapping[str, Any]) -> dict[str, TensorSpec]:
    """Return the tensors of a call."""
    return {name: spec for name, spec in arguments.items() if isinstance(spec, TensorSpec)}


def drawn_elements(operator: Operator, arguments: Mapping[str, Any]) -> int:
    """Return the number of elements of the floating inputs: the normal numbers drawn for them."""
    from npu_sim.operators.shared.generate import FLOATING

    return sum(
        spec.numel
        for name, spec in specs_of(arguments).items()
        if name in operator.input_names and spec.dtype in FLOATING
    )


class StageCounter:
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

    def __init__(self, bits: np.random.BitGenerator, counter: StageCounter) -> None:
        super().__init__(bits)
        self._counter = counter

    def standard_normal(self, *arguments: Any, **options: Any) -> Any:
        """Draw numbers and count them."""
        drawn = super().standard_normal(*arguments, **options)
        self._counter.add(np.size(drawn))
        return drawn

    def spawn(self, n_children: int) -> list[np.random.Generator]:
        """Return generators that count with the same counter."""
        return [
            CountingGenerator(bits, self._counter) for bits in self.bit_generator.spawn(n_children)
        ]


def profile_answer(task: Task, report: Report) -> dict[str, Any]:
    """Read the profile of a device; a file without a SoC gets the SoC of the page."""
    from npu_sim.tools.profiles.measured_profile import read_profile
    from npu_sim.tools.profiles.view import measured_report

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
    from npu_sim.questions.preflight import Column, check_file
    from npu_sim.show.preflight import preflight_report

    def target(state: State) -> Column:
        profile = profile_of(state, task.products)
        release = "" if profile.release == default_release() else f" {profile.release}"
        return Column(profile, f"{state.get('product') or profile.name} {profile.soc}{release}")

    assert task.file is not None
    targets = list(dict.fromkeys(map(target, panes(task.state))))
    with open_plain("file", task.file, "a file of calls, one JSON object a line") as file:
        lines = _counted(file, StageCounter("checking calls", task.file.stat().st_size, report))
        matrix = check_file(lines, targets, directory=task.file.parent)
    return document_answer(
        preflight_report(matrix, task.file.name, f"npu-sim preflight {shlex.quote(task.file.name)}")
    )


def _counted(file: IO[bytes], counter: StageCounter) -> Iterator[bytes]:
    for line in lines_of(file):
        counter.add(len(line))
        yield line


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
    """Compute a task, report its progress and return the answer; refusals and bugs are answers."""
    answers = {"run": run_answer, "profile": profile_answer, "calls": calls_answer}
    with using_language(language_of(task.state)):
        try:
            return answers[task.kind](task, report)
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

"""Commands that are killed at random moments and resumed until they end.

After a kill the output is missing or complete, and in the end the folder has the same bytes as
after an undisturbed command. Commands run in forks of a process that has loaded all modules, so
that kills occur during their work and not while Python starts.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np

from npu_sim import cli
from npu_sim.sweeps import runner
from npu_sim.system import HIDDEN

LOADED = (
    "numba",
    "pyarrow.parquet",
    "torch",
    "npu_sim.framework.execution",
    "npu_sim.torch",
    "npu_sim.show.preflight",
)
CHUNK_ROWS = 5000
"""Rows per chunk of sweeps, which write after every chunk."""
INPUTS = "given"
"""Folder of the command's inputs."""


@dataclass(frozen=True)
class Interrupted:
    """A command that writes.

    Attributes
    ----------
    arguments
        Arguments of ``npu-sim``.
    output
        Name of the file or folder it writes.
    temporary
        Other files that may exist while the output is incomplete.
    resume
        Arguments that resume an incomplete output.
    overwrite
        Arguments that overwrite a complete output.
    cold
        Whether it compiles its kernels, into a folder next to its output.
    """

    arguments: tuple[str, ...]
    output: str
    temporary: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    overwrite: tuple[str, ...] = ()
    cold: bool = False


def _sweep(output: str, rows: int) -> Interrupted:
    arguments = (
        "sweep",
        "rms_norm",
        "--grid",
        f"rows=1..{rows}",
        "--columns",
        "row,status,block_dim,row_factor",
        "--out",
        output,
    )
    return Interrupted(
        arguments,
        output,
        (f"{output}.partial", f"{output}.progress.json"),
        ("--resume",),
        ("--overwrite",),
    )


RUN = (
    "run",
    "embedding_dense_backward",
    "--grad",
    "8000x256:fp32",
    "--indices",
    "8000:int64",
    "--num-weights",
    "9000",
    "--out",
    "w.npy",
)
COMPILES = ("run", "rms_norm", "--x", "64x1280:fp32", "--gamma", "1280:fp32", "--out", "y.npz")
INTERRUPTED = {
    "sweep to columns": _sweep("plans", 200_000),
    "sweep to .csv": _sweep("plans.csv", 100_000),
    "sweep to .parquet": _sweep("plans.parquet", 200_000),
    "preflight": Interrupted(
        (
            "preflight",
            f"{INPUTS}/calls.jsonl",
            "--products",
            "atlas_a2,atlas_a3",
            "--out",
            "checked.jsonl",
        ),
        "checked.jsonl",
    ),
    "run": Interrupted(RUN, "w.npy"),
    "run that compiles": Interrupted(COMPILES, "y.npz", ("cache",), cold=True),
    "record": Interrupted(("record", "--out", "calls.jsonl", f"{INPUTS}/train.py"), "calls.jsonl"),
}
SCRIPT = """
import torch
torch.manual_seed(0)
layers = torch.nn.Embedding(3000, 64), torch.nn.RMSNorm(64), torch.nn.Linear(64, 3000)
model = torch.nn.Sequential(*layers)
for step in range(5):
    words = torch.randint(3000, (4, 50))
    torch.nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten()).backward()
"""
Contents = dict[str, bytes]


def kills(name: str, count: int, rng: np.random.Generator) -> list[str]:
    """Kill a command ``count`` times, one to three times in each folder; return the failures."""
    for module in LOADED:
        import_module(module)
    command, failures, kills_done, folders = INTERRUPTED[name], [], 0, 0
    with tempfile.TemporaryDirectory(prefix="npu_sim-kills-") as place:
        expected, seconds = _undisturbed(command, Path(place) / "whole")
        while kills_done < count:
            folders += 1
            folder, errors = _prepared(Path(place) / str(folders)), []
            for _ in range(int(rng.integers(1, 4))):
                killed = _killed(command, folder, float(rng.uniform(0, seconds)))
                kills_done += killed
                errors += [
                    f"killed: {error}" for error in _errors_after_kill(command, folder, expected)
                ]
                if not killed:
                    break
            errors += [
                f"ended: {error}"
                for error in _finished(command, folder) or _differences(_contents(folder), expected)
            ]
            failures += [f"{name}, folder {folders}, {error}" for error in errors]
            shutil.rmtree(folder)
    print(f"{name}: {kills_done} kills in {folders} folders, {len(failures)} failures", flush=True)
    return failures


def _prepared(folder: Path) -> Path:
    (folder / INPUTS).mkdir(parents=True)
    calls = [
        f'{{"op": "rms_norm", "inputs": {{"x": "{rows}x256:fp32", "gamma": "256:fp32"}}}}\n'
        for rows in range(1, 200)
    ]
    (folder / INPUTS / "calls.jsonl").write_text("".join(calls), encoding="utf-8")
    (folder / INPUTS / "train.py").write_text(SCRIPT, encoding="utf-8")
    return folder


def _start(command: Interrupted, folder: Path) -> int:
    """Start a command in a fork; return its number."""
    begun = any((folder / name).exists() for name in command.temporary)
    options: tuple[str, ...] = ()
    if begun:
        options = command.resume
    elif (folder / command.output).exists():
        options = command.overwrite
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.chdir(folder)
        for descriptor, path in ((1, os.devnull), (2, _output_of(folder))):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        if command.cold:
            os.environ["NPU_SIM_CACHE_DIR"] = "cache"
        runner.run_sweep = partial(runner.run_sweep, chunk_rows=CHUNK_ROWS)
        sys.argv = ["npu-sim", *command.arguments, *options]
        cli.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        os._exit(code)


def _output_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.stderr")


def _undisturbed(command: Interrupted, folder: Path) -> tuple[Contents, float]:
    """Return the files a command writes, and its time on the second run."""
    for place in (folder, folder.with_name("timed")):
        started = time.monotonic()
        errors = _finished(command, _prepared(place))
        if errors:
            raise RuntimeError(errors[0])
    return _contents(folder), time.monotonic() - started


def _finished(command: Interrupted, folder: Path) -> list[str]:
    """Run a command to its end; return its errors."""
    _, status = os.waitpid(_start(command, folder), 0)
    if not status:
        return []
    output = _output_of(folder).read_text(encoding="utf-8")
    return [f"exit {os.waitstatus_to_exitcode(status)}: {output}"]


def _killed(command: Interrupted, folder: Path, seconds: float) -> bool:
    """Start a command and kill it; return whether it was still running."""
    child, end = _start(command, folder), time.monotonic() + seconds
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def _contents(folder: Path) -> Contents:
    """Return the content of every file; only names for files of compiler caches.

    Hidden files of a killed writer do not count: the next writer of the same file removes them.
    """
    paths = (path for path in sorted(folder.rglob("*")) if not path.name.startswith(HIDDEN))
    files = (path for path in paths if path.is_file())
    return {
        str(path.relative_to(folder)): b"" if "cache" in path.parts else path.read_bytes()
        for path in files
    }


def _errors_after_kill(command: Interrupted, folder: Path, expected: Contents) -> list[str]:
    """Return the errors in a folder in which a command was killed."""

    def written(contents: Contents) -> Contents:
        ignored = (INPUTS, *command.temporary)
        return {name: data for name, data in contents.items() if name.split("/")[0] not in ignored}

    present = written(_contents(folder))
    if not (folder / command.output).exists():
        return [f"{name} was left behind" for name in present]
    return _differences(present, written(expected))


def _differences(present: Contents, expected: Contents) -> list[str]:
    errors = [f"{name} is missing" for name in expected.keys() - present.keys()] + [
        f"{name} is unexpected" for name in present.keys() - expected.keys()
    ]
    return errors + [
        f"{name} is different"
        for name in expected.keys() & present.keys()
        if expected[name] != present[name]
    ]

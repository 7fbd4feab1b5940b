"""Calls while another thread writes invalid indices: every call ends in a result or a refusal.

Arrays lie between inaccessible pages, in a process of their own: a kernel that leaves its memory
ends the process.
"""

import argparse
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

import npu_sim
from npu_sim.registry import OPERATORS, load_operator
from tests.hostile.calls import small_call
from tests.hostile.guarded import guarded

ROOT = Path(__file__).parents[2]
SIZE = 20000
WILD = (-(2**31), -1, 2**30, 2**31 - 1)


def racing() -> list[tuple[str, str]]:
    """Return the operator and name of every input whose values are addresses."""
    return [
        (entry.name, tensor.name)
        for entry in OPERATORS
        for tensor in load_operator(entry.name).inputs
        if tensor.addresses
    ]


def race(operator: str, name: str, seconds: float) -> dict[str, int]:
    """Run an operator repeatedly while a thread writes to an input; count the outcomes."""
    sizes = {axis.name for axis in load_operator(operator).axes}
    call = small_call(operator, **{size: SIZE for size in ("rows", "tokens", "N") if size in sizes})
    outs = tuple(
        guarded(array, at_end=True) for array in npu_sim.run(operator, **call).outputs.values()
    )
    call |= {
        key: guarded(value, at_end=True)
        for key, value in call.items()
        if isinstance(value, np.ndarray)
    }
    flat, stop = call[name].reshape(-1), threading.Event()
    place = flat.size // 2
    values = [
        value for wild in WILD for value in (np.array(wild).astype(flat.dtype), flat[0].copy())
    ]

    def write() -> None:
        while not stop.is_set():
            for value in values:  # threads switch between iterations, so every value may stay
                flat[place] = value

    writer, counts, end = (
        threading.Thread(target=write, daemon=True),
        {"ran": 0, "refused": 0},
        time.monotonic() + seconds,
    )
    writer.start()
    while time.monotonic() < end:
        try:
            npu_sim.run(operator, **call, out=outs)
            counts["ran"] += 1
        except npu_sim.NpuSimError:
            counts["refused"] += 1
    stop.set()
    writer.join()
    return counts


def raced(operator: str, name: str, seconds: float) -> tuple[str, bool]:
    """Race in another process; return its report, and whether it survived."""
    command = [
        sys.executable,
        "-m",
        "tests.hostile.race",
        "--only",
        operator,
        name,
        "--seconds",
        str(seconds),
    ]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return (
        process.stdout or f"exit code {process.returncode}\n{process.stderr}"
    ).strip(), process.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for all together")
    parser.add_argument("--only", nargs=2, metavar=("OPERATOR", "INPUT"), default=None)
    options = parser.parse_args()
    chosen = [options.only] if options.only else racing()
    for operator, name in chosen:
        counts = race(operator, name, options.seconds / len(chosen))
        outcomes = f"{counts['ran']} ran, {counts['refused']} were refused"
        print(f"{operator} {name}: {sum(counts.values())} calls, {outcomes}")


if __name__ == "__main__":
    main()

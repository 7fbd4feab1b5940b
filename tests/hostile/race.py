"""Calls whose index arrays another thread fills with wild values all the time: every call ends in a result or a refusal.

Arrays lie between forbidden pages. Run by itself: a kernel that left its memory would take the process with it.
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
    """Return every input whose values are addresses, with its operator."""
    return [
        (entry.name, one.name)
        for entry in OPERATORS
        for one in load_operator(entry.name).inputs
        if one.addresses
    ]


def race(operator: str, name: str, seconds: float) -> dict[str, int]:
    """Run an operator again and again under a writer; count what came of it."""
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
            for value in values:  # Python lets another thread run between two rounds of a loop, so each of them may stay for a while
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
    """Race in a process of its own; return what came of it, and whether that process survived."""
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
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return (
        done.stdout or f"exit code {done.returncode}\n{done.stderr}"
    ).strip(), done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for all together")
    parser.add_argument("--only", nargs=2, metavar=("OPERATOR", "INPUT"), default=None)
    asked = parser.parse_args()
    chosen = [asked.only] if asked.only else racing()
    for operator, name in chosen:
        counts = race(operator, name, asked.seconds / len(chosen))
        print(
            f"{operator} {name}: {sum(counts.values())} calls, {counts['ran']} ran, {counts['refused']} were refused"
        )


if __name__ == "__main__":
    main()

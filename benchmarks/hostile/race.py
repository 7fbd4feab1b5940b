"""Calls while another thread writes invalid indices: each ends in a result or a refusal.

Arrays lie between inaccessible pages, in a process of their own: an access one byte outside ends
the process.
"""

import argparse
import ctypes
import mmap
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

import npu_sim
from npu_sim.operators.loading import load_operator
from npu_sim.registry import OPERATORS
from tests.small_calls import small_call

NO_ACCESS, READ_ONLY = 0, mmap.PROT_READ
LIBC = ctypes.CDLL(None, use_errno=True)
LAYOUTS = ("plain", "fortran", "gaps", "gaps of rows", "backwards", "unaligned", "swapped")
"""Memory layouts of an array."""


def guarded(
    values: np.ndarray, at_end: bool, layout: str = "plain", written: bool = True
) -> np.ndarray:
    """Return a copy of an array whose last (or first) byte lies next to an inaccessible page.

    Parameters
    ----------
    layout
        One of ``LAYOUTS``; dtypes without byte order ignore "swapped".
    written
        Whether the array is writable; writing to a read-only one ends the process as well.
    """
    shape, dtype = values.shape, values.dtype
    match layout:
        case "fortran":
            memory, view = _GuardedMemory(shape[::-1], dtype, at_end), np.transpose
        case "gaps" if shape:
            memory, view = (
                _GuardedMemory((*shape, 2), dtype, at_end),
                lambda base: base[..., int(at_end)],
            )
        case "gaps of rows" if shape:
            memory = _GuardedMemory((*shape[:-1], shape[-1] + 3), dtype, at_end)
            view = (lambda base: base[..., 3:]) if at_end else (lambda base: base[..., :-3])
        case "backwards" if shape:
            memory, view = (
                _GuardedMemory(shape, dtype, at_end),
                lambda base: base[(slice(None, None, -1),) * base.ndim],
            )
        case "unaligned":
            memory = _GuardedMemory((values.nbytes + 1,), np.dtype(np.uint8), at_end)
            begin = int(not at_end)
            view = lambda base: base[begin : begin + values.nbytes].view(dtype).reshape(shape)  # noqa: E731
        case "swapped" if dtype.kind != "V":
            memory, view = _GuardedMemory(shape, dtype.newbyteorder("S"), at_end), np.asarray
        case _:
            memory, view = _GuardedMemory(shape, dtype, at_end), np.asarray
    array = view(memory.base)
    array[...] = values
    if not written:
        memory.protect(1, memory.pages, READ_ONLY)
        array.flags.writeable = False
    return array


class _GuardedMemory:
    """Memory of one array, between two inaccessible pages."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, at_end: bool) -> None:
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self.pages = max(-(-nbytes // mmap.PAGESIZE), 1)
        self.whole = np.frombuffer(mmap.mmap(-1, (self.pages + 2) * mmap.PAGESIZE), np.uint8)
        self.protect(0, 1, NO_ACCESS)
        self.protect(self.pages + 1, 1, NO_ACCESS)
        begin = (self.pages + 1) * mmap.PAGESIZE - nbytes if at_end else mmap.PAGESIZE
        self.base = self.whole[begin : begin + nbytes].view(dtype).reshape(shape)

    def protect(self, page: int, pages: int, access: int) -> None:
        address = ctypes.c_void_p(self.whole.ctypes.data + page * mmap.PAGESIZE)
        if LIBC.mprotect(address, ctypes.c_size_t(pages * mmap.PAGESIZE), access):
            raise OSError(ctypes.get_errno(), "mprotect")


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
        "benchmarks.hostile.race",
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

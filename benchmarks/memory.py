"""Peak memory of a call beyond its inputs and outputs, measured in a process of its own.

The process returns freed memory to the system at once, so that its resident size is the memory in
use. The system's high-water mark of it, reset before the call, includes every thread. Exact to some
hundred KB. Linux only.
"""

import contextlib
import ctypes
import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from cases import Case, Problem, build
from measure import STINGY_MALLOC

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
SMALL = 64
"""The call that compiles and starts the threads has this many times fewer rows."""


def available() -> bool:
    """Say whether this system can tell."""
    return RESET.exists() and os.access(RESET, os.W_OK)


def resident(field: str) -> int:
    """Return ``VmRSS``, the resident bytes of this process, or ``VmHWM``, their peak."""
    lines = dict(
        line.split(":", 1)
        for line in STATUS.read_text(encoding="ascii").splitlines()
        if ":" in line
    )
    return int(lines[field].split()[0]) * 1024


def trim() -> None:
    """Give the system back what malloc keeps, so that a call cannot use it unseen; glibc only."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def peak_extra(problem: Problem, **options: Any) -> int:
    """Return the peak bytes in use by a call into given arrays, minus the bytes before it."""
    gc.collect()
    trim()
    RESET.write_text("5", encoding="ascii")  # the peak starts anew from here
    before = resident("VmRSS")
    result = problem.run(out=problem.outs, **options)
    peak = resident("VmHWM")
    del result
    return max(peak - before, 0)


def small(case: Case) -> Case:
    """Return a case with fewer rows, the first axis, which takes the same way."""
    rows = next(iter(case.sizes))
    return case._replace(sizes={**case.sizes, rows: max(case.sizes[rows] // SMALL, 8)})


class Prober:
    """A process that answers how much memory calls take; use it in a ``with``."""

    def __enter__(self) -> "Prober":
        command = [sys.executable, __file__]
        environment = {**os.environ, **STINGY_MALLOC}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=environment,
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._process.stdin.close()
        self._process.wait()

    def __call__(self, case: Case, threads: int, deterministic: bool = False) -> dict[str, int]:
        """Return ``extra_bytes`` and ``array_bytes``, which is inputs and outputs."""
        request = [*case, threads, deterministic]
        self._process.stdin.write(json.dumps(request) + "\n")
        return json.loads(self._process.stdout.readline())


def _answer() -> None:
    import numba

    for line in sys.stdin:
        *fields, threads, deterministic = json.loads(line)
        case = Case(*fields)
        numba.set_num_threads(threads)
        warm = build(small(case))
        warm.run(out=warm.outs, deterministic=deterministic)
        del warm
        problem = build(case)
        extra = peak_extra(problem, deterministic=deterministic)
        print(json.dumps({"extra_bytes": extra, "array_bytes": problem.array_bytes}), flush=True)


if __name__ == "__main__":
    try:
        _answer()
    except KeyboardInterrupt:
        sys.exit(130)

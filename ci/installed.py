"""Measure what ``pip install npu_sim`` adds to numba and numpy, and how long ``--help`` takes.

Run with the Python of an environment that has npu_sim alone. It ends with 1 above the limit of the
size; times, which depend on the machine, are printed.
"""

import subprocess
import sys
import time
from importlib.metadata import distributions
from pathlib import Path

MOST_MB = 45
"""Most that may be installed beyond numba, llvmlite and numpy, in 10^6 bytes, without bytecode."""
COUNTED_ELSEWHERE = {"numba", "llvmlite", "numpy", "pip", "setuptools"}


def sizes() -> dict[str, float]:
    """Return the size of every distribution in 10^6 bytes."""
    found = {}
    for one in distributions():
        paths = (Path(one.locate_file(file)) for file in one.files or ())
        total = sum(
            path.stat().st_size for path in paths if path.suffix != ".pyc" and path.is_file()
        )
        found[one.name] = total / 1e6
    return found


def shortest(*arguments: str) -> float:
    """Return the least seconds of ten runs of Python."""
    seconds = []
    for _ in range(10):
        begun = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def main() -> None:
    """Print sizes and times."""
    installed = sizes()
    counted = {name: size for name, size in installed.items() if name not in COUNTED_ELSEWHERE}
    for name, size in sorted(counted.items(), key=lambda item: -item[1]):
        print(f"{size:6.2f} MB  {name}")
    total = sum(counted.values())
    print(f"{total:6.2f} MB  beyond numba and numpy (limit {MOST_MB})")
    base = shortest("-c", "import numpy")
    for name, arguments in {
        "import npu_sim": ("-c", "import npu_sim"),
        "npu-sim --help": ("-m", "npu_sim", "--help"),
    }.items():
        ratio = shortest(*arguments) / base
        print(f"{ratio:6.2f}     {name}, in times of Python with numpy ({base * 1000:.0f} ms)")
    if total > MOST_MB:
        sys.exit("above the limit")


if __name__ == "__main__":
    main()

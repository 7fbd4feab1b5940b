"""Time and peak extra memory of every operator against rows, dim and threads.

    python benchmarks/scaling.py [--only moe] [--dtype fp32] [--repeats 5] [--json FILE]
                                 [--plot FILE.svg]

One of the three grows while the others are fixed. Memory is the peak of a call beyond its inputs
and outputs (Linux only).
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from cases import DTYPES, Case, build
from measure import (
    INTERRUPTED,
    Others,
    Stoppable,
    alternate,
    each,
    machine,
    spread,
    with_warm_malloc,
)
from memory import Prober, available
from plots import Panel, panels

LEAST_MEGABYTES = 0.1
"""Less cannot be measured; drawn as this."""
VARIABLES = ("rows", "dim", "threads")


class Family(NamedTuple):
    """The shapes of an operator: positions of rows and dim in the shape, and their values."""

    shape: tuple[int, ...]
    rows_at: int
    dim_at: tuple[int, ...]
    rows: tuple[int, ...]
    dims: tuple[int, ...]


FAMILIES = {
    "embedding": Family(
        (65536, 256, 16000), 0, (1,), (4096, 16384, 65536, 262144), (64, 128, 256, 512, 1024)
    ),
    "rms_norm": Family(
        (8192, 1024), 0, (1,), (512, 2048, 8192, 32768), (256, 512, 1024, 2048, 4096)
    ),
    "cross_entropy": Family(
        (2048, 8192), 0, (1,), (128, 512, 2048, 8192), (512, 2048, 8192, 32768)
    ),
    "moe": Family(
        (4096, 4, 2048), 0, (2,), (256, 1024, 4096, 16384), (512, 1024, 2048, 4096, 7168)
    ),
    "moe_permute": Family(
        (4096, 4, 2048), 0, (2,), (256, 1024, 4096, 16384), (512, 1024, 2048, 4096, 7168)
    ),
    "unpermute": Family(
        (4096, 4, 2048), 0, (2,), (256, 1024, 4096, 16384), (512, 1024, 2048, 4096, 7168)
    ),
    "unpermute_grad": Family(
        (4096, 4, 2048), 0, (2,), (256, 1024, 4096, 16384), (512, 1024, 2048, 4096, 7168)
    ),
    "swi_glu": Family(
        (4096, 6144), 0, (1,), (512, 2048, 8192, 32768), (768, 1536, 3072, 6144, 12288)
    ),
    "swi_glu_grad": Family(
        (4096, 6144), 0, (1,), (512, 2048, 8192, 32768), (768, 1536, 3072, 6144, 12288)
    ),
    "rotary": Family((2, 4096, 32, 128), 1, (3,), (256, 1024, 4096, 16384), (64, 128, 256)),
    "rotary_grad": Family((2, 4096, 32, 128), 1, (3,), (256, 1024, 4096, 16384), (64, 128, 256)),
    "adam_w": Family((4096, 4096), 0, (1,), (256, 1024, 4096, 16384), (1024, 4096, 16384)),
    "conv_tbc": Family(
        (256, 8, 256, 256, 3), 0, (2, 3), (64, 128, 256, 512, 1024), (64, 128, 256, 512)
    ),
}
"""``dim`` of conv_tbc is the number of channels, in and out."""


class Point(NamedTuple):
    """One measurement: the variable that grows, its value, the case and the threads."""

    variable: str
    value: int
    case: Case
    threads: int

    @property
    def name(self) -> str:
        return f"{self.case.name}, {self.threads} threads"


def points(operator: str, dtype: str, most_threads: int) -> Iterator[Point]:
    """Yield the measurements of an operator."""
    family = FAMILIES[operator]

    def case(changes: dict[int, int]) -> Case:
        shape = tuple(changes.get(position, size) for position, size in enumerate(family.shape))
        return Case(operator, shape, dtype, "zipf" if operator == "embedding" else "")

    for rows in family.rows:
        yield Point("rows", rows, case({family.rows_at: rows}), most_threads)
    for dim in family.dims:
        yield Point("dim", dim, case(dict.fromkeys(family.dim_at, dim)), most_threads)
    for threads in thread_counts(most_threads):
        yield Point("threads", threads, case({}), threads)


def thread_counts(most: int) -> list[int]:
    """Return 1, 2, 4, 8 and so on, and all threads."""
    return sorted({2**power for power in range(most.bit_length()) if 2**power < most} | {most})


def timed(point: Point, repeats: int) -> tuple[list[float], int]:
    """Return seconds of every round, and the bytes of inputs and outputs."""
    import numba

    numba.set_num_threads(point.threads)
    problem = build(point.case)
    with Others():
        times = alternate({"call": lambda: problem.run(out=problem.outs)}, repeats, pause=0.0)[
            "call"
        ]
    return times, problem.array_bytes


def measure(point: Point, repeats: int, prober: Prober | None) -> dict[str, Any]:
    """Time a point in this process, and ask the other one for its memory."""
    times, array_bytes = timed(point, repeats)
    found: dict[str, Any] = {
        "operator": point.case.operator,
        "variable": point.variable,
        "value": point.value,
        "shape": point.case.shape,
        "dtype": point.case.dtype,
        "threads": point.threads,
        "milliseconds": round(1000 * statistics.median(times), 4),
        "spread": round(spread(times), 3),
        "array_bytes": array_bytes,
    }
    if prober is not None:
        found["extra_bytes"] = prober(point.case, point.threads)["extra_bytes"]
    return found


def row(found: dict[str, Any]) -> str:
    """Return a measurement as a row of the Markdown table."""
    shape, extra = "x".join(map(str, found["shape"])), found.get("extra_bytes")
    memory = (
        "- | -"
        if extra is None
        else f"{extra / 1e6:.2f} | {100 * extra / found['array_bytes']:.1f} %"
    )
    time = f"{found['milliseconds']:.2f} ({100 * found['spread']:.0f} %)"
    varied = f"{found['variable']} = {found['value']}"
    size = f"{found['array_bytes'] / 1e6:.0f}"
    return f"| {found['operator']} | {shape} | {varied} | {time} | {size} | {memory} |"


def draw(results: list[dict[str, Any]]) -> str:
    """Draw time, and extra memory where known, over each variable; one row per operator."""
    rows = []
    for operator in dict.fromkeys(one["operator"] for one in results):
        line = []
        for variable in VARIABLES:
            chosen = [
                one
                for one in results
                if one["operator"] == operator and one["variable"] == variable
            ]
            line.append(
                Panel(
                    f"{operator}: time over {variable}",
                    "ms",
                    [(one["value"], one["milliseconds"]) for one in chosen],
                )
            )
        for variable in VARIABLES:
            chosen = [
                one
                for one in results
                if (one["operator"], one["variable"]) == (operator, variable)
                and "extra_bytes" in one
            ]
            megabytes = [
                (one["value"], max(one["extra_bytes"] / 1e6, LEAST_MEGABYTES)) for one in chosen
            ]
            line.append(Panel(f"{operator}: extra memory over {variable}", "MB", megabytes))
        rows.append(line)
    return panels(
        rows,
        f"Time and peak extra memory; logarithmic axes; {LEAST_MEGABYTES} MB means at most that",
    )


def main() -> None:
    """Measure all points and print a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=list(FAMILIES), default=list(FAMILIES), metavar="OPERATOR"
    )
    parser.add_argument("--dtype", choices=list(DTYPES), default="fp32")
    parser.add_argument("--repeats", type=int, default=5, help="rounds of every point")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--plot", type=Path, help="draw the numbers into this SVG file")
    options = parser.parse_args()
    with_warm_malloc()
    import numba

    most_threads = numba.get_num_threads()
    chosen = [
        point
        for operator in options.only
        for point in points(operator, options.dtype, most_threads)
    ]
    columns = (
        "operator",
        "shape",
        "variable",
        "ms (spread)",
        "inputs and outputs MB",
        "extra MB",
        "extra",
    )
    print("| " + " | ".join(columns) + " |\n" + "| --- " * len(columns) + "|", flush=True)
    results: list[dict[str, Any]] = []
    with Stoppable() as work, Prober() if available() else nullcontext() as prober:
        for point in each(chosen, lambda point: point.name):
            results.append(measure(point, options.repeats, prober))
            print(row(results[-1]), flush=True)
    numba.set_num_threads(most_threads)
    if work.stopped:
        print(f"\ninterrupted after {len(results)} of {len(chosen)} points", file=sys.stderr)
    if options.json is not None:
        written = {"machine": machine(), "complete": not work.stopped, "points": results}
        options.json.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
    if options.plot is not None:
        options.plot.write_text(draw(results), encoding="utf-8")
    if work.stopped:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()

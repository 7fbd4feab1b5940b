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
    WARM_MALLOC,
    Others,
    Stoppable,
    alternate,
    each,
    machine,
    spread,
    with_environment,
)
from memory import Prober, available
from plots import Panel, panels

LEAST_MEGABYTES = 0.1
"""Less cannot be measured; drawn as this."""
VARIABLES = ("rows", "dim", "threads")


class Family(NamedTuple):
    """The sizes of an operator by axis: the axes that are rows and dim, and their values."""

    sizes: dict[str, int]
    rows_axes: tuple[str, ...]
    dim_axes: tuple[str, ...]
    rows: tuple[int, ...]
    dims: tuple[int, ...]


_MATRIX = ("row",), ("col",)
_LABELLED = Family(
    {"N": 2048, "C": 8192}, ("N",), ("C",), (128, 512, 2048, 8192), (512, 2048, 8192, 32768)
)
_NORMALISED = Family(
    {"row": 8192, "col": 1024}, *_MATRIX, (512, 2048, 8192, 32768), (256, 512, 1024, 2048, 4096)
)
_GATED = Family(
    {"row": 4096, "col": 6144}, *_MATRIX, (512, 2048, 8192, 32768), (768, 1536, 3072, 6144, 12288)
)
_ROUTED_SIZES = (256, 1024, 4096, 16384), (512, 1024, 2048, 4096, 7168)
_ROUTED = Family(
    {"tokens": 4096, "num_topk": 4, "hidden": 2048}, ("tokens",), ("hidden",), *_ROUTED_SIZES
)
_PERMUTED = Family(
    {"num_tokens": 4096, "num_topk": 4, "hidden": 2048, "num_out_tokens": 0},
    ("num_tokens",),
    ("hidden",),
    *_ROUTED_SIZES,
)
_ROTATED = Family(
    {"x0": 2, "x1": 4096, "x2": 32, "dim": 128, "cos0": 1, "cos1": 4096, "cos2": 1},
    ("x1", "cos1"),
    ("dim",),
    (256, 1024, 4096, 16384),
    (64, 128, 256),
)
FAMILIES = {
    "embedding_dense_backward": Family(
        {"rows": 65536, "dim": 256, "num_weights": 16000},
        ("rows",),
        ("dim",),
        (4096, 16384, 65536, 262144),
        (64, 128, 256, 512, 1024),
    ),
    "rms_norm": _NORMALISED,
    "rms_norm_grad": _NORMALISED,
    "add_rms_norm": _NORMALISED,
    "cross_entropy_loss": _LABELLED,
    "cross_entropy_loss_grad": _LABELLED,
    "moe_token_permute": _PERMUTED,
    "moe_token_permute_grad": _ROUTED,
    "moe_token_unpermute": _ROUTED,
    "moe_token_unpermute_grad": _ROUTED,
    "swi_glu": _GATED,
    "swi_glu_grad": _GATED,
    "rotary_position_embedding": _ROTATED,
    "rotary_position_embedding_grad": _ROTATED,
    "apply_adam_w_v2": Family(
        {"elements": 1 << 24}, ("elements",), (), (1 << 20, 1 << 22, 1 << 24, 1 << 26), ()
    ),
    "conv_tbc_backward": Family(
        {"T": 256, "B": 8, "Cin": 256, "Cout": 256, "K": 3, "pad": 1},
        ("T",),
        ("Cin", "Cout"),
        (64, 128, 256, 512, 1024),
        (64, 128, 256, 512),
    ),
}
"""``dim`` of the convolution is the number of channels, in and out; a vector has rows only."""


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

    def case(axes: tuple[str, ...] = (), size: int = 0) -> Case:
        distribution = "zipf" if operator == "embedding_dense_backward" else ""
        return Case(operator, {**family.sizes, **dict.fromkeys(axes, size)}, dtype, distribution)

    for rows in family.rows:
        yield Point("rows", rows, case(family.rows_axes, rows), most_threads)
    for dim in family.dims:
        yield Point("dim", dim, case(family.dim_axes, dim), most_threads)
    for threads in thread_counts(most_threads):
        yield Point("threads", threads, case(), threads)


def thread_counts(most: int) -> list[int]:
    """Return 1, 2, 4, 8 and so on, and all threads."""
    return sorted({2**power for power in range(most.bit_length()) if 2**power < most} | {most})


def timed(point: Point, repeats: int) -> tuple[list[float], int]:
    """Return seconds of every round, and the bytes of inputs and outputs."""
    import numba

    numba.set_num_threads(point.threads)
    problem = build(point.case)
    with Others():
        times = alternate({"call": lambda: problem.run(out=problem.outs)}, repeats)["call"]
    return times, problem.array_bytes


def measure(point: Point, repeats: int, prober: Prober | None) -> dict[str, Any]:
    """Time a point in this process, and ask the other one for its memory."""
    times, array_bytes = timed(point, repeats)
    found: dict[str, Any] = {
        "operator": point.case.operator,
        "variable": point.variable,
        "value": point.value,
        "sizes": point.case.sizes,
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
    sizes = " ".join(f"{axis}={size}" for axis, size in found["sizes"].items())
    extra = found.get("extra_bytes")
    memory = (
        "- | -"
        if extra is None
        else f"{extra / 1e6:.2f} | {100 * extra / found['array_bytes']:.1f} %"
    )
    time = f"{found['milliseconds']:.2f} ({100 * found['spread']:.0f} %)"
    varied = f"{found['variable']} = {found['value']}"
    size = f"{found['array_bytes'] / 1e6:.0f}"
    return f"| {found['operator']} | {sizes} | {varied} | {time} | {size} | {memory} |"


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
    with_environment(WARM_MALLOC if sys.platform == "linux" else {})
    import numba

    most_threads = numba.get_num_threads()
    chosen = [
        point
        for operator in options.only
        for point in points(operator, options.dtype, most_threads)
    ]
    columns = (
        "operator",
        "sizes",
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

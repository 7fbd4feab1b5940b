"""Every operator beside PyTorch and the limits of the machine, in turns in one process.

    python benchmarks/operators.py [--as-users | --small] [--only moe fp32] [--dtypes fp32 bf16]
                                   [--repeats 7] [--peers torch.compile jax.jit]
                                   [--json FILE] [--plot FILE.svg]

README.md in this folder explains the columns. Rows are printed as they are measured; Ctrl-C ends
the run and keeps the rows measured so far.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cases import CASES, DTYPES, FASTEST, Case, Problem, build, select
from measure import (
    BLAS_PAUSE_SECONDS,
    INTERRUPTED,
    PAUSE_SECONDS,
    Others,
    Stoppable,
    Work,
    alternate,
    copies,
    each,
    fresh_array,
    machine,
    matrix_peak,
    medians,
    spread,
    with_warm_malloc,
)
from peers import LIBRARIES, peers
from plots import bars
from small_peers import SMALL, columns, measure_small, small_row
from torch_ways import ways

COLUMNS = ("ms (spread)", "deterministic ms", "best alternative ms", "ratio", "share of the limit")


def our_works(problem: Problem, as_users: bool) -> dict[str, Work]:
    """Return our calls: both modes into given arrays, then into new arrays and fresh pages.

    As users run it there is only the call that makes its results, in both modes.
    """
    if as_users:
        return {"default": problem.run, "deterministic": lambda: problem.run(deterministic=True)}
    return {
        "default": lambda: problem.run(out=problem.outs),
        "deterministic": lambda: problem.run(out=problem.outs, deterministic=True),
        "allocating": problem.run,
        "fresh pages": lambda: problem.run(out=tuple(fresh_array(out) for out in problem.outs)),
    }


def matrix_products(problem: Problem) -> dict[str, Work]:
    """Return NumPy's matrix products of the size of a convolution, into given arrays; fp32 only."""
    grad, x, weight = (problem.inputs[name] for name in ("grad_output", "input", "weight"))
    if grad.dtype != np.float32:
        return {}
    rows, columns, ones = (
        grad.reshape(-1, grad.shape[2]),
        x.reshape(-1, x.shape[2]),
        np.ones((1, grad[..., 0].size), np.float32),
    )
    common = min(len(rows), len(columns))
    for_input, for_weight = (
        np.empty((len(rows), x.shape[2]), np.float32),
        np.empty(weight.shape[1:], np.float32),
    )
    for_bias = np.empty((1, grad.shape[2]), np.float32)

    def products() -> None:
        for tap in weight:
            np.matmul(rows, tap.T, out=for_input)
            np.matmul(columns[:common].T, rows[:common], out=for_weight)
        np.matmul(ones, rows, out=for_bias)

    return {"numpy matmul": products}


def measure(
    case: Case, repeats: int, compilers: list[str], as_users: bool = False
) -> dict[str, Any]:
    """Time a case, PyTorch's ways, compilers and the limits in turns; return times and ratios."""
    problem = build(case)
    on_matrix_unit = problem.operations > 0
    limits = matrix_peak(problem.operations) if on_matrix_unit else copies(problem.moved_bytes)
    rivals = ways(case, problem)
    works = (
        {name: limit.work for name, limit in limits.items()} | our_works(problem, as_users) | rivals
    )
    works |= peers(case, problem, compilers)
    if on_matrix_unit:
        works |= matrix_products(problem)
    with Others() as others:
        times = alternate(works, repeats, BLAS_PAUSE_SECONDS if on_matrix_unit else PAUSE_SECONDS)
    middle = medians(times)
    own = middle["default"]
    against = {name: middle[name] / own for name in rivals}
    if against:
        against[FASTEST] = min(against.values())
    of_limit = {name: limit.scale * middle[name] / own for name, limit in limits.items()}
    found = {
        "case": case.name,
        "operator": case.operator,
        "milliseconds": {name: round(1000 * value, 3) for name, value in middle.items()},
        "spread": {name: round(spread(values), 3) for name, values in times.items()},
        "rounds_ms": {
            name: [round(1000 * value, 3) for value in values] for name, values in times.items()
        },
        "against_torch": {name: round(value, 3) for name, value in against.items()},
        "of_limit": {name: round(value, 3) for name, value in of_limit.items()},
        "deterministic_over_default": round(middle["deterministic"] / own, 3),
    }
    found["others_busy_cores"] = round(others.cores, 2)
    if on_matrix_unit:
        found["gflops"] = round(problem.operations / own / 1e9, 1)
    return found


def best_alternative(result: dict[str, Any]) -> str | None:
    """Return the fastest of PyTorch's ways and the compilers; None where none was measured."""
    times = result["milliseconds"]
    rivals = [name for name in result["against_torch"] if name != FASTEST]
    rivals += [name for name in LIBRARIES if name in times]
    return min(rivals, key=lambda name: times[name], default=None)


def limit_text(result: dict[str, Any]) -> str:
    """Return the share of the limit: the threaded copy, or the peak of the matrix kernel."""
    name, value = list(result["of_limit"].items())[-1]
    return f"{100 * value:.0f} % {name}"


def row(result: dict[str, Any]) -> str:
    """Return a case as a row of the Markdown table."""
    times = result["milliseconds"]
    best = best_alternative(result)
    cells = (
        result["case"],
        f"{times['default']:.1f} ({100 * result['spread']['default']:.0f} %)",
        f"{times['deterministic']:.1f}",
        "-" if best is None else f"{times[best]:.1f} {best}",
        "-" if best is None else f"{times[best] / times['default']:.2f}",
        limit_text(result),
    )
    return "| " + " | ".join(cells) + " |"


def head(columns: Sequence[str]) -> str:
    """Return the head of a table, with the processor in its first column."""
    here = machine()
    first = f"case, {here['threads']} threads of {here['processor']}"
    return "| " + " | ".join([first, *columns]) + " |\n" + "| --- " * (len(columns) + 1) + "|"


def write_json(path: Path, results: list[dict[str, Any]], complete: bool) -> None:
    """Write the numbers, with what they depend on."""
    path.write_text(
        json.dumps({"machine": machine(), "complete": complete, "cases": results}, indent=2) + "\n",
        encoding="utf-8",
    )


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument(
        "--as-users",
        action="store_true",
        help="no settings of malloc, and every call makes its results",
    )
    modes.add_argument("--small", action="store_true", help="small calls, in microseconds")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="WORD",
        help="only cases whose name has all these words",
    )
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--repeats", type=int, default=7, help="rounds of every case")
    parser.add_argument(
        "--peers",
        nargs="*",
        choices=list(LIBRARIES),
        default=list(LIBRARIES),
        help="compilers to compare with",
    )
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--plot", type=Path, help="draw the numbers into this SVG file")
    return parser.parse_args()


def main() -> None:
    """Measure the chosen cases and print a Markdown table."""
    options = parsed()
    if not options.as_users:
        with_warm_malloc()
    chosen = select(options.only, options.dtypes, SMALL if options.small else CASES)
    print(head(columns(options.peers) if options.small else COLUMNS), flush=True)
    results: list[dict[str, Any]] = []
    with Stoppable() as work:
        for case in each(chosen, lambda case: case.name):
            if options.small:
                results.append(measure_small(case, options.repeats, options.peers))
                print(small_row(results[-1], options.peers), flush=True)
            else:
                results.append(measure(case, options.repeats, options.peers, options.as_users))
                print(row(results[-1]), flush=True)
    if work.stopped:
        print(f"\ninterrupted after {len(results)} of {len(chosen)} cases", file=sys.stderr)
    if options.json is not None:
        write_json(options.json, results, not work.stopped)
    if options.plot is not None and not options.small:
        options.plot.write_text(bars(results), encoding="utf-8")
    if work.stopped:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()

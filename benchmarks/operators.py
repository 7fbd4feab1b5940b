"""Every operator beside PyTorch, compilers, oneDNN and the limits of the machine, in turns.

    python benchmarks/operators.py [--quick] [--avx2] [--as-users] [--only moe_token_permute]
                                   [--dtypes fp32 bf16] [--sizes large] [--threads 1 2]
                                   [--repeats 5] [--peers torch.compile jax.jit] [--json FILE]

README.md in this folder explains the columns. stderr tells what was measured; Ctrl-C ends the run.
The tables of what was measured so far are printed at the end, those of peers that are ahead first.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cases import CLASSES, DTYPES, Case, Problem, build, select
from measure import (
    AVX2,
    INTERRUPTED,
    WARM_MALLOC,
    Others,
    Stoppable,
    Work,
    alternate,
    each,
    machine,
    matrix_peak,
    medians,
    spread,
    threaded_copy,
    timed,
    use_threads,
    with_environment,
)
from peers import LIBRARIES, as_arrays, peers
from torch_ways import Ways, ways

import npu_sim
from npu_sim.files.writing import write_text

TOLERANCE = {"fp32": 1e-4, "fp16": 5e-2, "bf16": 2e-1}
"""Largest root mean square of the differences of a peer's results, relative to the results. Some
peers add 16-bit numbers in 16 bits, and lose a tenth of long sums."""
COMPARED = 1 << 22
"""Elements of an output that are compared."""
SLOW_SECONDS, SLOW_FACTOR = 2.0, 10.0
"""A peer whose call takes this long, and so many times as long as ours, is not measured."""
OURS = {"into": "into given arrays", "new": "into new arrays", "prepared": "prepared"}
"""Our ways to make a call: the public function with and without ``out``, and a prepared call."""
COLUMNS = (
    "threads",
    "into / new arrays / prepared ms",
    "best peer ms",
    "ratio into given arrays",
    "new arrays",
    "prepared",
    "share of the limit",
)


def our_works(case: Case, problem: Problem) -> dict[str, Work]:
    """Return our ways to make a call; prepared calls where the time before kernels counts."""
    function, inputs = getattr(npu_sim, case.operator), problem.inputs
    out = problem.given[0] if len(problem.given) == 1 else problem.given
    works: dict[str, Work] = {
        "into": lambda: function(**inputs, out=out),
        "new": lambda: function(**inputs),
    }
    if case.size_class in ("call", "cache"):
        call, tensors = npu_sim.prepare(problem.operator, **inputs), problem.tensors
        works["prepared"] = lambda: call(**tensors, out=out)
    return works


def relative_error(expected: Sequence[np.ndarray], found: Sequence[np.ndarray | None]) -> float:
    """Return the largest relative error of outputs: root mean squares, of evenly spread elements.

    Outputs that were not computed are None and count as right.
    """
    worst = 0.0
    for ours, theirs in zip(expected, found, strict=True):
        if theirs is None:
            continue
        if theirs.size != ours.size:
            return float("inf")
        step = (ours.size // COMPARED) | 1
        right = ours.reshape(-1)[::step].astype(np.float32)
        difference = theirs.reshape(-1)[::step].astype(np.float32) - right
        norm = max(float(np.linalg.norm(right)), float(np.finfo(np.float32).tiny))
        error = float(np.linalg.norm(difference)) / norm
        worst = max(worst, float("inf") if np.isnan(error) else error)
    return worst


def checked(
    case: Case, problem: Problem, rivals: Ways, slow: set[tuple[str, str, str]]
) -> tuple[Ways, dict[str, str]]:
    """Return the peers that compute the same and are not far behind, and why others do not count.

    Each is called once; compilers compile now. One that is far behind is added to ``slow``, with
    operator and dtype, and not called in later cases of them, which may be larger.
    """
    own, _ = timed(lambda: problem.run(out=problem.outs))
    kept, left_out = {}, {}
    for name, work in rivals.items():
        if (case.operator, case.dtype, name) in slow:
            left_out[name] = "is far behind in an earlier case"
            continue
        try:
            took, results = timed(work)
            error = relative_error(problem.outs, as_arrays(results))
            if name in LIBRARIES:  # the first call compiled
                took, _ = timed(work)
        except Exception as failure:  # whatever a compiler stumbles over: the others are measured
            left_out[name] = f"fails: {type(failure).__name__}"
            continue
        if error > TOLERANCE[case.dtype]:
            left_out[name] = f"computes something else: relative error {error:.1g}"
        elif took > max(SLOW_SECONDS, SLOW_FACTOR * own):
            left_out[name] = f"takes {took:.1f} s, we {own:.2f} s"
            slow.add((case.operator, case.dtype, name))
        else:
            kept[name] = work
    return kept, left_out


def measure(
    case: Case,
    threads: Sequence[int],
    repeats: int,
    compilers: Sequence[str],
    slow: set[tuple[str, str, str]],
) -> Iterator[dict[str, Any]]:
    """Time a case, its peers and its limit in turns; yield times and ratios by number of threads.

    ``slow`` is as for :func:`checked`. Calls of the smallest class are measured on all threads
    only, of which they use one.
    """
    use_threads(max(threads))
    problem = build(case)
    ours = our_works(case, problem)
    rivals, left_out = checked(
        case, problem, {**ways(case, problem), **peers(case, problem, compilers)}, slow
    )
    for count in [max(threads)] if case.size_class == "call" else threads:
        use_threads(count)
        limit = (
            matrix_peak(problem.operations)
            if problem.operations
            else threaded_copy(problem.array_bytes)
        )
        works = {limit.name: limit.work, **ours, **rivals}
        with Others() as others:
            times = alternate(works, repeats, rivals)
        middle = medians(times)
        share = limit.scale * middle[limit.name] / middle["into"]
        yield {
            "case": case.name,
            "operator": case.operator,
            "size": case.size_class,
            "threads": count,
            "best_peer": min(rivals, key=lambda name: middle[name], default=None),
            "milliseconds": {name: round(1000 * value, 5) for name, value in middle.items()},
            "spread": {name: round(spread(values), 3) for name, values in times.items()},
            "rounds_ms": {
                name: [round(1000 * value, 5) for value in values] for name, values in times.items()
            },
            "ratios": {
                way: {name: ratio(times[name], times[way]) for name in rivals} for way in ours
            },
            "limit": limit.name,
            "of_limit": None if case.size_class == "call" else round(share, 3),
            "left_out": left_out,
            "others_busy_cores": round(others.cores, 2),
        }


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> list[float]:
    """Return the lower quartile, median and upper quartile of their time over ours, by round."""
    by_round = [their / our for their, our in zip(theirs, ours, strict=False)]
    return [round(float(one), 3) for one in np.percentile(by_round, (25, 50, 75))]


def best_ratios(result: dict[str, Any]) -> dict[str, list[float]]:
    """Return the quartiles of the best peer's time over ours, by our way."""
    best = result["best_peer"]
    return {way: rows[best] for way, rows in result["ratios"].items() if best is not None}


def is_ahead(result: dict[str, Any]) -> bool:
    """Return whether a peer was faster in three of four rounds than one of our ways."""
    return any(upper < 1 for _, _, upper in best_ratios(result).values())


def row(result: dict[str, Any]) -> str:
    """Return a case as a row of the Markdown table."""
    times, best, found = result["milliseconds"], result["best_peer"], best_ratios(result)
    cells = (
        result["case"],
        str(result["threads"]),
        " / ".join(f"{times[way]:.3g}" for way in OURS if way in times),
        "-" if best is None else f"{times[best]:.3g} {best}",
        *(ratio_text(found.get(way)) for way in OURS),
        "-"
        if result["of_limit"] is None
        else f"{100 * result['of_limit']:.0f} % {result['limit']}",
    )
    return "| " + " | ".join(cells) + " |"


def ratio_text(quartiles: list[float] | None) -> str:
    return "-" if quartiles is None else "{1:.2f} ({0:.2f} to {2:.2f})".format(*quartiles)


def table(results: Sequence[dict[str, Any]]) -> str:
    """Return results as a Markdown table."""
    head = "| case | " + " | ".join(COLUMNS) + " |\n" + "| --- " * (len(COLUMNS) + 1) + "|"
    return "\n".join([head, *map(row, results)])


def report(results: Sequence[dict[str, Any]]) -> str:
    """Return the tables: first where a peer is ahead beyond the spread, the worst ratio on top."""
    least = {id(one): min((r[1] for r in best_ratios(one).values()), default=9) for one in results}
    ahead = sorted(filter(is_ahead, results), key=lambda one: least[id(one)])
    level = sum(least[id(one)] < 1 for one in results) - len(ahead)
    left_out = {
        f"- {name} {why}: {one['case']}" for one in results for name, why in one["left_out"].items()
    }
    return "\n\n".join(
        [
            f"{sentence()}",
            f"A peer is ahead, beyond the spread of the rounds, in {len(ahead)} of {len(results)} "
            f"cases; in {level} more its median is below ours, within the spread.",
            *([table(ahead)] if ahead else []),
            "All cases:",
            table(results),
            *(["Not measured:\n\n" + "\n".join(sorted(left_out))] if left_out else []),
        ]
    )


def sentence() -> str:
    """Return a sentence that names the machine and the versions."""
    here = machine()
    names = ("numba", "torch", "jax")
    versions = ", ".join(f"{name} {here[name]}" for name in names if here[name])
    return f"{here['processor']}; {versions}."


def as_json(results: Sequence[dict[str, Any]], complete: bool) -> str:
    """Return the numbers, with what they depend on."""
    return json.dumps({"machine": machine(), "complete": complete, "cases": results}) + "\n"


def parsed() -> argparse.Namespace:
    """Read the command line."""
    most = machine()["threads"]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="3 rounds on all threads of small calls and large cases, in fp32 and bf16",
    )
    parser.add_argument(
        "--avx2",
        action="store_true",
        help="all libraries use the instructions of a processor without AVX-512",
    )
    parser.add_argument(
        "--as-users", action="store_true", help="no settings of malloc: results take new pages"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="WORD",
        help="only cases whose operator contains all these words, or whose name has them",
    )
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--sizes", nargs="+", choices=CLASSES, default=list(CLASSES))
    parser.add_argument(
        "--threads",
        nargs="+",
        type=int,
        choices=range(1, most + 1),
        default=sorted({1, most}),
        metavar="N",
        help="numbers of threads; one and all by default",
    )
    parser.add_argument("--repeats", type=int, default=5, help="rounds of every case")
    parser.add_argument(
        "--peers",
        nargs="*",
        choices=list(LIBRARIES),
        default=list(LIBRARIES),
        help="compilers to compare with",
    )
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    if options.quick:
        options.dtypes, options.sizes = ["fp32", "bf16"], ["call", "large"]
        options.threads, options.repeats = [max(options.threads)], 3
    return options


def main() -> None:
    """Measure the chosen cases and print Markdown tables."""
    options = parsed()
    warm = {} if options.as_users or sys.platform != "linux" else WARM_MALLOC
    with_environment(warm | (AVX2 if options.avx2 else {}))
    chosen = select(options.only, options.dtypes, options.sizes)
    if not chosen:
        sys.exit(f"no case has the words {' '.join(options.only)}")
    results: list[dict[str, Any]] = []
    slow: set[tuple[str, str, str]] = set()

    def save(complete: bool = False) -> None:
        if options.json is not None:
            write_text(options.json, as_json(results, complete), "json")

    save()
    with Stoppable() as work:
        for case in each(chosen, lambda case: case.name):
            for result in measure(case, options.threads, options.repeats, options.peers, slow):
                results.append(result)
                print(f"  {row(result)}", file=sys.stderr, flush=True)
                save()
        save(complete=True)
    if work.stopped:
        print(f"\ninterrupted: {len(results)} results", file=sys.stderr)
    print(report(results), flush=True)
    if work.stopped:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()

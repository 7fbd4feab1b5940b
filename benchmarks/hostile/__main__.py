"""Random hostile use: ``python -m benchmarks.hostile --minutes N`` runs trials of every kind.

``--plans N``, ``--runs N``, ``--kills N`` and ``--races SECONDS`` are the parts of a long
campaign. Every trial has its own seed: ``--only KIND --seed S --trials 1`` repeats a printed trial,
and ``--seed`` with the printed next seed continues.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.hostile.kills import INTERRUPTED, kills
from benchmarks.hostile.race import raced, racing
from benchmarks.hostile.trials import BATCH, TRIALS, ChildProcess, Count

Part = tuple[str, range]
TURN = 200
"""Trials of one kind before those of the next kind."""


def main() -> None:
    options = _arguments()
    first = int(np.random.default_rng().integers(1 << 40)) if options.seed is None else options.seed
    print(f"first seed {first}", flush=True)
    failures = 0
    if options.races:
        failures += sum(_raced(*pair, options.races) for pair in racing())
    for command in INTERRUPTED if options.kills else ():
        failures += _report(kills(command, options.kills, np.random.default_rng(first)))
    failures += _trials(_parts(options, first), 60 * options.minutes)
    print(f"{failures} failures")
    sys.exit(failures > 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    parser.add_argument(
        "--minutes",
        type=float,
        default=None,
        help="run for this many minutes; 1 without another limit",
    )
    parser.add_argument("--seed", type=int, default=None, help="first seed; random by default")
    parser.add_argument("--only", choices=TRIALS, default=None)
    parser.add_argument("--trials", type=int, default=None, help="number of trials of --only")
    parser.add_argument("--plans", type=int, default=0, help="number of calls to plan")
    parser.add_argument(
        "--runs",
        type=int,
        default=0,
        help="number of calls to run between inaccessible pages, in every layout",
    )
    parser.add_argument(
        "--kills",
        type=int,
        default=0,
        help="number of times to kill and resume every command that writes",
    )
    parser.add_argument(
        "--races", type=float, default=0, help="seconds for every input whose values are addresses"
    )
    options = parser.parse_args()
    parts = options.plans or options.runs or options.kills or options.races or options.trials
    options.minutes = (
        (float("inf") if parts else 1.0) if options.minutes is None else options.minutes
    )
    return options


def _parts(options: argparse.Namespace, first: int) -> Iterator[Part]:
    """Generate the requested batches of trials; all kinds in turn without a request."""
    counts = {"plan": options.plans, "run": options.runs}
    if options.only:
        counts = {options.only: options.trials or sys.maxsize}
    if any(counts.values()):
        for kind, count in counts.items():
            yield from (
                (kind, range(begin, min(begin + BATCH, first + count)))
                for begin in range(first, first + count, BATCH)
            )
    elif not (options.kills or options.races):
        for turn, kind in zip(itertools.count(), itertools.cycle(TRIALS)):
            yield kind, range(first + turn * TURN, first + (turn + 1) * TURN)


def _trials(parts: Iterator[Part], seconds: float) -> int:
    """Run trials until there are no more or the time is up; print failures and counts."""
    counts: dict[str, Count] = {}
    child, end, reported = ChildProcess(), time.monotonic() + seconds, time.monotonic()
    for kind, seeds in parts:
        if time.monotonic() > end:
            break
        result = child.trials(kind, seeds)
        _report(result.failures)
        counts.setdefault(kind, Count())
        counts[kind] += result
        if time.monotonic() - reported > 60:
            reported = time.monotonic()
            print(f"{kind}: {counts[kind]}; next seed {seeds.stop}", flush=True)
    child.close()
    for kind, count in counts.items():
        print(f"{kind}: {count}")
    return sum(len(count.failures) for count in counts.values())


def _raced(operator: str, name: str, seconds: float) -> int:
    text, survived = raced(operator, name, seconds)
    print(f"race: {text}", flush=True)
    return not survived


def _report(failures: list[str]) -> int:
    for failure in failures:
        print(f"FAILED: {failure}", flush=True)
    return len(failures)


if __name__ == "__main__":
    main()

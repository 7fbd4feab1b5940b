"""Random hostile use: ``python -m tests.hostile --minutes N`` runs trials of every kind for a time.

``--plans N``, ``--runs N``, ``--kills N`` and ``--races SECONDS`` are the parts of a long campaign.
Every trial has its own seed: ``--only KIND --seed S --trials 1`` repeats a printed one, and
``--seed`` with the printed next seed continues.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Iterator

import numpy as np

from tests.hostile.batches import BATCH, Count, Elsewhere
from tests.hostile.campaign import TRIALS
from tests.hostile.kills import INTERRUPTED, kills
from tests.hostile.race import raced, racing

Part = tuple[str, range]
FEW = 200
"""Trials of one kind before the turn of the next kind."""


def main() -> None:
    options = _arguments()
    first = int(np.random.default_rng().integers(1 << 40)) if options.seed is None else options.seed
    print(f"first seed {first}", flush=True)
    finds = 0
    if options.races:
        finds += sum(_raced(*pair, options.races) for pair in racing())
    for command in INTERRUPTED if options.kills else ():
        finds += _report(kills(command, options.kills, np.random.default_rng(first)))
    finds += _trials(_parts(options, first), 60 * options.minutes)
    print(f"{finds} finds")
    sys.exit(finds > 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=None, help="end after so many; 1 where no part is named"
    )
    parser.add_argument("--seed", type=int, default=None, help="first seed; drawn when left out")
    parser.add_argument("--only", choices=TRIALS, default=None)
    parser.add_argument("--trials", type=int, default=None, help="stop after so many of --only")
    parser.add_argument("--plans", type=int, default=0, help="plan so many calls")
    parser.add_argument(
        "--runs",
        type=int,
        default=0,
        help="run so many calls between forbidden pages, in every layout",
    )
    parser.add_argument(
        "--kills",
        type=int,
        default=0,
        help="kill every command that writes so many times, and go on with it",
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
            yield kind, range(first + turn * FEW, first + (turn + 1) * FEW)


def _trials(parts: Iterator[Part], seconds: float) -> int:
    """Run trials until there are no more or the time is up; print finds and counts."""
    counts: dict[str, Count] = {}
    elsewhere, end, reported = Elsewhere(), time.monotonic() + seconds, time.monotonic()
    for kind, seeds in parts:
        if time.monotonic() > end:
            break
        result = elsewhere.trials(kind, seeds)
        _report(result.finds)
        counts.setdefault(kind, Count())
        counts[kind] += result
        if time.monotonic() - reported > 60:
            reported = time.monotonic()
            print(f"{kind}: {counts[kind]}; next seed {seeds.stop}", flush=True)
    elsewhere.close()
    for kind, count in counts.items():
        print(f"{kind}: {count}")
    return sum(len(count.finds) for count in counts.values())


def _raced(operator: str, name: str, seconds: float) -> int:
    text, survived = raced(operator, name, seconds)
    print(f"race: {text}", flush=True)
    return not survived


def _report(finds: list[str]) -> int:
    for find in finds:
        print(f"FOUND: {find}", flush=True)
    return len(finds)


if __name__ == "__main__":
    main()

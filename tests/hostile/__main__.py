"""What strangers might do, at random: ``python -m tests.hostile --minutes N`` does a little of everything until the time is up.

``--plans N``, ``--runs N``, ``--kills N`` and ``--races SECONDS`` are the parts of a long campaign. Every trial has a seed of its own:
``--only KIND --seed S --trials 1`` does the one again that was printed, and ``--seed`` with the printed next one goes on.
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
"""Trials of one kind before the next kind's turn, and calls under a race every so many turns."""


def main() -> None:
    asked = _arguments()
    first = int(np.random.default_rng().integers(1 << 40)) if asked.seed is None else asked.seed
    print(f"first seed {first}", flush=True)
    finds = 0
    if asked.races:
        finds += sum(_raced(*one, asked.races) for one in racing())
    for command in INTERRUPTED if asked.kills else ():
        finds += _said(kills(command, asked.kills, np.random.default_rng(first)))
    finds += _trials(_parts(asked, first), 60 * asked.minutes)
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
    asked = parser.parse_args()
    parts = asked.plans or asked.runs or asked.kills or asked.races or asked.trials
    asked.minutes = (float("inf") if parts else 1.0) if asked.minutes is None else asked.minutes
    return asked


def _parts(asked: argparse.Namespace, first: int) -> Iterator[Part]:
    """Go through the batches of trials that were asked for; a little of everything where nothing was."""
    counts = {"plan": asked.plans, "run": asked.runs}
    if asked.only:
        counts = {asked.only: asked.trials or sys.maxsize}
    if any(counts.values()):
        for kind, count in counts.items():
            yield from (
                (kind, range(begin, min(begin + BATCH, first + count)))
                for begin in range(first, first + count, BATCH)
            )
    elif not (asked.kills or asked.races):
        for turn, kind in zip(itertools.count(), itertools.cycle(TRIALS)):
            yield kind, range(first + turn * FEW, first + (turn + 1) * FEW)


def _trials(parts: Iterator[Part], seconds: float) -> int:
    """Make trials until there are no more, or the time is up; print what was found and how many there were."""
    counts: dict[str, Count] = {}
    elsewhere, end, said = Elsewhere(), time.monotonic() + seconds, time.monotonic()
    for kind, seeds in parts:
        if time.monotonic() > end:
            break
        found = elsewhere.trials(kind, seeds)
        _said(found.finds)
        counts.setdefault(kind, Count())
        counts[kind] += found
        if time.monotonic() - said > 60:
            said = time.monotonic()
            print(f"{kind}: {counts[kind]}; next seed {seeds.stop}", flush=True)
    elsewhere.close()
    for kind, count in counts.items():
        print(f"{kind}: {count}")
    return sum(len(count.finds) for count in counts.values())


def _raced(operator: str, name: str, seconds: float) -> int:
    text, survived = raced(operator, name, seconds)
    print(f"race: {text}", flush=True)
    return not survived


def _said(finds: list[str]) -> int:
    for find in finds:
        print(f"FOUND: {find}", flush=True)
    return len(finds)


if __name__ == "__main__":
    main()

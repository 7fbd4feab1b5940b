"""``python -m tests.hostile --minutes N``: trials at random until the time is up, or until one finds something.

Every trial has a seed of its own: ``--only KIND --seed S --trials 1`` does the one again that was printed.
"""

import argparse
import sys
import time
import traceback

import numpy as np

from npu_sim.registry import OPERATORS, load_operator
from tests.hostile.campaign import TRIALS, attempt
from tests.hostile.race import race

RACE_SECONDS = 2.0
RACE_EVERY = 2000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None, help="first seed; drawn when left out")
    parser.add_argument("--only", choices=TRIALS, default=None)
    parser.add_argument("--trials", type=int, default=None, help="stop after so many")
    asked = parser.parse_args()
    first = int(np.random.default_rng().integers(1 << 40)) if asked.seed is None else asked.seed
    kinds = [asked.only] if asked.only else list(TRIALS)
    racing = [(entry.name, one.name) for entry in OPERATORS for one in load_operator(entry.name).inputs if one.addresses]
    counts, finds, end = {kind: [0, 0] for kind in kinds}, 0, time.monotonic() + 60 * asked.minutes
    print(f"first seed {first}", flush=True)
    number = 0
    while time.monotonic() < end and (asked.trials is None or number < asked.trials):
        kind, seed = kinds[number % len(kinds)], first + number
        try:
            counts[kind][not attempt(TRIALS[kind], seed)] += 1
        except Exception:
            finds += 1
            print(f"FOUND: --only {kind} --seed {seed} --trials 1\n{traceback.format_exc()}", flush=True)
        number += 1
        if not asked.only and number % RACE_EVERY == 0:
            print(
                "race",
                *racing[number // RACE_EVERY % len(racing)],
                race(*racing[number // RACE_EVERY % len(racing)], RACE_SECONDS),
                flush=True,
            )
    for kind, (answered, refused) in counts.items():
        print(f"{kind}: {answered + refused} trials, {answered} answered, {refused} refused")
    print(f"{finds} finds")
    sys.exit(finds > 0)


if __name__ == "__main__":
    main()

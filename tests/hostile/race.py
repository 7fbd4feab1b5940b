"""Calls whose index arrays another thread fills with wild values all the time: every call ends in a result or a refusal.

Run by itself: a kernel that left its memory would take the process with it.
"""

import argparse
import threading
import time

import numpy as np

import npu_sim
from npu_sim.registry import OPERATORS, load_operator
from tests.hostile.calls import small_call

SIZE = 20000
WILD = (-(2**31), -1, 2**30, 2**31 - 1)


def race(operator: str, name: str, seconds: float) -> dict[str, int]:
    """Run an operator again and again under a writer; count what came of it."""
    sizes = {axis.name for axis in load_operator(operator).axes}
    large = {size: SIZE for size in ("rows", "tokens", "N") if size in sizes}
    call = small_call(operator, **large)
    place, legal, stop = call[name].size // 2, call[name].reshape(-1)[0], threading.Event()

    def write() -> None:
        flat, wild = call[name].reshape(-1), 0
        while not stop.is_set():
            wild += 1
            flat[place] = np.array(WILD[wild % len(WILD)]).astype(flat.dtype)
            flat[place] = legal

    writer, counts, end = threading.Thread(target=write, daemon=True), {"ran": 0, "refused": 0}, time.monotonic() + seconds
    writer.start()
    while time.monotonic() < end:
        try:
            npu_sim.run(operator, **call)
            counts["ran"] += 1
        except npu_sim.NpuSimError:
            counts["refused"] += 1
    stop.set()
    writer.join()
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for all operators together")
    racing = [(entry.name, one.name) for entry in OPERATORS for one in load_operator(entry.name).inputs if one.addresses]
    seconds = parser.parse_args().seconds / len(racing)
    for operator, name in racing:
        counts = race(operator, name, seconds)
        print(f"{operator} {name}: {sum(counts.values())} calls, {counts['ran']} ran, {counts['refused']} were refused")


if __name__ == "__main__":
    main()

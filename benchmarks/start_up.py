"""Start-up: seconds from import to the results of five operators on tiny inputs.

    python benchmarks/start_up.py [--warm 5] [--json FILE]

Each measurement is a new process. Cold: no compiled kernel is on disk. Warm: kernels come from the
cache that the cold process filled; the median of several processes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CHILD = """
import json, time
times, start = {}, time.perf_counter()
last = start

def lap(name):
    global last
    now = time.perf_counter()
    times[name], last = now - last, now

import numpy as np
lap("import numpy")
import npu_sim
lap("import npu_sim")
f32, i32 = np.float32, np.int32
grad = np.linspace(-1, 1, 64 * 32, dtype=f32).reshape(64, 32)
npu_sim.embedding_dense_backward(grad, np.arange(64) % 20, 20)
lap("embedding_dense_backward")
x = np.linspace(-1, 1, 16 * 64, dtype=f32).reshape(16, 64)
npu_sim.rms_norm_grad(x, x, np.ones(16, f32), np.ones(64, f32))
lap("rms_norm_grad")
npu_sim.cross_entropy_loss_grad(f32(1), np.full((16, 50), -np.log(f32(50)), f32), np.arange(16))
lap("cross_entropy_loss_grad")
npu_sim.moe_token_permute_grad(grad, np.arange(64, dtype=i32), 2)
lap("moe_token_permute_grad")
ones = lambda *shape: np.ones(shape, f32)
npu_sim.conv_tbc_backward(ones(7, 2, 8), ones(8, 2, 16), ones(2, 16, 8), ones(8), pad=0)
lap("conv_tbc_backward")
times["total"] = last - start
print(json.dumps(times))
"""


def start(cache: str) -> dict[str, float]:
    """Run one process and return its seconds by step."""
    environment = {**os.environ, "NPU_SIM_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    times: dict[str, float] = json.loads(done.stdout)
    return times


def main() -> None:
    """Measure a cold process and some warm ones, and print a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--warm", type=int, default=5, help="warm processes")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="npu_sim_start_up_") as cache:
        print("[cold] nothing compiled", file=sys.stderr, flush=True)
        cold = start(cache)
        warm: list[dict[str, float]] = []
        for number in range(options.warm):
            print(f"[warm {number + 1}/{options.warm}]", file=sys.stderr, flush=True)
            warm.append(start(cache))
    middle = {step: statistics.median(one[step] for one in warm) for step in cold} if warm else {}
    print("| step | cold s | warm s |\n| --- | --- | --- |")
    for step, seconds in cold.items():
        print(f"| {step} | {seconds:.2f} | {f'{middle[step]:.3f}' if middle else '-'} |")
    print(f"\ncold: {cold['total']:.2f} s")
    if warm:
        totals = [one["total"] for one in warm]
        print(f"warm: {middle['total']:.2f} s; {min(totals):.2f} to {max(totals):.2f} s")
    if options.json is not None:
        found: dict[str, Any] = {"cold": cold, "warm": warm, "warm_median": middle}
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

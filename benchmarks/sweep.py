"""Speed of sweeps: ``python benchmarks/sweep.py [--rows 10000000] [--repeat 3] [--threads N]``.

Plans ten million shapes of every operator of the vector unit with all columns in memory, and
compares with the same planner run by Python. The first pass is slower where the system allocates
pages on first use; both are printed. ``--disk FOLDER`` writes a hundred million rows to disk
instead and prints the peak memory of the process.
"""

import argparse
import resource
import shutil
import time
from pathlib import Path

import numpy as np

import npu_sim
from npu_sim.sweeps.runner import (
    LocalEngine,
    compare_row,
    planned_record,
    sampled_rows,
    space_and_columns,
)

COMMON = {"product": ["atlas_a2", "atlas_a3"], "deterministic": [False, True]}
GRIDS = {
    "embedding_dense_backward": {
        "dim": [64, 100, 512, 1000, 8192],
        "num_weights": [1000, 32000],
        "grad_dtype": ["float32", "bfloat16"],
        "scale_grad_by_freq": [False, True],
    },
    "rms_norm_grad": {
        "col": [128, 640, 1000, 4096, 5120, 8192, 12288, 16384, 200000, 1000000],
        "dtype": ["bfloat16", "float32"],
        "gamma_dtype": ["float32"],
    },
    "cross_entropy_loss_grad": {
        "C": [10, 1000, 32000, 50257, 128256],
        "reduction": ["none", "mean", "sum"],
        "weighted": [False, True],
    },
    "moe_token_permute_grad": {
        "hidden": [1024, 2048, 4096, 5120, 7168, 8192],
        "num_topk": [1, 2, 4, 6, 8],
        "dtype": ["bfloat16", "float32"],
    },
}
INNERMOST = {
    "embedding_dense_backward": "rows",
    "rms_norm_grad": "row",
    "cross_entropy_loss_grad": "N",
    "moe_token_permute_grad": "tokens",
}
PYTHON_ROWS = 3000
CHECKED_ROWS = 200
DISK_ROWS = 100_000_000


def grid_of(operator, rows):
    """The grid of an operator with at least ``rows`` rows."""
    grid = {**COMMON, **GRIDS[operator]}
    others = int(np.prod([len(values) for values in grid.values()]))
    return {**grid, INNERMOST[operator]: range(1, -(-rows // others) + 1)}


def measure(operator, rows, repeat, threads):
    """Print one operator's rates; return rows, best seconds and best core seconds."""
    grid = grid_of(operator, rows)
    space, columns = space_and_columns(operator, grid, None, 0, None)
    start = time.perf_counter()
    LocalEngine(space, columns, threads)
    compiled = time.perf_counter() - start
    walls, processor = [], []
    for _ in range(repeat):
        start, started = time.perf_counter(), time.process_time()
        records = npu_sim.sweep(operator, grid, threads=threads)
        walls.append(time.perf_counter() - start)
        processor.append(time.process_time() - started)
    start = time.perf_counter()
    for row in sampled_rows(PYTHON_ROWS, len(records)):
        planned_record(space, columns, row)
    python = PYTHON_ROWS / (time.perf_counter() - start)
    different = [
        mismatch
        for row in sampled_rows(CHECKED_ROWS, len(records), seed=1)
        for mismatch in compare_row(records.space, records.columns, row, records[row])
    ]
    count, best = len(records), min(walls)
    first, per_core = count / walls[0] / 1e6, count / min(processor) / 1e6
    rates = (
        f"{count / best / 1e6:.1f} million/s (first pass {first:.1f}; {per_core:.1f} a core second)"
    )
    print(
        f"{operator:26} {count} rows of {records.dtype.itemsize} bytes: {rates}, "
        f"{count / best / python:.0f} x Python,",
        end=" ",
    )
    print(
        f"compiled in {compiled:.1f} s, {CHECKED_ROWS} rows checked: "
        f"{'equal' if not different else different[:3]}"
    )
    return len(records), best, min(processor)


def stream(folder, threads):
    """Sweep a hundred million rows to disk and print the peak memory."""
    target = Path(folder) / "npu_sim_benchmark_sweep"
    start = time.perf_counter()
    npu_sim.sweep_to(
        target,
        "embedding_dense_backward",
        grid_of("embedding_dense_backward", DISK_ROWS),
        threads=threads,
    )
    seconds = time.perf_counter() - start
    size = sum(file.stat().st_size for file in target.iterdir())
    shutil.rmtree(target)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"{DISK_ROWS} rows, {size / 2**30:.1f} GiB on disk in {seconds:.0f} s; "
        f"peak memory {peak / 2**30:.2f} GiB"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--disk", metavar="FOLDER")
    options = parser.parse_args()
    if options.disk:
        stream(options.disk, options.threads)
        return
    measured = [
        measure(operator, options.rows, options.repeat, options.threads) for operator in GRIDS
    ]
    rows, seconds, core_seconds = (sum(values) for values in zip(*measured, strict=True))
    print(
        f"total: {rows} rows, {rows / seconds / 1e6:.1f} million plans a second, "
        f"{rows / core_seconds / 1e6:.1f} a core second"
    )


if __name__ == "__main__":
    main()

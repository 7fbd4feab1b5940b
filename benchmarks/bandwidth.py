"""What the memory allows: ``python benchmarks/bandwidth.py [--mebibytes 512]``.

Measures reading, and copying with ordinary and with non-temporal stores, on one thread and on all,
with the loads and stores that the kernels use: GB/s of bytes read plus bytes written, median of 7
rounds. Then whole rows of a quarter of the memory are read on all threads, in order and in random
order. These are upper limits for operators that mostly read, and for operators that gather rows.
"""

import argparse
import statistics
import time

import numba
import numpy as np

from npu_sim.kernels.engine.compile import kernel
from npu_sim.kernels.vectors.lanes import (
    LINE_BYTES,
    end_streams,
    load,
    prefetch,
    splat,
    store,
    store_lanes,
    stream,
)

ROUNDS = 7
LINE = LINE_BYTES // 4
ROW_COLUMNS = (64, 128, 256, 1024, 2048)
AHEAD = (0, 4, 16)
"""Rows for which lines are asked ahead; the fastest counts."""


@kernel
def read(share, shares, source, sums):
    size = source.size // shares
    first = splat(np.float32(0), source)
    second, third, fourth = first, first, first
    for index in range(share * size, (share + 1) * size, 4 * LINE):
        first, second = first + load(source, index), second + load(source, index + LINE)
        third, fourth = (
            third + load(source, index + 2 * LINE),
            fourth + load(source, index + 3 * LINE),
        )
    store_lanes(sums[share], 0, first + second + third + fourth)


@kernel
def copy(share, shares, source, target, streams):
    size = source.size // shares
    for index in range(share * size, (share + 1) * size, LINE):
        if streams:
            stream(target, index, load(source, index))
        else:
            store(target, index, load(source, index))
    end_streams()


@kernel
def read_rows(share, shares, source, order, ahead, sums):
    columns, first = source.shape[1], splat(np.float32(0), source[0])
    second = first
    for position in range(share * order.size // shares, (share + 1) * order.size // shares):
        row, coming = source[order[position]], source[order[min(position + ahead, order.size - 1)]]
        for column in range(0, columns, LINE):
            prefetch(coming, column)
        for column in range(0, columns, 2 * LINE):
            first, second = first + load(row, column), second + load(row, column + LINE)
    store_lanes(sums[share], 0, first + second)


def aligned(size):
    """An array whose first element starts a cache line."""
    memory = np.ones(size + LINE, np.float32)
    first = -(memory.ctypes.data // 4) % LINE
    return memory[first : first + size]


def median_seconds(work):
    work()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def streams(source, target, threads):
    """Print what reading and copying reach."""
    sums = np.empty((threads, 4 * LINE), np.float32)
    print("| threads | read | copy through the cache | copy past the cache |")
    print("| --- | --- | --- | --- |")
    for shares in sorted({1, threads}):
        works = {
            1: lambda shares=shares: read.over(shares, shares, source, sums),
            2: lambda shares=shares: copy.over(shares, shares, source, target, False),
            3: lambda shares=shares: copy.over(shares, shares, source, target, True),
        }
        rates = [
            source.nbytes * min(moves, 2) / median_seconds(work) / 1e9
            for moves, work in works.items()
        ]
        print(f"| {shares} | {' | '.join(f'{rate:.0f} GB/s' for rate in rates)} |", flush=True)


def gathers(source, threads):
    """Print what reading rows reaches, in their order and in any other."""
    print("\n| bytes of a row | rows in their order | rows anywhere |\n| --- | --- | --- |")
    for columns in ROW_COLUMNS:
        rows = source[: source.size // 4].reshape(-1, columns)
        orders = np.arange(len(rows)), np.random.default_rng(0).permutation(len(rows))
        rates = [max(row_rate(rows, order, ahead, threads) for ahead in AHEAD) for order in orders]
        print(f"| {columns * 4} | {' | '.join(f'{rate:.0f} GB/s' for rate in rates)} |", flush=True)


def row_rate(rows, order, ahead, threads):
    """Return how fast rows are read in an order, those ``ahead`` asked for, in GB/s."""
    sums = np.empty((threads, 4 * LINE), np.float32)
    return (
        rows.nbytes
        / median_seconds(lambda: read_rows.over(threads, threads, rows, order, ahead, sums))
        / 1e9
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--mebibytes", type=int, default=512, help="size of an array; larger than any cache"
    )
    size = parser.parse_args().mebibytes * 2**18
    source, target = aligned(size), aligned(size)
    threads = numba.get_num_threads()
    streams(source, target, threads)
    gathers(source, threads)


if __name__ == "__main__":
    main()

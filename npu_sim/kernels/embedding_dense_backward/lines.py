"""EmbeddingDenseBackward: the sum of one marked run, a cache line of columns at a time.

``chunk = chunk + row``, and at a mark ``total = total + chunk``, both from +0 and in registers. A
run of many rows takes several passes over its columns, between which both accumulators wait in
memory, so that the rows of a pass stay in the caches. All arrays are flat.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.embedding_dense_backward.chunks import Integers
from npu_sim.kernels.engine.compile import device_function
from npu_sim.kernels.engine.scratch import kept, thread_scratch
from npu_sim.kernels.vectors.lane_type import LINE_BYTES
from npu_sim.kernels.vectors.lanes import Stored, load, prefetch, splat, store
from npu_sim.kernels.vectors.lanes_kept import Kept, keep, recall
from npu_sim.numbers.scalars import narrow, widen

Lanes = Any
Offsets = NDArray[np.int64]
Closes = NDArray[np.bool_]

PASS_ROWS = 16
"""Rows of a pass: as many streams as the processor's prefetcher follows."""
BLOCK_LINES = 64
"""Cache lines of columns that a long run is summed over before its next ones: their accumulators
stay in the first-level cache."""
LOOKAHEAD_ROWS = 8
"""Rows of grad are asked for this many rows ahead. Rows are scattered, so the processor cannot
foresee them; 8 was as good as 12 and 16 for rows of 256 to 4096 bytes, and 4 a little worse."""
LOOKAHEAD_BYTES = 1024
"""How much of a row of grad is asked for: the processor's own prefetcher follows within a longer
row."""
OUT_LOOKAHEAD_BYTES = 4096
"""How much of the next output row is asked for while one is summed: a tenth faster for rows of 4096
bytes."""
ZERO = np.float32(0)


class PassBuffers(NamedTuple):
    """What threads note and keep between passes: a row of each array for every thread."""

    offsets: Any
    """int64 (threads, PASS_ROWS or more): where the rows of a pass start in grad."""
    closes: Any
    """bool (threads, PASS_ROWS or more): which of them close a chunk."""
    sums: Any
    """float32 (threads, sums, lanes of BLOCK_LINES cache lines or more): accumulators."""
    carry: Any
    """float32 (threads, a cache line of elements or more): what one output row leaves of a line for
    the next."""


@kept
def pass_buffers(threads: int, sums: int, element_bytes: int) -> PassBuffers:
    """Return the buffers of so many threads with so many accumulators each, for rows of elements of that size."""
    return PassBuffers(
        thread_scratch(threads, PASS_ROWS, dtype=np.int64),
        thread_scratch(threads, PASS_ROWS, dtype=np.bool_),
        thread_scratch(threads, sums, BLOCK_LINES * (LINE_BYTES // element_bytes)),
        thread_scratch(threads, LINE_BYTES // element_bytes),
    )


@device_function
def read_slots(
    grad: Stored,
    marked: Integers,
    slot: int,
    count: int,
    dim: int,
    column: int,
    offsets: Offsets,
    closes: Closes,
) -> None:
    """Note where the rows of ``count`` slots start in grad and which of them close a chunk; prefetch rows to come."""
    step = LINE_BYTES // grad.itemsize
    columns = min(dim - column, LOOKAHEAD_BYTES // grad.itemsize)
    for place in range(count):
        row = np.int64(marked[slot + place])
        closes[place] = row < 0
        offsets[place] = max(row, ~row) * dim
        if slot + place + LOOKAHEAD_ROWS < marked.size:
            ahead = np.int64(marked[slot + place + LOOKAHEAD_ROWS])
            first = max(ahead, ~ahead) * dim + column
            for element in range(first, first + columns, step):
                prefetch(grad, element)


@device_function
def look_ahead_in_out(out: Stored, start: int, dim: int) -> None:
    """Prefetch the output row at ``start``."""
    step = LINE_BYTES // out.itemsize
    for element in range(start, start + min(dim, OUT_LOOKAHEAD_BYTES // out.itemsize), step):
        prefetch(out, element)


@device_function
def clear_lines(kept: Kept, lines: int, step: int, zero: Lanes) -> None:
    """Set kept lines to zero."""
    for line in range(lines):
        keep(kept, line * step, zero)


@device_function
def sum_kept_lines(
    grad: Stored,
    marked: Integers,
    begin: int,
    stop: int,
    weights: Lanes,
    dim: int,
    first_line: int,
    lines: int,
    offsets: Offsets,
    closes: Closes,
    totals: Kept,
    chunks: Kept,
) -> None:
    """Add a run to some lines of ``totals``, in passes; totals and chunks were set before, and chunks are zero again afterwards."""
    step = LINE_BYTES // grad.itemsize
    zero = splat(ZERO, grad)
    for slot in range(begin, stop, PASS_ROWS):
        count = min(PASS_ROWS, stop - slot)
        read_slots(
            grad, marked, slot, count, dim, min(first_line * step, dim - step), offsets, closes
        )
        for line in range(lines):
            column = min((first_line + line) * step, dim - step)
            total, chunk = recall(totals, line * step, grad), recall(chunks, line * step, grad)
            for place in range(count):
                chunk = chunk + load(grad, offsets[place] + column) * weights
                if closes[place]:
                    total, chunk = total + chunk, zero
            keep(totals, line * step, total)
            keep(chunks, line * step, chunk)


@device_function
def write_long_run(
    grad: Stored,
    marked: Integers,
    begin: int,
    stop: int,
    weight: np.float32,
    factor: np.float32,
    out: Stored,
    out_start: int,
    dim: int,
    first_line: int,
    end_line: int,
    offsets: Offsets,
    closes: Closes,
    totals: Kept,
    chunks: Kept,
) -> None:
    """Write the lines first..end of an output row; see `write_run`."""
    step = LINE_BYTES // out.itemsize
    zero, weights, factors = splat(ZERO, out), splat(weight, out), splat(factor, out)
    for block in range(first_line, end_line, BLOCK_LINES):
        lines = min(BLOCK_LINES, end_line - block)
        clear_lines(totals, lines, step, zero)
        clear_lines(chunks, lines, step, zero)
        sum_kept_lines(
            grad, marked, begin, stop, weights, dim, block, lines, offsets, closes, totals, chunks
        )
        for line in range(lines):
            column = min((block + line) * step, dim - step)
            store(out, out_start + column, recall(totals, line * step, out) * factors)


@device_function
def write_narrow_row(
    grad: Stored,
    marked: Integers,
    begin: int,
    stop: int,
    weight: np.float32,
    factor: np.float32,
    out: Stored,
    out_start: int,
    dim: int,
) -> None:
    """Write an output row shorter than a cache line."""
    for column in range(dim):
        total, chunk = ZERO, ZERO
        for slot in range(begin, stop):
            row = np.int64(marked[slot])
            chunk = chunk + widen(grad[max(row, ~row) * dim + column]) * weight
            if row < 0:
                total, chunk = total + chunk, ZERO
        out[out_start + column] = narrow(total * factor, out)

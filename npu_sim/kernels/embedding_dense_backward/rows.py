"""EmbeddingDenseBackward: the output rows of short runs, one after the other.

The cache line in which one row ends and the next begins is stored once, when both are known: what
one row leaves of it waits in ``carry``. So every line can be stored past the cache.
"""

import numpy as np

from npu_sim.kernels.embedding_dense_backward.lines import ZERO, Closes, Lanes, Offsets
from npu_sim.kernels.engine.compile import device_function
from npu_sim.kernels.vectors.lane_type import LINE_BYTES
from npu_sim.kernels.vectors.lanes import Stored, load, splat, store, stream, to_next_line
from npu_sim.kernels.vectors.lanes_edges import load_some, merge, store_some
from npu_sim.kernels.vectors.lanes_kept import Kept, keep, recall

NO_LINE = -(1 << 62)
"""No line waits for its second part. Not -1: the line in which the first row begins may start one
element before the array."""


@device_function
def _put(out: Stored, index: int, lanes: Lanes, streams: bool) -> None:
    if streams:
        stream(out, index, lanes)
    else:
        store(out, index, lanes)


@device_function
def _sum_some(
    grad: Stored,
    offsets: Offsets,
    closes: Closes,
    count: int,
    column: int,
    first: int,
    stop: int,
    weight: Lanes,
    zero: Lanes,
) -> Lanes:
    """Return the sum of a part of a line of the noted rows: of the elements first..stop from ``column`` on."""
    total, chunk = zero, zero
    for place in range(count):
        chunk = chunk + load_some(grad, offsets[place] + column, first, stop, grad) * weight
        if closes[place]:
            total, chunk = total + chunk, zero
    return total


@device_function
def _sum_line(
    grad: Stored,
    offsets: Offsets,
    closes: Closes,
    count: int,
    column: int,
    weight: Lanes,
    zero: Lanes,
) -> Lanes:
    """Return the sum of one line of the noted rows, the last of which closes a chunk."""
    total, chunk = zero, zero
    for place in range(count):
        chunk = chunk + load(grad, offsets[place] + column) * weight
        if closes[place]:
            total, chunk = total + chunk, zero
    return total


@device_function
def write_run(
    grad: Stored,
    offsets: Offsets,
    closes: Closes,
    count: int,
    weight: np.float32,
    factor: np.float32,
    out: Stored,
    out_start: int,
    dim: int,
    streams: bool,
    carry: Kept,
    open_line: int,
) -> int:
    """Write the output row of a run that takes one pass: every row times the weight, their sum times the factor, rounded once.

    ``open_line`` is the start of the line whose first part is in ``carry``: the one in which this
    row begins, or `NO_LINE`. Returns that of the line in which this row ends.
    """
    step = LINE_BYTES // out.itemsize
    zero, weights, factors = splat(ZERO, out), splat(weight, out), splat(factor, out)
    first = to_next_line(out, out_start)
    end = first + (dim - first) // step * step
    if first > 0:
        beginning = (
            _sum_some(grad, offsets, closes, count, first - step, step - first, step, weights, zero)
            * factors
        )
        line = out_start + first - step
        if open_line == line:
            _put(out, line, merge(recall(carry, 0, out), beginning, step - first, out), streams)
        else:
            store_some(out, line, beginning, step - first, step)
    column = first
    while column + 2 * step <= end:
        total, chunk, next_total, next_chunk = zero, zero, zero, zero
        for place in range(count):
            start = offsets[place] + column
            chunk = chunk + load(grad, start) * weights
            next_chunk = next_chunk + load(grad, start + step) * weights
            if closes[place]:
                total, next_total = total + chunk, next_total + next_chunk
                chunk, next_chunk = zero, zero
        _put(out, out_start + column, total * factors, streams)
        _put(out, out_start + column + step, next_total * factors, streams)
        column += 2 * step
    if column < end:
        _put(
            out,
            out_start + column,
            _sum_line(grad, offsets, closes, count, column, weights, zero) * factors,
            streams,
        )
    if end == dim:
        return NO_LINE
    keep(
        carry,
        0,
        _sum_some(grad, offsets, closes, count, end, 0, dim - end, weights, zero) * factors,
    )
    return out_start + end


@device_function
def flush_line(out: Stored, carry: Kept, open_line: int, stop: int) -> int:
    """Store what waits for a row that is not written next, up to element ``stop``; returns `NO_LINE`."""
    if open_line != NO_LINE:
        store_some(out, open_line, recall(carry, 0, out), 0, stop - open_line)
    return NO_LINE

"""EmbeddingDenseBackward: the sum of one marked run, a cache line of columns at a time.

``chunk = chunk + row``, and at a mark ``total = total + chunk``, both from +0 and in registers. A
run of many rows takes several passes over its columns, between which both accumulators wait in
memory, so that the rows of a pass stay in the caches. All arrays are flat.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.embedding_dense_backward.chunks import Integers
from npu_sim.kernels.embedding_dense_backward.grouping import divide
from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.engine.scratch import kept, thread_scratch
from npu_sim.kernels.engine.threads import threads_for
from npu_sim.kernels.vectors.lane_type import LINE_BYTES
from npu_sim.kernels.vectors.lanes import (
    Stored,
    end_streams,
    is_streamed,
    load,
    prefetch,
    splat,
    store,
    stream,
    to_next_line,
)
from npu_sim.kernels.vectors.lanes_edges import load_some, merge, store_some
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


# --- Output rows of short runs ---
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


# --- All output rows, on all threads ---
SCALE_NOTHING = 0
SCALE_SUM = 1
"""The sum times the factor: the scale pass of keys 1, 11 and 101."""
SCALE_ROWS = 2
"""Every row times the factor: EmbeddingDenseGrad with scale."""
ONE = np.float32(1)
NO_ROWS = np.empty(0, np.int64)


@device_function
def _is_special(special: NDArray[np.int64], at: int, row: int) -> bool:
    """Whether a row is the next special one."""
    return at < special.size and max(special[at], ~special[at]) == row


@kernel
def _sum_wide(
    thread: int,
    grad: Stored,
    dim: int,
    starts: Integers,
    marked: Integers,
    silent_row: int,
    scale: int,
    factors: NDArray[np.float32],
    bounds: NDArray[np.int64],
    special: NDArray[np.int64],
    streams: bool,
    buffers: PassBuffers,
    out: Stored,
) -> None:
    """Write a thread's own rows, then its lines of every row that is too long for one thread; rows have a cache line at least."""
    threads, step = bounds.size // 2, LINE_BYTES // out.itemsize
    offsets, closes, carry = buffers.offsets[thread], buffers.closes[thread], buffers.carry[thread]
    totals, chunks = buffers.sums[thread, 0], buffers.sums[thread, 1]
    first, own = bounds[thread], bounds[thread + 1] - bounds[thread]
    at, open_line = bounds[threads + 1 + thread], NO_LINE
    first_line, end_line = 0, (dim + step - 1) // step
    for turn in range(own + special.size):
        row = first + turn
        if turn < own and _is_special(special, at, row):
            open_line = flush_line(out, carry, open_line, row * dim)
            at += 1
            continue
        if turn >= own:
            open_line = flush_line(out, carry, open_line, (first + own) * dim)
            row = special[turn - own]
            first_line = thread * (dim // step) // threads
            end_line = (
                (thread + 1) * (dim // step) // threads
                if thread < threads - 1
                else (dim + step - 1) // step
            )
        if row < 0:
            continue
        begin, stop = np.int64(starts[row]), np.int64(starts[row + 1])
        if row == silent_row:
            stop = begin
        weight = factors[row] if scale == SCALE_ROWS else ONE
        factor = factors[row] if scale == SCALE_SUM else ONE
        out_start = np.int64(row) * dim
        if stop - begin <= PASS_ROWS and turn < own:
            if not streams:
                look_ahead_in_out(out, out_start + dim, dim)
            read_slots(grad, marked, begin, stop - begin, dim, 0, offsets, closes)
            open_line = write_run(
                grad,
                offsets,
                closes,
                stop - begin,
                weight,
                factor,
                out,
                out_start,
                dim,
                streams,
                carry,
                open_line,
            )
        else:
            open_line = flush_line(out, carry, open_line, out_start)
            write_long_run(
                grad,
                marked,
                begin,
                stop,
                weight,
                factor,
                out,
                out_start,
                dim,
                first_line,
                end_line,
                offsets,
                closes,
                totals,
                chunks,
            )
    flush_line(out, carry, open_line, (first + own) * dim)
    end_streams()


@kernel
def _sum_narrow(
    thread: int,
    grad: Stored,
    dim: int,
    starts: Integers,
    marked: Integers,
    silent_row: int,
    scale: int,
    factors: NDArray[np.float32],
    bounds: NDArray[np.int64],
    special: NDArray[np.int64],
    out: Stored,
) -> None:
    """Write a thread's own rows where they are shorter than a cache line, however long their runs are."""
    at = bounds[bounds.size // 2 + 1 + thread]
    for row in range(bounds[thread], bounds[thread + 1]):
        if _is_special(special, at, row):
            at += 1
            if special[at - 1] < 0:
                continue
        begin, stop = np.int64(starts[row]), np.int64(starts[row + 1])
        if row == silent_row:
            stop = begin
        weight = factors[row] if scale == SCALE_ROWS else ONE
        factor = factors[row] if scale == SCALE_SUM else ONE
        write_narrow_row(grad, marked, begin, stop, weight, factor, out, np.int64(row) * dim, dim)


def sum_runs(
    grad: Stored,
    starts: Integers,
    marked: Integers,
    silent_row: int,
    scale: int,
    factors: NDArray[np.float32],
    out: Stored,
    skipped: NDArray[np.int64] = NO_ROWS,
) -> None:
    """Write the rows of ``out``: the sums of their runs of marked slots.

    Parameters
    ----------
    grad : float32, int16 (fp16) or uint16 (bf16) (rows, dim)
        C-contiguous.
    starts : (len(out) + 1,), marked : int32 or int64
        The run of output row r is starts[r]..starts[r + 1] of ``marked``.
    silent_row : int
        Output row that stays zero; -1 for none.
    scale : int
        SCALE_NOTHING, SCALE_SUM or SCALE_ROWS.
    factors : float32 (len(out),)
        For SCALE_SUM and SCALE_ROWS; empty otherwise.
    out : dtype of grad (len(out), dim)
        C-contiguous.
    skipped : int64
        Rows of ``out`` that are left alone, ascending.
    """
    threads, dim = threads_for(grad.nbytes + out.nbytes), grad.shape[1]
    bounds, special = divide(starts, threads, skipped)
    arguments = grad.reshape(-1), dim, starts, marked, silent_row, scale, factors, bounds, special
    if dim * out.itemsize < LINE_BYTES:
        _sum_narrow.over(threads, *arguments, out.reshape(-1))
    else:
        _sum_wide.over(
            threads,
            *arguments,
            is_streamed(out, LINE_BYTES),
            pass_buffers(threads, 2, out.itemsize),
            out.reshape(-1),
        )


# --- Partial sums for order studies ---
@kernel
def _sum_chunk(
    chunk: int,
    grad: Stored,
    marked: Integers,
    begins: NDArray[np.int64],
    stops: NDArray[np.int64],
    values: NDArray[np.float32],
) -> None:
    sums = values[chunk]
    for column in range(sums.size):
        sums[column] = np.float32(0)
    for slot in range(begins[chunk], stops[chunk]):
        row = grad[max(np.int64(marked[slot]), ~np.int64(marked[slot]))]
        for column in range(sums.size):
            sums[column] = sums[column] + widen(row[column])


def sum_chunks(
    grad: Stored,
    marked: Integers,
    begins: NDArray[np.int64],
    stops: NDArray[np.int64],
    values: NDArray[np.float32],
) -> None:
    """Write the sum of the rows at the slots ``begins[i]..stops[i]`` to ``values[i]``, added one after the other from zero."""
    _sum_chunk.over(begins.size, grad, marked, begins, stops, values)

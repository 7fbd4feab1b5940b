"""EmbeddingDenseBackward: sums of marked runs, written to the output rows on all threads.

Order of accumulation of one run, for every path: ``chunk = chunk + row``, and at the mark that ends
a chunk ``total = total + chunk`` and ``chunk = 0``. Both accumulators are fp32 and start at +0; the
total is rounded once, on store.

A cache line of columns is summed at a time, in registers. A long run is processed in several passes
over its columns; between passes the accumulators stay in memory and the rows of a pass stay in the
caches. One thread writes each output element, except in the incomplete last cache line of a row
split by columns: there two threads compute and store the same bits. Arrays passed to device
functions are flat.

Slow reference with the order of additions: ``tests/reference/embedding_dense_backward.py``.

Source: specification page ``embedding_dense_backward``, "Kernels and accumulation order".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.embedding_dense_backward.grouping import Division, Integers, divide
from npu_sim.kernels.engine.compile import device_function, kernel, thread_scratch, threads_for
from npu_sim.kernels.vectors.lanes import (
    LINE_BYTES,
    ONE,
    ZERO,
    Floats,
    Lanes,
    Stored,
    end_streams,
    is_streamed,
    load,
    load_lanes,
    prefetch_lines,
    splat,
    store,
    store_lanes,
    stream,
    to_next_line,
)
from npu_sim.kernels.vectors.lanes_edges import load_some, merge, store_some
from npu_sim.numbers.scalars import narrow, widen

SCALE_NOTHING = 0
SCALE_SUM = 1
"""Multiply each sum by its factor: the scale pass of keys 1, 11 and 101."""
SCALE_ROWS = 2
"""Multiply every row by the factor: EmbeddingDenseGrad with scale."""

PASS_ROWS = 16
"""Rows per pass: as many streams as the processor's prefetcher follows."""
BLOCK_LINES = 64
"""Cache lines of columns over which a long run is summed before the next ones. Their accumulators
stay in the L1 cache."""
LOOKAHEAD_ROWS = 8
"""Prefetch distance in rows of grad. Rows are scattered, so the hardware cannot predict them. 8 was
as good as 12 and 16 for rows of 256 to 4096 bytes; 4 was slightly worse."""
LOOKAHEAD_BYTES = 1024
"""Bytes of a row of grad to prefetch. In longer rows the hardware prefetcher takes over."""
OUT_LOOKAHEAD_BYTES = 4096
"""Bytes of the next output row to prefetch while one is summed: 10 % faster for rows of 4096
bytes."""
NO_ROWS = np.empty(0, np.int64)
NO_LINE = -(1 << 62)
"""No cache line is pending. Not -1: the line in which the first row begins may start one element
before the array."""


class MarkedRows(NamedTuple):
    """Rows of grad in summation order."""

    grad: Stored
    """The rows, flat."""
    dim: int
    """Columns of a row."""
    marked: Integers
    """Slots: the row of grad each one names, and the ends of chunks."""


class Runs(NamedTuple):
    """The runs of all output rows, and their scaling."""

    starts: Integers
    """int32 or int64 (rows + 1,): the run of output row r is slots starts[r]..starts[r + 1]."""
    zero_row: int
    """Output row that stays zero; -1 for none."""
    scale: int = SCALE_NOTHING
    """SCALE_NOTHING, SCALE_SUM or SCALE_ROWS."""
    factors: NDArray[np.float32] = np.empty(0, np.float32)
    """float32 (rows,) for SCALE_SUM and SCALE_ROWS; empty otherwise."""


class Run(NamedTuple):
    """The slots begin..stop of one output row."""

    begin: int
    stop: int
    weight: np.float32
    """Factor of every row."""
    factor: np.float32
    """Factor of the sum."""


class PassBuffers(NamedTuple):
    """Scratch of all threads; the first axis of every array is the thread."""

    offsets: Any
    """int64 (threads, PASS_ROWS or more): where the rows of a pass start in grad."""
    closes: Any
    """bool (threads, PASS_ROWS or more): whether each of them ends a chunk."""
    sums: Any
    """float32 (threads, sums, lanes of BLOCK_LINES cache lines or more): accumulators."""
    carry: Any
    """float32 (threads, a cache line of elements or more): the part of an output row in the cache
    line where the next row begins."""


class ThreadBuffers(NamedTuple):
    """Scratch of one thread; see `PassBuffers`."""

    offsets: NDArray[np.int64]
    closes: NDArray[np.bool_]
    totals: Floats
    chunks: Floats
    carry: Floats


def pass_buffers(threads: int, sums: int, element_bytes: int) -> PassBuffers:
    """Return scratch with ``sums`` accumulators per thread, for elements of the given size."""
    return PassBuffers(
        thread_scratch(threads, PASS_ROWS, dtype=np.int64),
        thread_scratch(threads, PASS_ROWS, dtype=np.bool_),
        thread_scratch(threads, sums, BLOCK_LINES * (LINE_BYTES // element_bytes)),
        thread_scratch(threads, LINE_BYTES // element_bytes),
    )


# --- Long runs: several passes, accumulators in memory between them ---


@device_function
def read_slots(
    rows: MarkedRows, slot: int, count: int, column: int, buffers: ThreadBuffers
) -> None:
    """Store the start of each slot's row and whether it ends a chunk; prefetch later rows."""
    grad, dim, marked = rows.grad, rows.dim, rows.marked
    columns = min(dim - column, LOOKAHEAD_BYTES // grad.itemsize)
    for position in range(count):
        row = np.int64(marked[slot + position])
        buffers.closes[position] = row < 0
        buffers.offsets[position] = max(row, ~row) * dim
        if slot + position + LOOKAHEAD_ROWS < marked.size:
            later = np.int64(marked[slot + position + LOOKAHEAD_ROWS])
            prefetch_lines(grad, max(later, ~later) * dim + column, columns)


@device_function
def clear_lines(sums: Floats, lines: int, step: int, zero: Lanes) -> None:
    """Set accumulators to zero."""
    for line in range(lines):
        store_lanes(sums, line * step, zero)


@device_function
def sum_lines(
    rows: MarkedRows, run: Run, first_line: int, lines: int, buffers: ThreadBuffers
) -> None:
    """Add a run to ``lines`` cache lines of ``buffers.totals``.

    The caller initialises totals and chunks. Chunks are zero again on return, because a run ends
    with the end of a chunk.
    """
    grad, step = rows.grad, LINE_BYTES // rows.grad.itemsize
    last_column = rows.dim - step
    zero, weights = splat(ZERO, grad), splat(run.weight, grad)
    for slot in range(run.begin, run.stop, PASS_ROWS):
        count = min(PASS_ROWS, run.stop - slot)
        read_slots(rows, slot, count, min(first_line * step, last_column), buffers)
        for line in range(lines):
            column = min((first_line + line) * step, last_column)
            total = load_lanes(buffers.totals, line * step, grad)
            chunk = load_lanes(buffers.chunks, line * step, grad)
            for position in range(count):
                chunk = chunk + load(grad, buffers.offsets[position] + column) * weights
                if buffers.closes[position]:
                    total, chunk = total + chunk, zero
            store_lanes(buffers.totals, line * step, total)
            store_lanes(buffers.chunks, line * step, chunk)


@device_function
def _write_long_run(
    rows: MarkedRows,
    run: Run,
    out: Stored,
    out_start: int,
    first_line: int,
    end_line: int,
    buffers: ThreadBuffers,
) -> None:
    """Write the cache lines first_line..end_line of an output row."""
    step = LINE_BYTES // out.itemsize
    zero, factors = splat(ZERO, out), splat(run.factor, out)
    for block in range(first_line, end_line, BLOCK_LINES):
        lines = min(BLOCK_LINES, end_line - block)
        clear_lines(buffers.totals, lines, step, zero)
        clear_lines(buffers.chunks, lines, step, zero)
        sum_lines(rows, run, block, lines, buffers)
        for line in range(lines):
            column = min((block + line) * step, rows.dim - step)
            store(out, out_start + column, load_lanes(buffers.totals, line * step, out) * factors)


# --- Short runs: one pass, accumulators in registers ---
#
# The cache line in which one output row ends and the next begins is stored once, when both parts
# are known; until then the first part is in ``carry``. So every line can be a non-temporal store.


@device_function
def _put(out: Stored, index: int, lanes: Lanes, streams: bool) -> None:
    if streams:
        stream(out, index, lanes)
    else:
        store(out, index, lanes)


@device_function
def _sum_line(
    grad: Stored, buffers: ThreadBuffers, count: int, column: int, weight: Lanes
) -> Lanes:
    """Return the sum of one cache line of the rows in ``buffers``; the last row ends a chunk."""
    zero = splat(ZERO, grad)
    total, chunk = zero, zero
    for position in range(count):
        chunk = chunk + load(grad, buffers.offsets[position] + column) * weight
        if buffers.closes[position]:
            total, chunk = total + chunk, zero
    return total


@device_function
def _sum_partial_line(
    grad: Stored,
    buffers: ThreadBuffers,
    count: int,
    column: int,
    first: int,
    stop: int,
    weight: Lanes,
) -> Lanes:
    """Like `_sum_line`, reading only the elements first..stop from ``column`` on."""
    zero = splat(ZERO, grad)
    total, chunk = zero, zero
    for position in range(count):
        row = load_some(grad, buffers.offsets[position] + column, first, stop, grad)
        chunk = chunk + row * weight
        if buffers.closes[position]:
            total, chunk = total + chunk, zero
    return total


@device_function
def _write_short_run(
    rows: MarkedRows,
    run: Run,
    out: Stored,
    out_start: int,
    streams: bool,
    open_line: int,
    buffers: ThreadBuffers,
) -> int:
    """Write the output row of a run of at most PASS_ROWS rows, already read by `read_slots`.

    ``open_line`` is the start of the cache line whose first part is in ``buffers.carry``: the line
    in which this row begins, or `NO_LINE`. Return the same for the line in which this row ends.
    """
    grad, dim, count = rows.grad, rows.dim, run.stop - run.begin
    step = LINE_BYTES // out.itemsize
    zero, weight, factor = splat(ZERO, out), splat(run.weight, out), splat(run.factor, out)
    first = to_next_line(out, out_start)
    end = first + (dim - first) // step * step
    if first > 0:
        part = _sum_partial_line(grad, buffers, count, first - step, step - first, step, weight)
        part = part * factor
        line = out_start + first - step
        if open_line == line:
            _put(
                out,
                line,
                merge(load_lanes(buffers.carry, 0, out), part, step - first, out),
                streams,
            )
        else:
            store_some(out, line, part, step - first, step)
    column = first
    while column + 2 * step <= end:
        total, chunk, next_total, next_chunk = zero, zero, zero, zero
        for position in range(count):
            start = buffers.offsets[position] + column
            chunk = chunk + load(grad, start) * weight
            next_chunk = next_chunk + load(grad, start + step) * weight
            if buffers.closes[position]:
                total, next_total = total + chunk, next_total + next_chunk
                chunk, next_chunk = zero, zero
        _put(out, out_start + column, total * factor, streams)
        _put(out, out_start + column + step, next_total * factor, streams)
        column += 2 * step
    if column < end:
        total = _sum_line(grad, buffers, count, column, weight)
        _put(out, out_start + column, total * factor, streams)
    if end == dim:
        return NO_LINE
    rest = _sum_partial_line(grad, buffers, count, end, 0, dim - end, weight)
    store_lanes(buffers.carry, 0, rest * factor)
    return out_start + end


@device_function
def _flush_line(out: Stored, carry: Floats, open_line: int, stop: int) -> int:
    """Store the pending part of a cache line, up to element ``stop``; return `NO_LINE`."""
    if open_line != NO_LINE:
        store_some(out, open_line, load_lanes(carry, 0, out), 0, stop - open_line)
    return NO_LINE


# --- All output rows ---


@device_function
def _run_of(runs: Runs, row: int) -> Run:
    """Return the run of an output row; an empty one for the row that stays zero."""
    begin, stop = np.int64(runs.starts[row]), np.int64(runs.starts[row + 1])
    if row == runs.zero_row:
        stop = begin
    weight = runs.factors[row] if runs.scale == SCALE_ROWS else ONE
    factor = runs.factors[row] if runs.scale == SCALE_SUM else ONE
    return Run(begin, stop, weight, factor)


@device_function
def _is_special(special: NDArray[np.int64], place: int, row: int) -> bool:
    """Return whether a row is the special row at ``place``."""
    return place < special.size and max(special[place], ~special[place]) == row


@kernel
def _sum_wide(
    thread: int,
    rows: MarkedRows,
    runs: Runs,
    division: Division,
    streams: bool,
    buffers: PassBuffers,
    out: Stored,
) -> None:
    """Write a thread's own rows, then its columns of every row split over all threads.

    Rows are at least a cache line long.
    """
    bounds, special, dim = division.bounds, division.special, rows.dim
    threads, step = bounds.size // 2, LINE_BYTES // out.itemsize
    sums, carry = buffers.sums[thread], buffers.carry[thread]
    own_buffers = ThreadBuffers(
        buffers.offsets[thread], buffers.closes[thread], sums[0], sums[1], carry
    )
    first, chunk_count = bounds[thread], bounds[thread + 1] - bounds[thread]
    place, open_line = bounds[threads + 1 + thread], NO_LINE
    first_line, end_line = 0, (dim + step - 1) // step
    for turn in range(chunk_count + special.size):
        row = first + turn
        if turn < chunk_count and _is_special(special, place, row):
            open_line = _flush_line(out, carry, open_line, row * dim)
            place += 1
            continue
        if turn >= chunk_count:
            open_line = _flush_line(out, carry, open_line, (first + chunk_count) * dim)
            row = special[turn - chunk_count]
            first_line = thread * (dim // step) // threads
            end_line = (
                (thread + 1) * (dim // step) // threads
                if thread < threads - 1
                else (dim + step - 1) // step
            )
        if row < 0:
            continue
        run, out_start = _run_of(runs, row), np.int64(row) * dim
        count = run.stop - run.begin
        if count <= PASS_ROWS and turn < chunk_count:
            if not streams:
                prefetch_lines(out, out_start + dim, min(dim, OUT_LOOKAHEAD_BYTES // out.itemsize))
            read_slots(rows, run.begin, count, 0, own_buffers)
            open_line = _write_short_run(rows, run, out, out_start, streams, open_line, own_buffers)
        else:
            open_line = _flush_line(out, carry, open_line, out_start)
            _write_long_run(rows, run, out, out_start, first_line, end_line, own_buffers)
    _flush_line(out, carry, open_line, (first + chunk_count) * dim)
    end_streams()


@device_function
def narrow_sum(rows: MarkedRows, run: Run, column: int) -> np.float32:
    """Return the sum of a run in one column, without the factor of the sum."""
    total, chunk = ZERO, ZERO
    for slot in range(run.begin, run.stop):
        row = np.int64(rows.marked[slot])
        chunk = chunk + widen(rows.grad[max(row, ~row) * rows.dim + column]) * run.weight
        if row < 0:
            total, chunk = total + chunk, ZERO
    return total


@kernel
def _sum_narrow(thread: int, rows: MarkedRows, runs: Runs, division: Division, out: Stored) -> None:
    """Write a thread's own rows when rows are shorter than a cache line, whatever their runs."""
    bounds, special = division.bounds, division.special
    place = bounds[bounds.size // 2 + 1 + thread]
    for row in range(bounds[thread], bounds[thread + 1]):
        if _is_special(special, place, row):
            place += 1
            if special[place - 1] < 0:
                continue
        run, out_start = _run_of(runs, row), np.int64(row) * rows.dim
        for column in range(rows.dim):
            out[out_start + column] = narrow(narrow_sum(rows, run, column) * run.factor, out)


def sum_runs(
    grad: Stored, marked: Integers, runs: Runs, out: Stored, skipped: NDArray[np.int64] = NO_ROWS
) -> None:
    """Write the rows of ``out``: the sums of their runs of marked slots.

    Parameters
    ----------
    grad : float32, int16 (fp16) or uint16 (bf16) (rows, dim)
        C-contiguous.
    marked : int32 or int64 (rows,)
        Slots in the order of arrival, from ``mark_chunks`` or ``merge_rows``.
    runs : Runs
        Runs of the rows of ``out``.
    out : dtype of grad (len(runs.starts) - 1, dim)
        C-contiguous.
    skipped : int64
        Rows of ``out`` that are not written, ascending.
    """
    threads, dim = threads_for(grad.nbytes + out.nbytes), grad.shape[1]
    rows, division = (
        MarkedRows(grad.reshape(-1), dim, marked),
        divide(runs.starts, threads, skipped),
    )
    if dim * out.itemsize < LINE_BYTES:
        _sum_narrow.over(threads, rows, runs, division, out.reshape(-1))
    else:
        streams, buffers = is_streamed(out, LINE_BYTES), pass_buffers(threads, 2, out.itemsize)
        _sum_wide.over(threads, rows, runs, division, streams, buffers, out.reshape(-1))


# --- Sums of single chunks, for studies of the order in which chunks arrive ---


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
    """Write the sum of the rows at slots ``begins[i]..stops[i]``, in order, to ``values[i]``."""
    _sum_chunk.over(begins.size, grad, marked, begins, stops, values)

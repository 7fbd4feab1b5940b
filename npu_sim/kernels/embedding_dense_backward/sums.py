"""EmbeddingDenseBackward: sums of marked runs, written to the output rows on all threads.

Order of accumulation of one run, for every path: ``chunk = chunk + row``, and at the mark that ends
a chunk ``total = total + chunk`` and ``chunk = 0``. Both accumulators are fp32 and start at +0; the
total is rounded once, on store.

A block of columns is summed at a time over all rows of the run, in registers. One thread writes
each output element, except in the incomplete last cache line of a row split by columns: there two
threads compute and store the same bits. Arrays passed to device functions are flat.

Slow reference with the order of additions: ``tests/reference/embedding_dense_backward.py``.

Source: specification page ``embedding_dense_backward``, "Kernels and accumulation order".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.embedding_dense_backward.grouping import Division, Integers, divide
from npu_sim.kernels.engine.compile import device_function, kernel, thread_scratch, threads_for
from npu_sim.kernels.vectors.lane_blocks import (
    BLOCK_BYTES,
    block_length,
    load_block,
    load_lane_block,
    put_block,
    store_block,
    zero_block,
)
from npu_sim.kernels.vectors.lanes import (
    LINE_BYTES,
    ONE,
    ZERO,
    Floats,
    Lanes,
    Stored,
    end_streams,
    load,
    prefetch_lines,
    splat,
    store_lanes,
    to_next_line,
)
from npu_sim.kernels.vectors.lanes_edges import store_some, streams_rows
from npu_sim.numbers.scalars import narrow, widen

SCALE_NOTHING = 0
SCALE_SUM = 1
"""Multiply each sum by its factor: the scale pass of keys 1, 11 and 101."""
SCALE_ROWS = 2
"""Multiply every row by the factor: EmbeddingDenseGrad with scale."""

LOOKAHEAD_BYTES, FEWEST_AHEAD, MOST_AHEAD = 8192, 2, 12
"""Bytes of grad that are prefetched ahead, and the least and largest number of rows. Rows are
scattered, so the processor cannot predict them; rows of 4 KiB are 10 % faster two rows ahead than
twelve."""
WIDE_BYTES = 1024
"""Rows of more bytes are read once in long runs, see `_write_long_run`."""
SEGMENT_BYTES = 1 << 17
"""Rows of a long run that stay in the L2 cache while their columns are added."""
GROUP_COLUMNS = 4096
"""Columns of a long run that are added before the next ones; their sums stay in the caches."""
OUT_LOOKAHEAD_BYTES = 4096
"""Bytes of the next output row to prefetch while one is summed: 10 % faster for rows of 4096
bytes."""
STREAM_ROW_BYTES = 1536
"""Rows of fewer bytes are written with non-temporal stores only if they start on a cache line."""
NO_ROWS = np.empty(0, np.int64)


class MarkedRows(NamedTuple):
    """Rows of grad in summation order."""

    grad: Stored
    """The rows, flat."""
    dim: int
    """Columns of a row."""
    marked: Integers
    """Slots: the row of grad each one names, and the ends of chunks."""
    later: Integers
    """The slots from the prefetch distance on; with a slot, the row of its place is prefetched."""


def rows_in_order(grad: Stored, marked: Integers) -> MarkedRows:
    """Return the rows of grad (rows, columns) in summation order."""
    row_bytes = grad.shape[1] * grad.itemsize
    ahead = min(max(LOOKAHEAD_BYTES // max(row_bytes, 1), FEWEST_AHEAD), MOST_AHEAD)
    return MarkedRows(grad.reshape(-1), grad.shape[1], marked, marked[ahead:])


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


class LongRuns(NamedTuple):
    """How runs of many rows are summed: some rows at a time, over all of a group of columns."""

    slots: int
    """Rows of a turn; runs of more are long."""
    sums: Floats
    """Totals and chunks between the turns: (2, columns), or (threads, 2, columns)."""


class OutRow(NamedTuple):
    """Where an output row is written."""

    flat: Stored
    """All output rows."""
    start: int
    """First element of the row."""
    streams: bool
    """Whether its cache lines are written with non-temporal stores."""


# --- One run: accumulators in registers ---


@device_function
def _sum_run(
    rows: MarkedRows,
    run: Run,
    column: int,
    size: int,
    sums: tuple[Lanes, Lanes],
    zero: Lanes,
    load_at: Any,
) -> tuple[Lanes, Lanes]:
    """Return ``sums``, total and chunk, after adding a run, without its factor.

    ``load_at(grad, index)``, a constant of a kernel, returns ``size`` lanes. The same columns of
    later rows are prefetched.
    """
    total, chunk = sums
    for slot in range(run.begin, run.stop):
        row = np.int64(rows.marked[slot])
        if slot < rows.later.size:
            later = np.int64(rows.later[slot])
            prefetch_lines(rows.grad, max(later, ~later) * rows.dim + column, size)
        chunk = chunk + load_at(rows.grad, max(row, ~row) * rows.dim + column) * run.weight
        if row < 0:
            total, chunk = total + chunk, zero
    return total, chunk


@device_function
def sum_block(rows: MarkedRows, run: Run, column: int) -> Lanes:
    """Return the sum of a block of columns of a run, which ends with the end of a chunk."""
    zero, size = zero_block(rows.grad), block_length(rows.grad)
    total, _ = _sum_run(rows, run, column, size, (zero, zero), zero, load_block)
    return total


@device_function
def sum_line(rows: MarkedRows, run: Run, column: int) -> Lanes:
    """Return the sum of a cache line of columns of a run, which ends with the end of a chunk."""
    zero, size = splat(ZERO, rows.grad), LINE_BYTES // rows.grad.itemsize
    total, _ = _sum_run(rows, run, column, size, (zero, zero), zero, load)
    return total


# --- One output row ---


@device_function
def _write_long_run(
    rows: MarkedRows, run: Run, long_runs: LongRuns, out: OutRow, columns: Any
) -> None:
    """Write columns of an output row, adding some rows at a time to all of a group.

    So the rows are read from memory once, and all columns of a group one after the other. The last
    columns may overlap those before.
    """
    flat, slots = out.flat, long_runs.slots
    totals, chunks, step = long_runs.sums[0], long_runs.sums[1], block_length(flat)
    zero, last_column = zero_block(flat), rows.dim - step
    for group in range(columns[0], columns[1], GROUP_COLUMNS):
        end = min(group + GROUP_COLUMNS, columns[1])
        for place in range(0, end - group, step):
            store_lanes(totals, place, zero)
            store_lanes(chunks, place, zero)
        for begin in range(run.begin, run.stop, slots):
            part = Run(begin, min(begin + slots, run.stop), run.weight, run.factor)
            for place in range(0, end - group, step):
                so_far = load_lane_block(totals, place, flat), load_lane_block(chunks, place, flat)
                column = min(group + place, last_column)
                total, chunk = _sum_run(rows, part, column, step, so_far, zero, load_block)
                store_lanes(totals, place, total)
                store_lanes(chunks, place, chunk)
        for place in range(0, end - group, step):
            total = load_lane_block(totals, place, flat) * run.factor
            store_block(flat, out.start + min(group + place, last_column), total)


@device_function
def _write_two(
    rows: MarkedRows, run: Run, out: OutRow, column: int, step: int, zero: Lanes, load_at: Any
) -> None:
    """Write two blocks or lines of ``step`` columns each: one loop over the rows costs less."""
    grad, dim = rows.grad, rows.dim
    total, chunk, next_total, next_chunk = zero, zero, zero, zero
    for slot in range(run.begin, run.stop):
        row = np.int64(rows.marked[slot])
        if slot < rows.later.size:
            later = np.int64(rows.later[slot])
            prefetch_lines(grad, max(later, ~later) * dim + column, 2 * step)
        start = max(row, ~row) * dim + column
        chunk = chunk + load_at(grad, start) * run.weight
        next_chunk = next_chunk + load_at(grad, start + step) * run.weight
        if row < 0:
            total, next_total = total + chunk, next_total + next_chunk
            chunk, next_chunk = zero, zero
    put_block(out.flat, out.start + column, total * run.factor, out.streams)
    put_block(out.flat, out.start + column + step, next_total * run.factor, out.streams)


@device_function
def _write_columns(rows: MarkedRows, run: Run, out: OutRow, columns: Any) -> None:
    """Write columns of an output row; unless it streams, the last may overlap those before."""
    flat, streams, dim, (first, end) = out.flat, out.streams, rows.dim, columns
    step, line = block_length(flat), LINE_BYTES // flat.itemsize
    pair = 2 * step if flat.itemsize == 4 else dim + step  # two blocks of 16 bits fit no registers
    blocks_end = first + (end - first) // step * step
    if not streams and dim >= step:
        blocks_end = end
    pairs_end = first + (end - first) // pair * pair
    for column in range(first, pairs_end, 2 * step):
        _write_two(rows, run, out, column, step, zero_block(flat), load_block)
    for begin in range(pairs_end, blocks_end, step):
        column = min(begin, dim - step)
        put_block(flat, out.start + column, sum_block(rows, run, column) * run.factor, streams)
    lines_end = blocks_end + (end - blocks_end) // (2 * line) * (2 * line)
    for column in range(blocks_end, lines_end, 2 * line):
        _write_two(rows, run, out, column, line, splat(ZERO, flat), load)
    for begin in range(lines_end, end, line):
        column = min(begin, dim - line)
        put_block(flat, out.start + column, sum_line(rows, run, column) * run.factor, streams)


@device_function
def _stream_row(
    rows: MarkedRows, run: Run, out: Stored, start: int, pending: int, kept: Stored
) -> int:
    """Write an output row with non-temporal stores, but for the cache line where the next begins.

    The elements of that line are written to ``kept``, from its second line on, and their number is
    returned. The call for the next row gets it as ``pending``, and stores the whole line.
    """
    dim, line = rows.dim, LINE_BYTES // out.itemsize
    first = to_next_line(out, start)
    end = first + (dim - first) // line * line
    if first > 0:
        head = sum_line(rows, run, 0) * run.factor
        store_block(kept, 2 * line - first, head)
        if pending > 0:
            put_block(out, start + first - line, load(kept, line), True)
        else:
            store_some(out, start, head, 0, first)
    _write_columns(rows, run, OutRow(out, start, True), (first, end))
    if end < dim:
        store_block(kept, dim - end, sum_line(rows, run, dim - line) * run.factor)
    return dim - end


@device_function
def _write_pending(out: Stored, start: int, pending: int, kept: Stored) -> int:
    """Write the elements of ``kept`` that precede ``start``; return 0: none are pending."""
    if pending > 0:
        store_some(out, start - pending, load(kept, LINE_BYTES // out.itemsize), 0, pending)
    return 0


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
    long_runs: LongRuns,
    streams: bool,
    out: Stored,
) -> None:
    """Write a thread's own rows, then its columns of every row split over all threads.

    Rows are at least a cache line long.
    """
    bounds, special, dim = division.bounds, division.special, rows.dim
    threads, step = bounds.size // 2, LINE_BYTES // out.itemsize
    own, place = LongRuns(long_runs.slots, long_runs.sums[thread]), bounds[threads + 1 + thread]
    kept, pending = own.sums[0].view(out.dtype), 0  # long runs use this memory in between
    for row in range(bounds[thread], bounds[thread + 1]):
        start, run = np.int64(row) * dim, _run_of(runs, row)
        if _is_special(special, place, row):
            place += 1
            pending = _write_pending(out, start, pending, kept)
        elif run.stop - run.begin > own.slots:
            pending = _write_pending(out, start, pending, kept)
            _write_long_run(rows, run, own, OutRow(out, start, False), (0, dim))
        elif streams:
            pending = _stream_row(rows, run, out, start, pending, kept)
        else:
            prefetch_lines(out, start + dim, min(dim, OUT_LOOKAHEAD_BYTES // out.itemsize))
            _write_columns(rows, run, OutRow(out, start, False), (0, dim))
    _write_pending(out, np.int64(bounds[thread + 1]) * dim, pending, kept)
    first = thread * (dim // step) // threads * step
    end = (thread + 1) * (dim // step) // threads * step if thread < threads - 1 else dim
    for row in special:
        if row >= 0:
            target, run = OutRow(out, np.int64(row) * dim, False), _run_of(runs, row)
            if run.stop - run.begin > own.slots:
                _write_long_run(rows, run, own, target, (first, end))
            else:
                _write_columns(rows, run, target, (first, end))
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
    rows, division = rows_in_order(grad, marked), divide(runs.starts, threads, skipped)
    if dim * out.itemsize < LINE_BYTES:
        _sum_narrow.over(threads, rows, runs, division, out.reshape(-1))
    else:
        row_bytes = dim * out.itemsize
        slots = max(SEGMENT_BYTES // row_bytes, 16) if row_bytes > WIDE_BYTES else grad.shape[0]
        columns = min(dim + BLOCK_BYTES // out.itemsize, GROUP_COLUMNS)
        long_runs = LongRuns(slots, thread_scratch(threads, 2, columns))
        streams = streams_rows(out, STREAM_ROW_BYTES)
        _sum_wide.over(threads, rows, runs, division, long_runs, streams, out.reshape(-1))


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

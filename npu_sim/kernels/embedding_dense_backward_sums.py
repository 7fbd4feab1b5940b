"""EmbeddingDenseBackward: sums of marked runs, spread over threads.

A run is summed chunk by chunk as its marks say, whatever path or merge they came from. Rows of grad are taken several at
a time, but every element is added one after the other: ``((sum + row0) + row1) + ...``.

A sum that starts at +0 never becomes -0 (x + y is -0 only when both are). So the chunk that reaches a row first, added
to its zero, leaves the same bits as if its rows were added there one by one, and so does every chunk of one row: both
skip the second accumulator.
"""

import numpy as np
from numba import get_num_threads, prange
from numpy.typing import NDArray

from npu_sim.dtypes import widen
from npu_sim.kernels._compile import device_function, kernel
from npu_sim.kernels.embedding_dense_backward_blocks import (
    Stored,
    Sums,
    add_sums,
    clear,
    finish,
    look_ahead,
    sums_of,
)
from npu_sim.kernels.embedding_dense_backward_chunks import Integers
from npu_sim.kernels.embedding_dense_backward_shares import divide

COLUMN_BLOCK = 1024
"""Columns summed at a time: accumulators of 4 KiB stay in the first-level cache beside the rows that stream through."""
LOOKAHEAD_ROWS = 8
"""Rows of grad are asked for this many rows ahead. Rows are scattered, so the processor cannot foresee them; 8 was as
good as 12 and 16 for rows of 256 to 4096 bytes, and 4 a little worse."""
COLUMN_UNIT = 16
"""Hot runs are split at multiples of 64 bytes of fp32, so that threads do not write to the same cache line."""
ONE = np.float32(1)

SUMS, CHUNK = 0, 1
SCRATCH_ROWS = 2
"""Rows of a thread's scratch: the sums of a 16-bit output row, and the chunk."""


@device_function
def _add_one(sums: Sums, weight: np.float32, row: Stored) -> None:
    for column in range(sums.size):
        sums[column] = sums[column] + widen(row[column]) * weight


@device_function
def _add_two(sums: Sums, row_0: Stored, row_1: Stored) -> None:
    for column in range(sums.size):
        sums[column] = (sums[column] + widen(row_0[column])) + widen(row_1[column])


@device_function
def _add_four(sums: Sums, row_0: Stored, row_1: Stored, row_2: Stored, row_3: Stored) -> None:
    for column in range(sums.size):
        first_two = (sums[column] + widen(row_0[column])) + widen(row_1[column])
        sums[column] = (first_two + widen(row_2[column])) + widen(row_3[column])


@device_function
def add_rows(
    sums: Sums, weight: np.float32, grad: Stored, marked: Integers, slot: int, stop: int, first_column: int
) -> None:
    """Add the rows of grad at the slots slot..stop, each times the weight, one after the other."""
    end = first_column + sums.size
    while slot < stop:
        taken = 4 if weight == ONE and stop - slot >= 4 else (2 if weight == ONE and stop - slot >= 2 else 1)
        for ahead in range(slot + LOOKAHEAD_ROWS, min(slot + LOOKAHEAD_ROWS + taken, marked.size)):
            look_ahead(grad, max(marked[ahead], ~marked[ahead]), first_column, sums.size)
        row_0 = grad[max(marked[slot], ~marked[slot]), first_column:end]
        if taken == 1:
            _add_one(sums, weight, row_0)
        else:
            row_1 = grad[max(marked[slot + 1], ~marked[slot + 1]), first_column:end]
            if taken == 2:
                _add_two(sums, row_0, row_1)
            else:
                row_2 = grad[max(marked[slot + 2], ~marked[slot + 2]), first_column:end]
                row_3 = grad[max(marked[slot + 3], ~marked[slot + 3]), first_column:end]
                _add_four(sums, row_0, row_1, row_2, row_3)
        slot += taken


@device_function
def sum_run(
    sums: Sums, chunk: Sums, weight: np.float32, grad: Stored, marked: Integers, begin: int, stop: int, first_column: int
) -> None:
    """Sum the slots begin..stop chunk by chunk into ``sums``, from zero."""
    clear(sums)
    slot = begin
    while slot < stop:
        end = slot
        while marked[end] >= 0:
            end += 1
        end += 1
        straight = slot == begin or end == slot + 1
        while straight and end < stop and marked[end] < 0:
            end += 1
        if not straight:
            clear(chunk)
        add_rows(sums if straight else chunk, weight, grad, marked, slot, end, first_column)
        if not straight:
            add_sums(sums, chunk)
        slot = end


SCALE_NOTHING = 0
SCALE_SUM = 1
"""The sum times the factor: the scale pass of keys 1, 11 and 101."""
SCALE_ROWS = 2
"""Every row times the factor: EmbeddingDenseGrad with scale."""


@device_function
def _sum_share(
    thread: int,
    grad: Stored,
    starts: Integers,
    marked: Integers,
    silent_row: int,
    scale: int,
    factors: NDArray[np.float32],
    bounds: NDArray[np.int64],
    hot: NDArray[np.int64],
    out: Stored,
    scratch: NDArray[np.float32],
) -> None:
    """Write one thread's own rows without the hot ones, then its columns of every hot row."""
    threads, dim = scratch.shape[0], out.shape[1]
    share = (dim // threads + COLUMN_UNIT) // COLUMN_UNIT * COLUMN_UNIT
    at = bounds[threads + 1 + thread]
    own = bounds[thread + 1] - bounds[thread]
    for turn in range(own + hot.size):
        row, first_column, end_column = bounds[thread] + turn, 0, dim
        if turn >= own:
            row = hot[turn - own]
            first_column, end_column = min(dim, thread * share), min(dim, (thread + 1) * share)
        elif at < hot.size and hot[at] == row:
            at += 1
            continue
        begin, stop = np.int64(starts[row]), np.int64(starts[row + 1])
        if row == silent_row:
            stop = begin
        factor = factors[row] if scale == SCALE_SUM else ONE
        weight = factors[row] if scale == SCALE_ROWS else ONE
        for column in range(first_column, end_column, COLUMN_BLOCK):
            out_block = out[row, column : min(column + COLUMN_BLOCK, end_column)]
            sums = sums_of(out_block, scratch[thread, SUMS])
            sum_run(sums, scratch[thread, CHUNK, : sums.size], weight, grad, marked, begin, stop, column)
            if factor != ONE or out_block.itemsize < sums.itemsize:
                finish(out_block, sums, factor)


@kernel
def _sum_all(
    grad: Stored,
    starts: Integers,
    marked: Integers,
    silent_row: int,
    scale: int,
    factors: NDArray[np.float32],
    bounds: NDArray[np.int64],
    hot: NDArray[np.int64],
    out: Stored,
    scratch: NDArray[np.float32],
) -> None:
    for thread in prange(scratch.shape[0]):
        _sum_share(np.int64(thread), grad, starts, marked, silent_row, scale, factors, bounds, hot, out, scratch)


def sum_runs(
    grad: Stored, starts: Integers, marked: Integers, silent_row: int, scale: int, factors: NDArray[np.float32], out: Stored
) -> None:
    """Write every row of ``out``: the sum of its run of marked slots.

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
    factors : float32 (len(out),) or empty
    out : dtype of grad (n, dim)
        C-contiguous.
    """
    threads = get_num_threads()
    bounds, hot = divide(starts, threads)
    columns = min(COLUMN_BLOCK, max(out.shape[1], 1))
    scratch = np.empty((threads, SCRATCH_ROWS, columns), np.float32)
    _sum_all(grad, starts, marked, silent_row, scale, factors, bounds, hot, out, scratch)

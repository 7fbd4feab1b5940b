"""EmbeddingDenseBackward: marked runs to output rows, spread over threads.

A run is summed as its marks say, whatever path or merge they came from. Every element of the output is written by one thread, up to the
last, incomplete cache line of a row, which its owner sums twice to the same bits.
"""

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.embedding_dense_backward.chunks import Integers
from npu_sim.kernels.embedding_dense_backward.lines import (
    PASS_ROWS,
    PassBuffers,
    look_ahead_in_out,
    pass_buffers,
    read_slots,
    write_long_run,
    write_narrow_row,
)
from npu_sim.kernels.embedding_dense_backward.rows import NO_LINE, flush_line, write_run
from npu_sim.kernels.embedding_dense_backward.shares import divide
from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.engine.threads import threads_for
from npu_sim.kernels.vectors.lane_type import LINE_BYTES
from npu_sim.kernels.vectors.lanes import Stored, end_streams, is_streamed

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

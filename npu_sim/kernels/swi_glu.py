"""SwiGlu: out = a / (1 + exp(-a)) * b, where a and b are the halves of a row of x.

Elements are independent, so threads split pieces of rows evenly, regardless of the simulated core
split. The order of the operations of an element depends on the dtype. One loop over blocks of lanes
reads, computes and writes, so that none of these waits for the others.

Slow reference with the order of operations: ``tests/reference/swi_glu.py``.

Source: specification pages ``swi_glu`` and ``swi_glu_950``, section "Kernel".
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel, thread_scratch, threads_for
from npu_sim.kernels.shared.sigmoid import (
    PIECE_COLUMNS,
    Counts,
    Gates,
    count_lowest,
    gates_of,
    look_up,
    piece_of,
    pieces_of,
    quotient_block,
    quotient_part,
)
from npu_sim.kernels.vectors.lane_blocks import load_from_memory, over_row, put_block
from npu_sim.kernels.vectors.lanes import Floats, Lanes, end_streams
from npu_sim.kernels.vectors.lanes_edges import load_some, store_some


@device_function
def _product(s: Lanes, a: Lanes, b: Lanes, like: Any) -> Lanes:
    return s * b if like.itemsize == 2 else s * a * b


@device_function
def _block_at(inputs: Any, column: int, streams: bool) -> None:
    a, b, gates, quotients, out = inputs
    block_a, block_b = load_from_memory(a, column, streams), load_from_memory(b, column, streams)
    s = quotient_block(block_a, column, out, gates, quotients)
    put_block(out, column, _product(s, block_a, block_b, out), streams)


@device_function
def _part_at(inputs: Any, column: int, size: int) -> None:
    a, b, gates, quotients, out = inputs
    part_a, part_b = load_some(a, column, 0, size, out), load_some(b, column, 0, size, out)
    s = quotient_part(part_a, column, size, out, gates, quotients)
    store_some(out, column, _product(s, part_a, part_b, out), 0, size)


@kernel
def _forward(chunk: int, x, gates: Gates, scratch: Floats, counts: Counts, out) -> None:
    """Compute a chunk of the pieces of all rows."""
    columns = out.shape[1]
    first, stop = pieces_of(chunk, len(counts), out)
    for number in range(first, stop):
        row, begin, end = piece_of(number, columns)
        a, b = x[row, begin:end], x[row, columns + begin : columns + end]
        patterns, piece = gates.patterns[row, begin:end], out[row, begin:end]
        look_up(patterns, gates, scratch[chunk])
        inputs = a, b, gates, scratch[chunk], piece
        over_row(inputs, piece, gates.streams, _block_at, _part_at)
        count_lowest(a, patterns, gates, counts[chunk])
    end_streams()


def swi_glu(x: NDArray[Any], flushes: bool, low: np.float32, out: NDArray[Any]) -> list[int]:
    """Compute out (rows, columns) from x (rows, 2 * columns), storage arrays of one dtype.

    With ``flushes``, the division loses subnormal results. Returns the numbers of the values of a
    that are finite and below ``low``, and that are -inf.
    """
    threads = threads_for(x.nbytes + out.nbytes)
    counts = np.zeros((threads, 2), np.int64)
    scratch = thread_scratch(threads, PIECE_COLUMNS)
    _forward.over(threads, x, gates_of(x, True, flushes, low, out), scratch, counts, out)
    return np.add.reduce(counts).tolist()

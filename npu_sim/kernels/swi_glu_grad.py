"""SwiGluGrad: the gradients of a / (1 + exp(-a)) * b, where a and b are the halves of a row of x.

Elements are independent, so threads split pieces of rows evenly, regardless of the simulated core
split. The order of the operations of an element depends on the dtype and on the product. One loop
over blocks of lanes reads, computes and writes, so that none of these waits for the others.

Slow reference with the order of operations: ``tests/reference/swi_glu.py``.

Source: specification pages ``swi_glu_grad`` and ``swi_glu_950``, section "Kernel".
"""

from typing import Any, NamedTuple

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
from npu_sim.kernels.vectors.lanes import ONE, Floats, Lanes, end_streams, to_next_line
from npu_sim.kernels.vectors.lanes_edges import load_some, store_some
from npu_sim.numbers.scalars import widen

ROOT_DISTANCE = np.float32(1e-3)
_INFINITY = np.float32(np.inf)


class Rows(NamedTuple):
    """Storage arrays of a call."""

    x: NDArray[Any]
    """(rows, 2 * columns): the halves a and b."""
    y_grad: NDArray[Any]
    """(rows, columns)"""
    x_grad: NDArray[Any]
    """(rows, 2 * columns)"""


class Piece(NamedTuple):
    """Columns of one row: storage of both halves, of y_grad and of both halves of x_grad."""

    a: NDArray[Any]
    b: NDArray[Any]
    grad: NDArray[Any]
    out_a: NDArray[Any]
    out_b: NDArray[Any]
    quotients: Floats
    gates: Gates
    grad_first: bool
    streams_b: bool
    """Whether cache lines begin at the same columns of both halves of x_grad."""


@device_function
def _gradients(s: Lanes, a: Lanes, b: Lanes, grad: Lanes, piece: Piece) -> tuple[Lanes, Lanes]:
    """Return both halves of the gradient."""
    if piece.grad_first:
        product = grad * s
        return (((ONE - s) * a + ONE) * product) * b, product * a
    t = (s * (ONE - s)) * a + s
    return (t * grad) * b if piece.a.itemsize == 2 else (t * b) * grad, (s * a) * grad


@device_function
def _block_at(piece: Piece, column: int, streams: bool) -> None:
    a, b, grad = (
        load_from_memory(piece.a, column, streams),
        load_from_memory(piece.b, column, streams),
        load_from_memory(piece.grad, column, streams),
    )
    s = quotient_block(a, column, piece.a, piece.gates, piece.quotients)
    grad_a, grad_b = _gradients(s, a, b, grad, piece)
    put_block(piece.out_a, column, grad_a, streams)
    put_block(piece.out_b, column, grad_b, streams and piece.streams_b)


@device_function
def _part_at(piece: Piece, column: int, size: int) -> None:
    a, b, grad = (
        load_some(piece.a, column, 0, size, piece.a),
        load_some(piece.b, column, 0, size, piece.a),
        load_some(piece.grad, column, 0, size, piece.a),
    )
    s = quotient_part(a, column, size, piece.a, piece.gates, piece.quotients)
    grad_a, grad_b = _gradients(s, a, b, grad, piece)
    store_some(piece.out_a, column, grad_a, 0, size)
    store_some(piece.out_b, column, grad_b, 0, size)


@device_function
def _count_others(a, root: np.float32, counts: Counts) -> None:
    """Count +inf, and values within `ROOT_DISTANCE` of ``root``, in integers as wide as fp32."""
    infinite, near = np.int32(0), np.int32(0)
    for column in range(a.size):
        value = widen(a[column])
        infinite = np.int32(infinite + (value == _INFINITY))
        near = np.int32(near + (abs(value - root) < ROOT_DISTANCE))
    counts[1] += infinite
    counts[2] += near


@kernel
def _gradient(
    chunk: int,
    rows: Rows,
    gates: Gates,
    grad_first: bool,
    root: np.float32,
    scratch: Floats,
    counts: Counts,
) -> None:
    """Compute a chunk of the pieces of all rows."""
    x, y_grad, x_grad = rows
    columns = y_grad.shape[1]
    first, stop = pieces_of(chunk, len(counts), y_grad)
    for number in range(first, stop):
        row, begin, end = piece_of(number, columns)
        a, b = x[row, begin:end], x[row, columns + begin : columns + end]
        grad, patterns = y_grad[row, begin:end], gates.patterns[row, begin:end]
        out_a, out_b = x_grad[row, begin:end], x_grad[row, columns + begin : columns + end]
        streams_b = to_next_line(out_a, 0) == to_next_line(out_b, 0)
        look_up(patterns, gates, scratch[chunk])
        piece = Piece(a, b, grad, out_a, out_b, scratch[chunk], gates, grad_first, streams_b)
        over_row(piece, out_a, gates.streams, _block_at, _part_at)
        count_lowest(a, patterns, gates, counts[chunk])
        _count_others(a, root, counts[chunk])
    end_streams()


def swi_glu_grad(
    x: NDArray[Any],
    y_grad: NDArray[Any],
    flushes: bool,
    grad_first: bool,
    low: np.float32,
    root: np.float32,
    x_grad: NDArray[Any],
) -> list[int]:
    """Compute x_grad, of the shape of x (rows, 2 * columns), from y_grad (rows, columns).

    With ``flushes``, the division loses subnormal results; with ``grad_first``, y_grad is the first
    factor. Returns the numbers of the values of a that are finite and below ``low``, infinite, and
    within `ROOT_DISTANCE` of ``root``; nan counts none.
    """
    threads = threads_for(x.nbytes + y_grad.nbytes + x_grad.nbytes)
    counts = np.zeros((threads, 3), np.int64)
    gates = gates_of(x, False, flushes, low, x_grad)
    scratch = thread_scratch(threads, PIECE_COLUMNS)
    _gradient.over(threads, Rows(x, y_grad, x_grad), gates, grad_first, root, scratch, counts)
    return np.add.reduce(counts).tolist()

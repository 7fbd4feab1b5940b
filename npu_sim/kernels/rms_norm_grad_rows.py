"""RmsNormGrad: the arithmetic of one row, in the order of the product's instructions.

A row is read twice, once for its sum and once for dx; between the two it stays in the second-level cache.

Source: specification page ``rms_norm_grad``, section "Kernels and accumulation order".
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function
from npu_sim.kernels.vectors.lane_type import LINE_BYTES
from npu_sim.kernels.vectors.lanes import (
    load,
    prefetch,
    prefetch_lines,
    splat,
    store,
    stream,
    to_next_line,
)
from npu_sim.kernels.vectors.lanes_edges import load_like, load_some, store_some
from npu_sim.kernels.vectors.lanes_kept import ORDERED_LANES, keep, load_ordered
from npu_sim.kernels.vectors.reduce_sum import LANE_COUNT, add_lanes
from npu_sim.kernels.vectors.row_sums import clear, front_of, halve, keep_lanes
from npu_sim.numbers.scalars import narrow, widen

LOOKAHEAD_BYTES = 8192
"""How far ahead dy and x are asked for, across the ends of rows: up to a tenth faster."""
_ZERO = np.float32(0)
Floats = NDArray[np.float32]


@device_function
def _products(dy, x, gamma, scale: np.float32, dgamma: Floats, column: int, later: bool) -> Any:
    """Add dy*xh of some columns to dgamma; return (dy*gamma)*xh, or (dy*xh)*gamma where gamma comes ``later``: key 2."""
    xh, gradient, weight = (
        load_ordered(x, column) * scale,
        load_ordered(dy, column),
        load_ordered(gamma, column),
    )
    share = gradient * xh
    keep(dgamma, column, load_ordered(dgamma, column) + share)
    return share * weight if later else (gradient * weight) * xh


@device_function
def _product(
    dy, x, gamma, scale: np.float32, dgamma: Floats, column: int, later: bool
) -> np.float32:
    """The same for one column."""
    xh, gradient, weight = widen(x[column]) * scale, widen(dy[column]), widen(gamma[column])
    share = gradient * xh
    dgamma[column] = dgamma[column] + share
    return share * weight if later else (gradient * weight) * xh


@device_function
def lane_sum(dy, x, gamma, scale: np.float32, dgamma: Floats, accumulators: Floats) -> np.float32:
    """Key 1: add dy*xh to dgamma, and sum (dy*gamma)*xh over 64 lane accumulators.

    64 products at a time are added lane by lane, then the lanes as a tree. ``accumulators`` (64,) is scratch.
    """
    first = splat(_ZERO, dgamma)
    second, third, fourth = first, first, first
    whole = dgamma.size // LANE_COUNT * LANE_COUNT
    for column in range(0, whole, LANE_COUNT):
        prefetch_lines(dy, column + LOOKAHEAD_BYTES // dy.itemsize, LANE_COUNT)
        prefetch_lines(x, column + LOOKAHEAD_BYTES // x.itemsize, LANE_COUNT)
        first = first + _products(dy, x, gamma, scale, dgamma, column, False)
        second = second + _products(dy, x, gamma, scale, dgamma, column + ORDERED_LANES, False)
        third = third + _products(dy, x, gamma, scale, dgamma, column + 2 * ORDERED_LANES, False)
        fourth = fourth + _products(dy, x, gamma, scale, dgamma, column + 3 * ORDERED_LANES, False)
    keep_lanes(accumulators, first, second, third, fourth)
    for column in range(whole, dgamma.size):
        accumulators[column - whole] = accumulators[column - whole] + _product(
            dy, x, gamma, scale, dgamma, column, False
        )
    return add_lanes(accumulators)


@device_function
def _put_products(
    dy, x, gamma, scale: np.float32, dgamma: Floats, products: Floats, adds: bool, later: bool
) -> None:
    """Add dy*xh to dgamma, and write the products of a row, or add them to what is there; ``products`` may be longer."""
    whole = dgamma.size // ORDERED_LANES * ORDERED_LANES
    for column in range(0, whole, ORDERED_LANES):
        prefetch(dy, column + LOOKAHEAD_BYTES // dy.itemsize)
        prefetch(x, column + LOOKAHEAD_BYTES // x.itemsize)
        lanes = _products(dy, x, gamma, scale, dgamma, column, later)
        keep(products, column, load_ordered(products, column) + lanes if adds else lanes)
    for column in range(whole, dgamma.size):
        product = _product(dy, x, gamma, scale, dgamma, column, later)
        products[column] = products[column] + product if adds else product


@device_function
def halved_sum(
    dy, x, gamma, scale: np.float32, dgamma: Floats, products: Floats, later: bool
) -> np.float32:
    """Sum a row's products by ``halving``: the part beyond a power of two is added to the front, until 64 lanes are left.

    The first halving happens while the products are made: those of the front are stored, the others added to them.
    """
    front = front_of(dgamma.size)
    _put_products(
        dy[:front], x[:front], gamma[:front], scale, dgamma[:front], products, False, later
    )
    _put_products(
        dy[front:], x[front:], gamma[front:], scale, dgamma[front:], products, True, later
    )
    if front < LANE_COUNT:
        clear(products[front:LANE_COUNT])
    return halve(products, max(front, LANE_COUNT))


@device_function
def _gradient(dy: Any, x: Any, gamma: Any, scale: np.float32, mean: np.float32) -> Any:
    """Return (dy*gamma - xh*mean)*rstd of numbers or of lanes."""
    return (dy * gamma - (x * scale) * mean) * scale


@device_function
def gradient_row(dy, x, gamma, scale: np.float32, mean: np.float32, dx, streams: bool) -> None:
    """Second pass over a row: dx = (dy*gamma - xh*mean)*rstd, rounded once; ``streams`` stores it past the cache."""
    line = LINE_BYTES // dx.itemsize
    if dx.size < line:
        for column in range(dx.size):
            dx[column] = narrow(
                _gradient(widen(dy[column]), widen(x[column]), widen(gamma[column]), scale, mean),
                dx,
            )
        return
    if not streams:
        for begin in range(0, dx.size, line):
            column = min(
                begin, dx.size - line
            )  # the last line may overlap the one before: what is written twice is the same
            store(
                dx,
                column,
                _gradient(
                    load(dy, column), load(x, column), load_like(gamma, column, x), scale, mean
                ),
            )
        return
    first = to_next_line(dx, 0)
    end = first + (dx.size - first) // line * line
    for column in range(first, end, line):
        stream(
            dx,
            column,
            _gradient(load(dy, column), load(x, column), load_like(gamma, column, x), scale, mean),
        )
    # What remains of the lines at both ends, which belong to the neighbouring rows as well.
    for side in range(2):
        column, begin, stop = (
            (first - line, line - first, line) if side == 0 else (end, 0, dx.size - end)
        )
        if begin < stop:
            dys, xs = load_some(dy, column, begin, stop, x), load_some(x, column, begin, stop, x)
            gammas = load_some(gamma, column, begin, stop, x)
            store_some(dx, column, _gradient(dys, xs, gammas, scale, mean), begin, stop)

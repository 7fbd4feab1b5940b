"""Quotients of SwiGlu and its gradient, 1 / (1 + exp(-a)) and a / (1 + exp(-a)), and their pieces.

Quotients of fp32 numbers are computed in blocks of lanes; those of 16-bit numbers depend on few
patterns and are read from a table.

Source: specification pages ``swi_glu`` and ``swi_glu_950``, section "Kernel".
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.shared.elementwise import widen_array
from npu_sim.kernels.vectors.lane_blocks import (
    block_length,
    load_block,
    load_block_like,
    one_plus_exp_of_opposite,
    store_block,
    zero_below,
)
from npu_sim.kernels.vectors.lanes import ONE, STREAM_BYTES, Floats, Lanes
from npu_sim.kernels.vectors.lanes_edges import load_some
from npu_sim.numbers.formats import UNSIGNED, from_storage
from npu_sim.numbers.scalars import widen

PIECE_COLUMNS = 2048
"""Columns of a piece; it stays in the L1 cache between computing and counting."""
MINUS_64 = {np.int16: 0xD400, np.uint16: 0xC280, np.float32: 0xC2800000}
"""Bit pattern of -64 by storage type; no number with a smaller one is below ``low``."""
SMALLEST_NORMAL = np.float32(2.0**-126)
_INFINITY = np.float32(np.inf)
Counts = NDArray[np.int64]


class Gates(NamedTuple):
    """The first half of x, and how its quotients are computed."""

    patterns: NDArray[Any]
    """Bits of x."""
    lowest: int
    """Pattern of -64."""
    low: np.float32
    """Finite values below it are counted."""
    flushes: bool
    """Whether the division loses subnormal results."""
    streams: bool
    """Whether results are written with non-temporal stores."""
    table: Floats
    """Quotients of 16-bit numbers by pattern; empty for fp32."""


@device_function
def _divided(a: Lanes, is_silu: bool, flushes: bool) -> Lanes:
    d = one_plus_exp_of_opposite(a)
    quotient = a / d if is_silu else ONE / d
    return zero_below(quotient, SMALLEST_NORMAL) if flushes else quotient


@kernel
def _fill(chunk: int, numbers: Floats, is_silu: bool, flushes: bool, table: Floats) -> None:
    for index in range(0, numbers.size, block_length(numbers)):
        store_block(table, index, _divided(load_block(numbers, index), is_silu, flushes))


@cache
def _table_of(storage: type[np.generic], is_silu: bool, flushes: bool) -> Floats:
    """Return fp32(a / d), or fp32(1 / d), of every 16-bit number a, by its bit pattern (256 KiB).

    It is computed once per process, in less time than the quotients of any large tensor.
    """
    name = "bfloat16" if storage is np.uint16 else "float16"
    numbers = widen_array(from_storage(np.arange(1 << 16).astype(np.uint16).view(storage), name))
    table = np.empty_like(numbers)
    _fill.over(1, numbers, is_silu, flushes, table)
    return table


@device_function
def look_up(patterns, gates: Gates, quotients: Floats) -> None:
    """Read the quotients of a piece of 16-bit numbers from the table."""
    if patterns.itemsize == 2:
        for column in range(patterns.size):
            quotients[column] = gates.table[patterns[column]]


@device_function
def quotient_block(a: Lanes, column: int, like: Any, gates: Gates, quotients: Floats) -> Lanes:
    """Return the quotients of the block of a at a column of a piece."""
    if like.itemsize == 2:
        return load_block_like(quotients, column, like)
    return _divided(a, False, gates.flushes)


@device_function
def quotient_part(
    a: Lanes, column: int, size: int, like: Any, gates: Gates, quotients: Floats
) -> Lanes:
    """Return the quotients of the ``size`` elements of a at a column of a piece."""
    if like.itemsize == 2:
        return load_some(quotients, column, 0, size, like)
    return _divided(a, False, gates.flushes)


@device_function
def piece_of(number: int, columns: int) -> tuple[int, int, int]:
    """Return the row of a piece, and the range of its columns."""
    pieces = (columns + PIECE_COLUMNS - 1) // PIECE_COLUMNS
    row = number // pieces
    begin = (number - row * pieces) * PIECE_COLUMNS
    return row, begin, min(begin + PIECE_COLUMNS, columns)


@device_function
def pieces_of(chunk: int, chunks: int, half) -> tuple[int, int]:
    """Return the range of the pieces of a chunk; ``half`` has rows of half the columns of x."""
    pieces = half.shape[0] * ((half.shape[1] + PIECE_COLUMNS - 1) // PIECE_COLUMNS)
    return pieces * chunk // chunks, pieces * (chunk + 1) // chunks


@device_function
def count_lowest(a, patterns, gates: Gates, counts: Counts) -> None:
    """Count finite values of a piece below ``low``, and -inf."""
    highest = patterns[0]
    for column in range(a.size):
        highest = max(highest, patterns[column])
    if highest >= gates.lowest:
        for column in range(a.size):
            value = widen(a[column])
            counts[0] += -_INFINITY < value < gates.low
            counts[1] += value == -_INFINITY


def gates_of(
    x: NDArray[Any], is_silu: bool, flushes: bool, low: np.float32, out: NDArray[Any]
) -> Gates:
    """Return the gates of x, a storage array, with 1 or, in 16 bits, a as the numerator."""
    storage = x.dtype.type
    table = _table_of(storage, is_silu, flushes) if x.itemsize == 2 else np.empty(0, np.float32)
    patterns = x.view(UNSIGNED[x.itemsize])
    return Gates(patterns, MINUS_64[storage], low, flushes, out.nbytes > STREAM_BYTES, table)

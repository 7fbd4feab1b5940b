"""ConvTbcBackward: operands of the cube unit, rounded to the compute dtype and packed for the register tile.

Operands are rounded where they are packed, so that no rounded copy of a tensor is ever held.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.conv_tbc_backward.order import SAMPLE, START, STOP, Integers
from npu_sim.kernels.conv_tbc_backward.tile import Floats
from npu_sim.kernels.elementwise import narrow_array, widen_array
from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.numbers.scalars import fp16_to_fp32, fp32_to_fp16, fp32_to_hf32, widen
from npu_sim.numbers.storage import FORMAT_OF_STORAGE

Stored = NDArray[Any]
"""fp32 as float32, fp16 as int16, bf16 as uint16."""

EXACT = 0
"""The compute dtype holds every value of the operand."""
TO_HF32 = 1
TO_FP16 = 2
TO_FP16_SATURATED = 3
"""As TO_FP16, then inf becomes 65504 with its sign and nan becomes 0 (page ``numerics``,
"Overflow")."""

CHANNEL_BLOCK_BYTES = 32
"""A row of the cube layout: C0 channels of the compute dtype."""
FP16_LARGEST = np.float32(65504)
PIECE = 16
"""Rows of time a thread packs at a time."""


@device_function
def round_row(source: Stored, target: Floats, rounding: int) -> None:
    """Write a row of stored values as float32, rounded to the compute dtype."""
    if rounding == EXACT:
        for place in range(source.size):
            target[place] = widen(source[place])
    elif rounding == TO_HF32:
        for place in range(source.size):
            target[place] = fp32_to_hf32(widen(source[place]))
    elif rounding == TO_FP16:
        for place in range(source.size):
            target[place] = fp16_to_fp32(fp32_to_fp16(widen(source[place])))
    else:
        for place in range(source.size):
            value = fp16_to_fp32(fp32_to_fp16(widen(source[place])))
            value = (
                value
                if value <= FP16_LARGEST
                else FP16_LARGEST
                if value > FP16_LARGEST
                else np.float32(0)
            )
            target[place] = value if value >= -FP16_LARGEST else -FP16_LARGEST


def channel_block(operand: Stored, rounding: int) -> int:
    """Return C0 of the compute dtype that an operand is rounded to."""
    return CHANNEL_BLOCK_BYTES // (
        2 if rounding in (TO_FP16, TO_FP16_SATURATED) else operand.dtype.itemsize
    )


@device_function
def clear(values: Floats) -> None:
    """Set values to +0."""
    for place in range(values.size):
        values[place] = np.float32(0)


@kernel
def _pack_piece(
    piece: int,
    values: Stored,
    visits: Integers,
    halo: int,
    shift: int,
    width: int,
    rounding: int,
    packed: Floats,
) -> None:
    """Pack a piece of time."""
    for number in range(len(visits)):
        first = visits[number, START] - shift
        stop = min(visits[number, STOP] - shift + halo, (piece + 1) * PIECE, len(values))
        for time in range(max(first, piece * PIECE), stop):
            row = values[time, visits[number, SAMPLE]]
            for tile in range(packed.shape[1]):
                source, target = (
                    row[tile * width : (tile + 1) * width],
                    packed[number, tile, time - first, :width],
                )
                round_row(source, target, rounding)
                clear(target[source.size :])


def pack_tiles(
    values: Stored,
    visits: Integers,
    halo: int,
    shift: int,
    width: int,
    rounding: int,
    packed: Floats,
) -> None:
    """Round the rows of each visit's sample and lay them out in tiles of ``width`` channels.

    ``values`` is (time, B, C); ``packed`` is (visits, tiles, rows, stride), whose row 0 is time
    ``start - shift``. Rows reach ``halo`` further than the visit's own; those outside ``values``
    are left as they are.
    """
    pieces = -(-values.shape[0] // PIECE)
    _pack_piece.over(pieces, values, visits, halo, shift, width, rounding, packed)


# --- Products with a contraction of length 1 ---
TOGETHER = 1 << 20
"""Products at a time, so that they need little memory beside the result."""


def multiply_elements(rows: Stored, columns: Stored, rounding: int, out: Stored) -> None:
    """Multiply every row element with every column element: out[r, c] = rows[r] * columns[c], rounded once.

    Parameters
    ----------
    rows, columns, out : (R,), (C,), (R, C)
        In storage form.
    rounding : int
        Code of ``conv_tbc_backward_operands``: operands, and the products, are rounded to fp16 first where it says so. There is no
        rounding to hf32: the vector unit multiplies.
    """
    left, right = (_rounded(widen_array(one), rounding) for one in (rows, columns))
    step = max(TOGETHER // max(right.size, 1), 1)
    for first in range(0, left.size, step):
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            products = np.multiply.outer(left[first : first + step], right)
        target = out[first : first + step]
        narrow_array(_rounded(products, rounding), FORMAT_OF_STORAGE[out.dtype], out=target)


def _rounded(values: np.ndarray, rounding: int) -> np.ndarray:
    if rounding not in (TO_FP16, TO_FP16_SATURATED):
        return values
    return widen_array(narrow_array(values, "float16", saturate=rounding == TO_FP16_SATURATED))

"""ConvTbcBackward: operands of the cube unit, rounded to the compute dtype and packed for `tile`.

Operands are rounded while they are packed, so no rounded copy of a tensor is held.

Source: specification pages ``conv_tbc_backward``, "Execution", and ``numerics``.
"""

from typing import Any, NamedTuple

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
"""No rounding: every value of the operand is exact in the compute dtype."""
TO_HF32 = 1
TO_FP16 = 2
TO_FP16_SATURATED = 3
"""Like TO_FP16, then inf becomes 65504 with its sign and nan becomes 0 (page ``numerics``,
"Overflow")."""

CHANNEL_BLOCK_BYTES = 32
"""Size of a row of the cube layout: C0 channels of the compute dtype."""
FP16_LARGEST = np.float32(65504)
PIECE = 16
"""Rows of time that a thread packs at a time."""


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
            if not value <= FP16_LARGEST:
                value = FP16_LARGEST if value > FP16_LARGEST else np.float32(0)
            target[place] = value if value >= -FP16_LARGEST else -FP16_LARGEST


def channel_block(operand: Stored, rounding: int) -> int:
    """Return C0 of the compute dtype to which an operand is rounded."""
    is_fp16 = rounding in (TO_FP16, TO_FP16_SATURATED)
    return CHANNEL_BLOCK_BYTES // (2 if is_fp16 else operand.dtype.itemsize)


@device_function
def clear(values: Floats) -> None:
    """Set values to +0."""
    for place in range(values.size):
        values[place] = np.float32(0)


class Packing(NamedTuple):
    """Layout of packed operands."""

    halo: int
    """Rows after those of the visit that are packed too."""
    shift: int
    """Row 0 of a visit is time ``start - shift``."""
    width: int
    """Channels of a tile."""
    rounding: int
    """EXACT, TO_HF32, TO_FP16 or TO_FP16_SATURATED."""


@kernel
def _pack_piece(
    piece: int, values: Stored, visits: Integers, packing: Packing, packed: Floats
) -> None:
    """Pack PIECE rows of time of all visits."""
    width = packing.width
    for number in range(len(visits)):
        first = visits[number, START] - packing.shift
        visit_stop = visits[number, STOP] - packing.shift + packing.halo
        stop = min(visit_stop, (piece + 1) * PIECE, len(values))
        for time in range(max(first, piece * PIECE), stop):
            row = values[time, visits[number, SAMPLE]]
            for tile in range(packed.shape[1]):
                source = row[tile * width : (tile + 1) * width]
                target = packed[number, tile, time - first, :width]
                round_row(source, target, packing.rounding)
                clear(target[source.size :])


def pack_tiles(values: Stored, visits: Integers, packing: Packing, packed: Floats) -> None:
    """Round the rows of each visit's sample and arrange them in tiles of ``width`` channels.

    ``values`` is (time, B, C) and ``packed`` is (visits, tiles, rows, stride). Packed rows outside
    ``values`` are not written.
    """
    pieces = -(-values.shape[0] // PIECE)
    _pack_piece.over(pieces, values, visits, packing, packed)


# --- Products with a contraction of length 1: the product's plain Mul, on the vector unit ---

PRODUCTS_AT_A_TIME = 1 << 20
"""Limits the memory for products in fp32."""


def multiply_elements(rows: Stored, columns: Stored, rounding: int, out: Stored) -> None:
    """Compute the outer product out[r, c] = rows[r] * columns[c], rounded once.

    Parameters
    ----------
    rows, columns, out : (R,), (C,), (R, C)
        In storage form.
    rounding : int
        TO_FP16 and TO_FP16_SATURATED round operands and products to fp16 first. Other codes round
        nothing: the vector unit has no hf32.
    """
    left, right = (_rounded(widen_array(operand), rounding) for operand in (rows, columns))
    step = max(PRODUCTS_AT_A_TIME // max(right.size, 1), 1)
    for first in range(0, left.size, step):
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            products = np.multiply.outer(left[first : first + step], right)
        target = out[first : first + step]
        narrow_array(_rounded(products, rounding), FORMAT_OF_STORAGE[out.dtype], out=target)


def _rounded(values: np.ndarray, rounding: int) -> np.ndarray:
    if rounding not in (TO_FP16, TO_FP16_SATURATED):
        return values
    return widen_array(narrow_array(values, "float16", saturate=rounding == TO_FP16_SATURATED))

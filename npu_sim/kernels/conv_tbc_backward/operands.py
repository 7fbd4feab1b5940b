"""ConvTbcBackward: operands of `tile`, rounded and packed; outer products; gradBias.

Operands are rounded to the compute dtype while they are packed, so no rounded copy of a tensor is
held.

gradBias is the sum of grad (the product's argument ``self``) over time and batch, in its dtype.
Order of accumulation: fp32, rows in groups of ROWS, added in order within a group, then the groups
in order; rounded once. Where several cores reduce the rows (Atlas training series, fp32), each core
adds its sum to the zeroed output atomically, in any order.

Slow reference with the order of additions: ``tests/reference/conv_tbc_backward.py``.

Sources: specification pages ``conv_tbc_backward``, "Execution", and ``numerics``.
"""

from typing import NamedTuple

import numpy as np

from npu_sim.kernels.arrival_orders import SEQUENTIAL, arrivals
from npu_sim.kernels.elementwise import narrow_array, widen_array
from npu_sim.kernels.engine.compile import device_function, kernel
from npu_sim.kernels.vectors.lane_type import Floats, Integers, Stored
from npu_sim.kernels.vectors.row_sums import clear
from npu_sim.numbers.scalars import fp16_to_fp32, fp32_to_fp16, fp32_to_hf32, widen
from npu_sim.numbers.storage import FORMAT_OF_STORAGE

SAMPLE, START, STOP = 0, 1, 2
"""Columns of a list of visits: sample, and half-open range of output time."""


EXACT = 0
"""No rounding: every value of the operand is exact in the compute dtype."""
TO_HF32 = 1
TO_FP16 = 2
TO_FP16_SATURATED = 3
"""Like TO_FP16, then inf becomes 65504 with its sign and nan becomes 0 (page ``numerics``,
"Overflow")."""

CHANNEL_BLOCK_BYTES = 32
"""Bytes of a block of the cube's layout: C0 channels, 16 in fp16 and 8 in fp32."""
FP16_LARGEST = np.float32(65504)
PIECE = 16
"""Rows of time that a thread packs at a time."""


@device_function
def round_row(source: Stored, target: Floats, rounding: int) -> None:
    """Write a row of stored values as float32, rounded to the compute dtype.

    Parameters
    ----------
    source, target : (C,), (at least C,)
        The rest of ``target`` is left as it is.
    rounding : int
        EXACT, TO_HF32, TO_FP16 or TO_FP16_SATURATED; the caller checks it.
    """
    if rounding == EXACT:
        for index in range(source.size):
            target[index] = widen(source[index])
    elif rounding == TO_HF32:
        for index in range(source.size):
            target[index] = fp32_to_hf32(widen(source[index]))
    elif rounding == TO_FP16:
        for index in range(source.size):
            target[index] = fp16_to_fp32(fp32_to_fp16(widen(source[index])))
    else:
        for index in range(source.size):
            value = fp16_to_fp32(fp32_to_fp16(widen(source[index])))
            if not value <= FP16_LARGEST:  # inf, or nan, which compares false
                value = FP16_LARGEST if value > FP16_LARGEST else np.float32(0)
            target[index] = value if value >= -FP16_LARGEST else -FP16_LARGEST


def channel_block(operand: Stored, rounding: int) -> int:
    """Return C0, the channels per 32-byte block, of the dtype an operand is rounded to."""
    is_fp16 = rounding in (TO_FP16, TO_FP16_SATURATED)
    return CHANNEL_BLOCK_BYTES // (2 if is_fp16 else operand.dtype.itemsize)


class Packing(NamedTuple):
    """Layout of packed operands.

    A visit (see `weight`) is one sample on the time steps START..STOP. Its packed row r holds time
    ``START - shift + r``; the last one is before ``STOP - shift + halo``.
    """

    halo: int
    """Time steps packed in addition to those of the visit."""
    shift: int
    """Time steps by which the first packed row precedes START: the padding."""
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

    Parameters
    ----------
    values : (time, B, C)
        As stored.
    visits : int64 (visits, 3)
        Columns SAMPLE, START and STOP.
    packing : Packing
        Layout.
    packed : float32 (visits, tiles, rows, stride)
        Stride is at least ``width``. Rows whose time is outside ``values`` and columns beyond
        ``width`` are not written.
    """
    pieces = -(-values.shape[0] // PIECE)
    _pack_piece.over(pieces, values, visits, packing, packed)


# --- Outer products: the vendor runs its plain Mul for them, on the vector unit ---

PRODUCTS_AT_A_TIME = 1 << 20
"""Elements of an outer product computed at a time; limits the memory for them in fp32."""


def multiply_elements(rows: Stored, columns: Stored, rounding: int, out: Stored) -> None:
    """Compute the outer product out[r, c] = rows[r] * columns[c].

    Parameters
    ----------
    rows, columns, out : (R,), (C,), (R, C)
        As stored: float32, int16 (fp16 bits) or uint16 (bf16 bits).
    rounding : int
        With TO_FP16 and TO_FP16_SATURATED, operands and products are rounded to fp16; then the
        result is rounded once more, to the dtype of ``out``. Other codes multiply in fp32 and round
        once, to the dtype of ``out``: the vector unit has no hf32.
    """
    row_values, column_values = (
        _rounded(widen_array(operand), rounding) for operand in (rows, columns)
    )
    step = max(PRODUCTS_AT_A_TIME // max(column_values.size, 1), 1)
    for first in range(0, row_values.size, step):
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            products = np.multiply.outer(row_values[first : first + step], column_values)
        target = out[first : first + step]
        narrow_array(_rounded(products, rounding), FORMAT_OF_STORAGE[out.dtype], out=target)


def _rounded(values: np.ndarray, rounding: int) -> np.ndarray:
    if rounding not in (TO_FP16, TO_FP16_SATURATED):
        return values
    return widen_array(narrow_array(values, "float16", saturate=rounding == TO_FP16_SATURATED))


ROWS = 256
"""Rows of a group (evidence: model)."""


@kernel
def _add_group(group: int, grad: Stored, groups: Floats) -> None:
    """Add the rows of one group."""
    sums = groups[group]
    clear(sums)
    for number in range(group * ROWS, min((group + 1) * ROWS, len(grad))):
        row = grad[number]
        for column in range(row.size):
            sums[column] = sums[column] + widen(row[column])


def core_sums(grad: Stored, core_rows: int) -> Floats:
    """Return each core's sum (cores, Cout) of ``core_rows`` rows of grad (To, B, Cout)."""
    rows = grad.reshape(-1, grad.shape[2])
    sums = np.empty((-(-len(rows) // core_rows), rows.shape[1]), np.float32)
    for core, total in enumerate(sums):
        rows_of_core = rows[core * core_rows : (core + 1) * core_rows]
        groups = np.empty((-(-len(rows_of_core) // ROWS), rows.shape[1]), np.float32)
        _add_group.over(len(groups), rows_of_core, groups)
        _add_in_order(groups, total)
    return sums


def _add_in_order(parts: Floats, total: Floats) -> None:
    # Few rows are left, so NumPy is fast enough; it adds them in this order.
    total[...] = parts[0]
    with np.errstate(over="ignore", invalid="ignore"):
        for part in parts[1:]:
            np.add(total, part, out=total)


def grad_bias(
    grad: Stored, out: Stored, core_rows: int = 0, core_order: int = SEQUENTIAL, seed: int = 0
) -> None:
    """Sum grad over its first two axes: in fp32, rounded once.

    Parameters
    ----------
    grad, out : (To, B, Cout), (Cout,)
        As stored: float32, int16 (fp16 bits) or uint16 (bf16 bits), both the same. ``grad``, the
        product's argument ``self``, is C-contiguous; no axis is empty.
    core_rows : int
        Rows (time and batch) of each core; 0 if one core adds all.
    core_order, seed : int
        Code and seed of the order in which the sums of the cores arrive.
    """
    sums = core_sums(grad, core_rows or grad.shape[0] * grad.shape[1])
    total = sums[0]
    if len(sums) > 1:
        order = arrivals(np.ones(len(sums), np.int64), core_order, seed, 1)[0]
        total = np.empty(sums.shape[1], np.float32)
        _add_in_order(sums[order], total)
    narrow_array(total, FORMAT_OF_STORAGE[out.dtype], out=out)

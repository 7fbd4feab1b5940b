"""ConvTbcBackward: packed operands and the work queue.

Operands are rounded to the compute dtype while they are packed, so no rounded copy of a tensor is
held.

Source: specification pages ``conv_tbc_backward``, "Execution", and ``numerics``, "Overflow".
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel, thread_scratch, threads_for
from npu_sim.kernels.vectors.lanes import (
    I64,
    Floats,
    Integers,
    Stored,
    always,
    element_address,
    instruction,
)
from npu_sim.kernels.vectors.row_sums import clear
from npu_sim.numbers.scalars import fp16_to_fp32, fp32_to_fp16, fp32_to_hf32, widen

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


class Tiles(NamedTuple):
    """An operand, and where it is packed as tiles of ``width`` channels.

    A visit (see `weight`) is one sample on the time steps START..STOP. Its packed row r holds time
    ``START - shift + r``; the last one is before ``STOP - shift + halo``.
    """

    values: Stored
    """(time, B, C), as stored."""
    packed: Floats
    """(visits, tiles, rows, width), to be written. Rows whose time is outside ``values`` are
    not."""
    halo: int
    """Time steps packed in addition to those of the visit."""
    shift: int
    """Time steps by which the first packed row precedes START: the padding."""


@device_function
def _pack(thread: int, tiles: Tiles, visits: Integers, rounding: int, rows: Floats) -> None:
    """Pack every len(rows)-th piece of PIECE rows of time, of all visits; ``rows`` is scratch."""
    values, packed = tiles.values, tiles.packed
    width, channels, row = packed.shape[3], values.shape[2], rows[thread]
    clear(row)
    for begin in range(thread * PIECE, len(values), len(rows) * PIECE):
        for number in range(len(visits)):
            first = visits[number, START] - tiles.shift
            visit_stop = visits[number, STOP] - tiles.shift + tiles.halo
            for time in range(max(first, begin), min(visit_stop, begin + PIECE, len(values))):
                round_row(values[time, visits[number, SAMPLE]], row[:channels], rounding)
                for tile in range(packed.shape[1]):
                    for column in range(width):
                        value = row[tile * width + column]
                        packed[number, tile, time - first, column] = value


@kernel
def _pack_both(
    thread: int, first: Tiles, second: Tiles, visits: Integers, rounding: int, rows: Floats
) -> None:
    """Pack a thread's pieces of two operands."""
    _pack(thread, first, visits, rounding, rows)
    _pack(thread, second, visits, rounding, rows)


def pack_tiles(first: Tiles, second: Tiles, visits: Integers, rounding: int) -> None:
    """Round the rows of each visit's sample, of two operands, and arrange them in tiles.

    Parameters
    ----------
    first, second : Tiles
        The operands.
    visits : int64 (visits, 3)
        Columns SAMPLE, START and STOP.
    rounding : int
        EXACT, TO_HF32, TO_FP16 or TO_FP16_SATURATED.
    """
    threads = threads_for(first.values.nbytes + second.values.nbytes)
    channels = [tiles.packed.shape[1] * tiles.packed.shape[3] for tiles in (first, second)]
    rows = thread_scratch(threads, max(channels))
    _pack_both.over(threads, first, second, visits, rounding, rows)


# --- Work queue ---


def _take(context: Any, builder: ir.IRBuilder, kinds: Any, queue: Any) -> ir.Value:
    first = element_address(context, builder, kinds[0], 1, queue, I64(0))
    return builder.atomic_rmw("add", first, I64(1), "monotonic")


@instruction(always(types.int64), _take)
def take(queue: NDArray[np.int64]) -> int:
    """Return ``queue[0]``, the number of the next block, and increment it atomically."""
    queue[0] += 1
    return int(queue[0]) - 1

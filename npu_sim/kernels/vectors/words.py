"""Copies of 16-bit words from one array to another, without conversion.

Widening and rounding, as in `npu_sim.kernels.vectors.lanes`, would change the bits of nan. Arrays
are uint16, 1-D, C-contiguous and aligned. Indices and counts are in words; only NPU_SIM_CHECK=1
checks them. With NUMBA_DISABLE_JIT=1 the names are the reference implementations below; otherwise
they are intrinsics for kernels.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from npu_sim.kernels.vectors.lane_type import LINE_BYTES, Emitted, element_address, load_vector
from npu_sim.kernels.vectors.lanes import mark_streamed

Words = NDArray[np.uint16]
WORD_BYTES = 2
LINE_WORDS = LINE_BYTES // WORD_BYTES


def copy_words(source: Words, at: int, target: Words, to: int, count: int) -> None:
    """Copy ``count`` words from ``source[at:]`` to ``target[to:]``."""
    target[to : to + count] = source[at : at + count]


def stream_line(source: Words, at: int, target: Words, to: int) -> None:
    """Copy a cache line of words with non-temporal stores.

    ``to`` must start a line (`to_next_line`), and `end_streams` must follow.
    """
    target[to : to + LINE_WORDS] = source[at : at + LINE_WORDS]


def _are_words(*arrays: Any) -> bool:
    return all(
        isinstance(kind, types.Array)
        and (kind.dtype, kind.ndim, kind.layout, kind.aligned) == (types.uint16, 1, "C", True)
        for kind in arrays
    )


@intrinsic
def _copy_words(
    typing_context: Any, source: Any, at: Any, target: Any, to: Any, count: Any
) -> Emitted | None:
    if not _are_words(source, target):
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        origin = element_address(context, builder, source, arguments[4], *arguments[:2])
        goal = element_address(context, builder, target, arguments[4], *arguments[2:4])
        cgutils.raw_memcpy(builder, goal, origin, arguments[4], WORD_BYTES)
        return context.get_dummy_value()

    return types.void(source, types.intp, target, types.intp, types.intp), generate


@intrinsic
def _stream_line(typing_context: Any, source: Any, at: Any, target: Any, to: Any) -> Emitted | None:
    if not _are_words(source, target):
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        origin = element_address(context, builder, source, LINE_WORDS, *arguments[:2])
        line = load_vector(builder, origin, ir.IntType(8 * WORD_BYTES), LINE_WORDS, WORD_BYTES)
        goal = element_address(context, builder, target, LINE_WORDS, *arguments[2:])
        mark_streamed(builder, builder.store(line, builder.bitcast(goal, line.type.as_pointer())))
        return context.get_dummy_value()

    return types.void(source, types.intp, target, types.intp), generate


if not config.DISABLE_JIT:
    copy_words, stream_line = _copy_words, _stream_line

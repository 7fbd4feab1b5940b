"""ConvTbcBackward: pieces of work that threads take one after the other.

Which thread takes a piece changes no bit; a thread that the system holds up takes fewer.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from npu_sim.kernels.conv_tbc_backward.folds import Integers
from npu_sim.kernels.vectors.lane_type import I64, element_address


def take(queue: Integers) -> int:
    """Return the number of the next piece and advance ``queue[0]``; safe from any thread."""
    queue[0] += 1
    return int(queue[0]) - 1


@intrinsic
def _take(typing_context: Any, queue: Any) -> tuple[Any, Callable[..., Any]]:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        first = element_address(context, builder, queue, 1, arguments[0], I64(0))
        return builder.atomic_rmw("add", first, I64(1), "monotonic")

    return types.int64(queue), generate


@overload(take)
def _choose_take(queue):
    return lambda queue: _take(queue)

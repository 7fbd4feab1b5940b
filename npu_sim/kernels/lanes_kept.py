"""Lanes beyond `npu_sim.kernels.lanes`: products, and lanes that wait in memory between two passes over their rows.

Kept lanes are fp32 values in no particular order (lanes of bf16 elements are not in the order of the elements), so only `recall` with
the same ``like`` can make sense of them. ``kept`` is a float32 array, 1-D, C-contiguous and aligned.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from npu_sim.kernels.lanes import LINE_BYTES, Emitted, LanesType, Stored, Values, _address, _lanes_of, _load_vector

Kept = NDArray[np.float32]


def multiply(a: Values, b: Values) -> Values:
    """Return the products, lane by lane."""
    return a * b


def keep(kept: Kept, index: int, lanes: Values) -> None:
    """Write lanes to ``kept`` from ``index`` on."""
    kept[index : index + lanes.size] = lanes


def recall(kept: Kept, index: int, like: Stored) -> Values:
    """Return lanes of ``like`` that were kept from ``index`` on."""
    return kept[index : index + LINE_BYTES // like.itemsize].copy()


@intrinsic
def _multiply(typing_context: Any, a: Any, b: Any) -> Emitted | None:
    if not isinstance(a, LanesType) or a != b:
        return None
    return a(a, b), lambda context, builder, signature, arguments: builder.fmul(*arguments)


@intrinsic
def _keep(typing_context: Any, kept: Any, index: Any, lanes: Any) -> Emitted | None:
    if _lanes_of(kept) is None or kept.dtype != types.float32 or not isinstance(lanes, LanesType):
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        address = _address(context, builder, kept, *arguments[:2])
        builder.store(arguments[2], builder.bitcast(address, arguments[2].type.as_pointer())).align = 4
        return context.get_dummy_value()

    return types.void(kept, types.intp, lanes), generate


@intrinsic
def _recall(typing_context: Any, kept: Any, index: Any, like: Any) -> Emitted | None:
    lanes = _lanes_of(like)
    if _lanes_of(kept) is None or kept.dtype != types.float32 or lanes is None:
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        address = _address(context, builder, kept, *arguments[:2])
        return _load_vector(builder, address, ir.FloatType(), lanes.count, 4)

    return lanes(kept, types.intp, like), generate


if not config.DISABLE_JIT:
    multiply, keep, recall = _multiply, _keep, _recall  # see `npu_sim.kernels.lanes`

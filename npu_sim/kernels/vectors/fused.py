"""Fused multiply-add for kernels that request it; nothing else is ever fused.

The bits are the same on every processor: one without the instruction calls ``fmaf`` in C.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.ir import FunctionType as Signature
from numba import config, types
from numba.extending import intrinsic

from npu_sim.kernels.vectors.lane_type import Emitted, as_lanes, common_lanes


def fused_multiply_add(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c of float32 numbers or arrays with one rounding.

    The product of two fp32 numbers is exact in fp64. Its sum with c is rounded to odd there (Boldo
    and Melquiond, "Emulation of FMA and correctly rounded sums", 2008), so that the second
    rounding, to fp32, gives the correctly rounded result.
    """
    with np.errstate(all="ignore"):
        product = np.multiply(a, b, dtype=np.float64)
        addend = np.broadcast_to(np.asarray(c, np.float64), product.shape)
        total = product + addend
        virtual = total - product
        error = (product - (total - virtual)) + (addend - virtual)
        even = (total.view(np.int64) & 1) == 0
        towards = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
        odd = np.where(np.isfinite(total) & (error != 0) & even, towards, total)
        return odd.astype(np.float32)[()]


@intrinsic
def _multiply_add(typing_context: Any, a: Any, b: Any, c: Any) -> Emitted | None:
    result = types.float32 if a == b == c == types.float32 else common_lanes((a, b, c))
    if result is None:
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        values, name = arguments, "llvm.fma.f32"
        if result != types.float32:
            values = as_lanes(builder, result, signature.args, arguments)
            name = f"llvm.fma.v{result.count}f32"
        kind = values[0].type
        function = builder.module.globals.get(name) or ir.Function(
            builder.module, Signature(kind, [kind] * 3), name
        )
        return builder.call(function, values)

    return result(a, b, c), generate


multiply_add = fused_multiply_add if config.DISABLE_JIT else _multiply_add
"""Fused multiply-add in kernels, of fp32 numbers and lanes."""

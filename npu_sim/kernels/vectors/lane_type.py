"""Numba type of vectors of fp32 lanes, its arithmetic, and helpers that emit its instructions.

``+``, ``-`` and ``*`` work on vectors of one length, and on a vector and a fp32 number: one fp32
operation for every lane. `multiply_add` is the fused multiply-add for kernels that request it;
nothing else is ever fused. Its bits are the same on every processor: one without the instruction
calls ``fmaf`` in C.
"""

import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from inspect import Parameter, Signature, signature
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.ir import FunctionType
from numba import config, types
from numba.core.datamodel import models
from numba.extending import intrinsic, lower_builtin, register_model, type_callable
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import LINE_BYTES as LINE_BYTES
from npu_sim.kernels.engine.numba_inside import CHECKED

Stored = NDArray[Any]
"""Stored elements: fp32 as float32, fp16 as int16, bf16 as uint16."""
Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Lanes = Any
"""A vector of fp32 values in a kernel."""
ZERO, ONE = np.float32(0), np.float32(1)
NOTHING_YET = np.float32(-0.0)
"""Neutral element of addition: -0 + x is x for every x, with its sign."""
FLOAT, DOUBLE, I32, I64 = ir.FloatType(), ir.DoubleType(), ir.IntType(32), ir.IntType(64)


class LanesType(types.Type):  # type: ignore[misc]
    """Numba's type of a vector of fp32 values.

    Attributes
    ----------
    count
        Number of lanes: 16 for fp32 elements, 32 for 16-bit ones.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(name=f"Lanes({count})")


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, numba_type: LanesType) -> None:
        super().__init__(manager, numba_type, ir.VectorType(FLOAT, numba_type.count))


def instruction(
    result_of: Callable[..., Any], emit: Callable[..., Any]
) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator of a reference implementation, which kernels see as an intrinsic.

    With NUMBA_DISABLE_JIT=1 the reference stays. ``emit(context, builder, kinds, *values)`` emits
    the instructions, where ``kinds`` are the Numba types of the arguments. ``result_of(*kinds)``
    returns the type of the result, or None when the arguments do not fit. Integers arrive with 64
    bits, numbers as fp32 unless the result is fp64. Numba would compile overloads as separate
    functions, which takes longer than the kernel.
    """

    def define(reference: Callable[..., Any]) -> Any:
        if config.DISABLE_JIT:
            return reference

        def choose(typing_context: Any, *kinds: Any) -> tuple[Any, Callable[..., Any]] | None:
            result = result_of(*kinds)
            if result is None:
                return None

            def generate(context: Any, builder: ir.IRBuilder, _: Any, values: Any) -> Any:
                value = emit(context, builder, kinds, *values)
                return context.get_dummy_value() if result == types.void else value

            wide = result == types.float64
            return result(*(kinds if wide else map(_argument, kinds))), generate

        choose.__name__ = reference.__name__
        first = Parameter("typing_context", Parameter.POSITIONAL_OR_KEYWORD)
        names = signature(reference).parameters.values()
        vars(choose)["__signature__"] = Signature([first, *names])
        return intrinsic(choose)

    return define


def _argument(kind: Any) -> Any:
    """Return the type in which an argument arrives."""
    if isinstance(kind, types.Integer):
        return types.intp
    return types.float32 if isinstance(kind, types.Float) else kind


def lanes_of(array: Any) -> LanesType | None:
    """Return the type of the lanes of an array type; None when it is not a storage array."""
    is_flat = isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C"
    if not is_flat or not array.aligned:
        return None
    if array.dtype not in (types.float32, types.int16, types.uint16):
        return None
    return LanesType(line_elements(array))


def line_elements(array: Any) -> int:
    """Return the number of elements of an array type in a cache line."""
    return int(LINE_BYTES * 8 // array.dtype.bitwidth)


def loaded_lanes(array: Any, *_others: Any) -> LanesType | None:
    """Return the result of an instruction that loads lanes of an array."""
    return lanes_of(array)


def stored_lanes(array: Any, _index: Any, lanes: Any, *_others: Any) -> Any:
    """Return the result of an instruction that stores lanes of an array: nothing."""
    return types.void if lanes is not None and lanes == lanes_of(array) else None


def always(result: Any) -> Callable[..., Any]:
    """Return the function for the result of an instruction that takes any arguments."""

    def result_of(*_kinds: Any) -> Any:
        return result

    return result_of


def constant_vector(element: ir.Type, count: int, value: int) -> ir.Constant:
    """Return the vector with one value in all lanes."""
    return ir.Constant(ir.VectorType(element, count), [value] * count)


def undefined_vector(element: ir.Type, count: int) -> ir.Constant:
    """Return a vector of undefined lanes."""
    return ir.Constant(ir.VectorType(element, count), ir.Undefined)


def counting_vector(first: int, count: int) -> ir.Constant:
    """Return the vector first, first + 1, ..."""
    return ir.Constant(ir.VectorType(I32, count), list(range(first, first + count)))


def element_address(
    context: Any,
    builder: ir.IRBuilder,
    array_type: Any,
    count: int | ir.Value,
    array: ir.Value,
    index: ir.Value,
) -> ir.Value:
    """Emit the address of an element of a 1-D, C-contiguous array.

    ``count`` elements are read or written there; see :func:`require_elements`.
    """
    require_elements(context, builder, array_type, count, array, index)
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def require_elements(
    context: Any,
    builder: ir.IRBuilder,
    array_type: Any,
    count: int | ir.Value,
    array: ir.Value,
    first: ir.Value,
) -> None:
    """In checked kernels, emit an IndexError unless ``count`` elements from ``first`` on exist."""
    if not CHECKED:
        return
    count = I64(count) if isinstance(count, int) else count
    size = context.make_array(array_type)(context, builder, array).nitems
    is_negative = builder.icmp_signed("<", builder.or_(first, count), I64(0))
    is_outside = builder.or_(is_negative, builder.icmp_signed(">", builder.add(first, count), size))
    with builder.if_then(
        builder.and_(builder.icmp_signed("!=", count, I64(0)), is_outside), likely=False
    ):
        context.call_conv.return_user_exc(builder, IndexError, ("a vector is out of bounds",))


def load_vector(
    builder: ir.IRBuilder, address: ir.Value, element: ir.Type, count: int, alignment: int
) -> ir.Value:
    """Emit the load of a vector; ``alignment`` in bytes."""
    vector = builder.load(builder.bitcast(address, ir.VectorType(element, count).as_pointer()))
    vector.align = alignment
    return vector


def splat_numbers(builder: ir.IRBuilder, value: ir.Value, count: int) -> ir.Value:
    """Emit a vector with one number in all lanes."""
    unused = undefined_vector(value.type, count)
    return builder.shuffle_vector(
        builder.insert_element(unused, value, I32(0)), unused, constant_vector(I32, count, 0)
    )


def common_lanes(kinds: tuple[Any, ...]) -> LanesType | None:
    """Return the lanes type of operands of one type of lanes and fp32 numbers; None for others."""
    blocks = {kind for kind in kinds if isinstance(kind, LanesType)}
    others = {kind for kind in kinds if kind not in blocks}
    return blocks.pop() if len(blocks) == 1 and others <= {types.float32} else None


def as_lanes(builder: ir.IRBuilder, lanes: LanesType, kinds: Any, values: Any) -> list[ir.Value]:
    """Emit the operands of one operation as vectors."""
    pairs = zip(kinds, values, strict=True)
    return [
        value if kind == lanes else splat_numbers(builder, value, lanes.count)
        for kind, value in pairs
    ]


def _define_operator(function: Callable[..., Any], instruction: str) -> None:
    """Define an operator on two vectors of lanes, and on one and a fp32 number."""

    @type_callable(function)
    def choose(context):
        return lambda a, b: common_lanes((a, b))

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        return getattr(builder, instruction)(
            *as_lanes(builder, signature.return_type, signature.args, arguments)
        )

    for pair in ((LanesType, LanesType), (LanesType, types.Float), (types.Float, LanesType)):
        lower_builtin(function, *pair)(generate)


for _function, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
):
    _define_operator(_function, _instruction)


def emit_fma(builder: ir.IRBuilder, values: Sequence[ir.Value]) -> ir.Value:
    """Emit a fused multiply-add of three numbers or vectors."""
    kind = values[0].type
    width = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
    name = f"llvm.fma.{width}f{64 if kind == DOUBLE else 32}"
    function = builder.module.globals.get(name) or ir.Function(
        builder.module, FunctionType(kind, [kind] * 3), name
    )
    return builder.call(function, values)


def fused_multiply_add(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c of float32 numbers or arrays, or of float64 numbers, with one rounding.

    The product of two fp32 numbers is exact in fp64. Its sum with c is rounded to odd there (Boldo
    and Melquiond, "Emulation of FMA and correctly rounded sums", 2008), so that the second
    rounding, to fp32, gives the correctly rounded result.
    """
    if isinstance(a, float):  # also a NumPy float64
        exact = Fraction(a) * Fraction(b) + Fraction(c) if np.isfinite([a, b, c]).all() else None
        return np.float64(a * b + c if exact is None else float(exact))
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


def _sum_type(a: Any, b: Any, c: Any) -> Any:
    is_number = a == b == c and a in (types.float32, types.float64)
    return a if is_number else common_lanes((a, b, c))


def _multiply_add(context: Any, builder: ir.IRBuilder, kinds: Any, *values: ir.Value) -> ir.Value:
    result = _sum_type(*kinds)
    is_number = result in (types.float32, types.float64)
    return emit_fma(builder, values if is_number else as_lanes(builder, result, kinds, values))


multiply_add = instruction(_sum_type, _multiply_add)(fused_multiply_add)
"""Fused multiply-add in kernels, of fp32 numbers and lanes, and of fp64 numbers."""

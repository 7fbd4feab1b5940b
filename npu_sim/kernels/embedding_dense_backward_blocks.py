"""EmbeddingDenseBackward: blocks of columns of one row, and the prefetch of rows to come."""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from npu_sim.dtypes import narrow
from npu_sim.kernels._compile import device_function

Sums = NDArray[np.float32]
Stored = NDArray[Any]
"""fp32 as float32, fp16 as int16, bf16 as uint16."""

LOOKAHEAD_BYTES = 1024
"""How much of a row is asked for ahead: the processor's own prefetcher follows within a longer row."""
CACHE_LINE_BYTES = 64


def sums_of(out_block: Stored, scratch: Sums) -> Sums:
    """Return where to sum a block of an output row: in the output itself when that is fp32, else in the scratch."""
    return out_block if out_block.dtype == np.float32 else scratch[: out_block.size]


@overload(sums_of)
def _choose_sums_of(out_block, scratch):  # type: ignore[no-untyped-def]
    if out_block.dtype == types.float32:
        return lambda out_block, scratch: out_block
    return lambda out_block, scratch: scratch[: out_block.size]


@device_function
def clear(sums: Sums) -> None:
    """Set a block to +0."""
    for column in range(sums.size):
        sums[column] = np.float32(0)


@device_function
def add_sums(sums: Sums, more: Sums) -> None:
    """Add one block of sums to another."""
    for column in range(sums.size):
        sums[column] = sums[column] + more[column]


@device_function
def finish(out_block: Stored, sums: Sums, factor: np.float32) -> None:
    """Multiply by the factor, round once to the storage type of the output, and store."""
    for column in range(out_block.size):
        out_block[column] = narrow(sums[column] * factor, out_block)


def prefetch(array: Stored, element: int, offset: int) -> None:
    """Ask for the cache line ``offset`` bytes behind an element of the flat array; changes nothing.

    Does nothing when kernels are not compiled.
    """


@intrinsic
def _prefetch_bytes(typing_context: Any, array: Any, element: Any, offset: Any) -> tuple[Any, Callable[..., Any]]:
    """Emit LLVM's prefetch of ``offset`` bytes behind ``array.data[element]``, for reading, into all cache levels."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte_pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(data, [arguments[1]]), byte_pointer)
        address = builder.gep(address, [arguments[2]])
        function_type = ir.FunctionType(ir.VoidType(), [byte_pointer, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte_pointer], function_type)
        read, keep_in_all_levels, data_cache = number(0), number(3), number(1)
        builder.call(function, [address, read, keep_in_all_levels, data_cache])
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp), generate


@overload(prefetch)
def _choose_prefetch(array, element, offset):  # type: ignore[no-untyped-def]
    return lambda array, element, offset: _prefetch_bytes(array, element, offset)


@device_function
def look_ahead(grad: Stored, row: int, first_column: int, columns: int) -> None:
    """Prefetch the start of a block of a row."""
    element = np.int64(row) * grad.shape[1] + first_column
    for offset in range(0, min(columns * grad.itemsize, LOOKAHEAD_BYTES), CACHE_LINE_BYTES):
        prefetch(grad, element, offset)

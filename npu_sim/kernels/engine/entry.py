"""How a kernel's arguments reach compiled code: as 64-bit words in memory, the same way for every kernel.

One parallel loop (`npu_sim.kernels.engine.compile`) calls every kernel through its address, so it must not know what a kernel takes. The
arguments are laid out as words, and each kernel is compiled with a few instructions in front that turn the words back into arrays
and numbers.

An array is the address of its first element, its shape and its strides in bytes; a tuple its elements one after the other; a number one
word, fp32 and fp64 as their bit patterns. Whoever lays out the words keeps the arrays alive.
"""

import struct
from array import array
from collections.abc import Callable, Iterator
from ctypes import addressof, c_char
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import typeof, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import from_dtype

from npu_sim.kernels.engine.cache import KernelCache
from npu_sim.kernels.engine.device import OPTIONS, KernelCompiler
from npu_sim.kernels.engine.numba_inside import CFunc, populate_array

WORD = ir.IntType(64)


def type_of(value: Any) -> Any:
    """Return the Numba type of an argument: a number, an array, or a tuple of such.

    Arrays count as writable even when they are not: kernels would be compiled once more for read-only inputs.
    """
    if isinstance(value, np.ndarray):
        return _array_type(value.dtype, value.ndim, value.flags.c_contiguous, value.flags.aligned)
    if isinstance(value, tuple):
        elements = [type_of(element) for element in value]
        return types.NamedTuple(elements, type(value)) if hasattr(value, "_fields") else types.Tuple(elements)
    return typeof(value)


@lru_cache(maxsize=256)
def _array_type(dtype: np.dtype[Any], dimensions: int, is_contiguous: bool, is_aligned: bool) -> types.Array:
    return types.Array(from_dtype(dtype), dimensions, "C" if is_contiguous else "A", aligned=is_aligned)


class Layout:
    """Some arguments, laid out.

    Attributes
    ----------
    words
        What compiled code reads.
    kinds
        What decides their Numba types, cheaper to look up than these: dtype, axes and memory of an array, the type of anything else.
    bytes
        Size of the arrays.
    """

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.words = array("q")
        self.kinds: list[Any] = []
        self.bytes = 0
        self._add(values)

    def _add(self, values: tuple[Any, ...]) -> None:
        words, kinds = self.words, self.kinds
        for value in values:
            kind = type(value)
            if isinstance(value, np.ndarray):
                flags = value.flags
                kinds.append((value.dtype, value.ndim, flags.c_contiguous, flags.aligned))
                words.append(_address(value, flags))
                words.extend(value.shape)
                words.extend(value.strides)
                self.bytes += value.nbytes
            elif isinstance(value, tuple):
                kinds.append((kind, len(value)))
                self._add(value)
            else:
                kinds.append(kind)
                if kind is np.float32:
                    words.append(int(value.view(np.int32)))
                elif isinstance(value, float):
                    words.append(_INTEGER.unpack(_FLOAT.pack(value))[0])
                else:
                    words.append(int(value))


_FLOAT, _INTEGER = struct.Struct("d"), struct.Struct("q")


def _address(values: np.ndarray[Any, Any], flags: Any) -> int:
    """Return where an array begins, on the quickest way that it allows."""
    if flags.writeable and flags.c_contiguous and values.size:
        return addressof(c_char.from_buffer(values))
    address: int = values.__array_interface__["data"][0]
    return address


def compile_entry(function: Callable[..., None], worker: Any, argument_types: tuple[Any, ...]) -> Any:
    """Compile a kernel for some argument types, or load it from the disk.

    Parameters
    ----------
    function
        The kernel, ``function(share, *arguments)``.
    worker
        The same as a device function.
    argument_types
        From :func:`type_of`.

    Returns
    -------
    CFunc
        Takes the address of the words and the share; has the ``address`` of its code.
    """
    read_words = _reader(types.Tuple(argument_types))

    def entry(words, share):  # type: ignore[no-untyped-def]
        worker(share, *read_words(words))

    compiled: Any = CFunc(entry, ((types.voidptr, types.intp), types.void), locals={}, options=OPTIONS, pipeline_class=KernelCompiler)
    compiled._cache = KernelCache(function, argument_types)
    compiled.compile()
    return compiled


def _reader(result: Any) -> Any:
    """Make the function that turns words into a tuple of arguments."""

    @intrinsic
    def read_words(typing_context: Any, words: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
            first = builder.bitcast(arguments[0], WORD.as_pointer())
            addresses = (builder.gep(first, [WORD(number)]) for number in range(1 << 16))
            return _read(context, builder, result, addresses)

        return result(words), generate

    return read_words


def _read(context: Any, builder: ir.IRBuilder, kind: Any, addresses: Iterator[ir.Value]) -> ir.Value:
    """Emit the instructions that read one argument of a type from the next words."""
    if isinstance(kind, types.BaseTuple):
        return context.make_tuple(builder, kind, [_read(context, builder, element, addresses) for element in kind])
    word = builder.load(next(addresses))
    if isinstance(kind, types.Array):
        return _read_array(context, builder, kind, word, [builder.load(next(addresses)) for _ in range(2 * kind.ndim)])
    if isinstance(kind, types.Float):
        bits = builder.trunc(word, ir.IntType(kind.bitwidth)) if kind.bitwidth < WORD.width else word
        return builder.bitcast(bits, context.get_value_type(kind))
    value_type = context.get_value_type(kind)
    return builder.trunc(word, value_type) if value_type.width < WORD.width else word


def _read_array(context: Any, builder: ir.IRBuilder, kind: Any, data: ir.Value, sizes: list[ir.Value]) -> ir.Value:
    array = context.make_array(kind)(context, builder)
    item_bytes = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    shape, strides = (cgutils.pack_array(builder, part, ty=WORD) for part in (sizes[: kind.ndim], sizes[kind.ndim :]))
    populate_array(array, builder.inttoptr(data, array.data.type), shape, strides, item_bytes, meminfo=None)
    return array._getvalue()

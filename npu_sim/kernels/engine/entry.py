"""How a kernel's arguments reach compiled code: as 64-bit words in memory, the same way for every kernel.

One parallel loop (`npu_sim.kernels.engine.compile`) calls every kernel through its address, so it must not know what a kernel takes. The
arguments are laid out as words, and each kernel is compiled with a few instructions in front that turn the words back into arrays
and numbers.

An array is the address of NumPy's own description of it (``PyArrayObject``, part of NumPy's binary interface), from which compiled code
reads where it lies, its shape and its strides: asking for them in Python takes longer than many a kernel. A tuple is its elements one
after the other; a number is one word, fp32 and fp64 as their bit patterns. Whoever lays out the words keeps the arrays alive.
"""

import struct
from array import array
from collections.abc import Callable, Iterator
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
from npu_sim.numbers.arrays import DESCRIPTION_OFFSET

WORD = ir.IntType(64)


def type_of(value: Any) -> Any:
    """Return the Numba type of an argument: a number, an array, or a tuple of such.

    Arrays count as writable even when they are not: kernels would be compiled once more for read-only inputs.
    """
    if isinstance(value, np.ndarray):
        return _array_type(value.dtype, value.ndim, value.flags.c_contiguous, value.flags.aligned)
    if isinstance(value, tuple):
        elements = [type_of(element) for element in value]
        return (
            types.NamedTuple(elements, type(value))
            if hasattr(value, "_fields")
            else types.Tuple(elements)
        )
    return typeof(value)


@lru_cache(maxsize=256)
def _array_type(
    dtype: np.dtype[Any], dimensions: int, is_contiguous: bool, is_aligned: bool
) -> types.Array:
    return types.Array(
        from_dtype(dtype), dimensions, "C" if is_contiguous else "A", aligned=is_aligned
    )


class Layout:
    """Some arguments, laid out.

    Attributes
    ----------
    words
        What compiled code reads.
    kinds
        What decides their Numba types, cheaper to look up than these: dtype, axes and memory of an array, the type of anything else.
    """

    def __init__(self, values: tuple[Any, ...]) -> None:
        words: list[int] = []
        kinds: list[Any] = []
        _lay_out(values, words.append, kinds.append)
        self.words, self.kinds = array("q", words), tuple(kinds)


def _lay_out(
    values: tuple[Any, ...], add_word: Callable[[int], None], add_kind: Callable[[Any], None]
) -> None:
    for value in values:
        kind = type(value)
        if kind is np.ndarray or isinstance(value, np.ndarray):
            add_word(id(value))
            add_kind(value.dtype)
            add_kind(value.ndim << 16 | value.flags.num & MEMORY_FLAGS)
            continue
        add_kind(kind)
        if kind is int or kind is bool:
            add_word(value)
        elif kind is np.float32:
            add_word(_INT32.unpack(value.tobytes())[0])
        elif isinstance(value, tuple):
            add_kind(len(value))
            _lay_out(value, add_word, add_kind)
        elif isinstance(value, float):
            add_word(_INT64.unpack(_FLOAT.pack(value))[0])
        else:
            add_word(int(value))


def bytes_of(values: tuple[Any, ...]) -> int:
    """Return the size of the arrays among some arguments."""
    return sum(
        value.nbytes
        if isinstance(value, np.ndarray)
        else bytes_of(value)
        if isinstance(value, tuple)
        else 0
        for value in values
    )


_FLOAT, _INT64, _INT32 = struct.Struct("d"), struct.Struct("q"), struct.Struct("i")
MEMORY_FLAGS = 0x0001 | 0x0100
"""NPY_ARRAY_C_CONTIGUOUS and NPY_ARRAY_ALIGNED."""
_DATA, _SHAPE, _STRIDES = (DESCRIPTION_OFFSET // 8 + place for place in (0, 2, 3))
"""Places of three words of a ``PyArrayObject``; the number of axes is between the first two."""


def compile_entry(
    function: Callable[..., None], worker: Any, argument_types: tuple[Any, ...]
) -> Any:
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

    def entry(words, share):
        worker(share, *read_words(words))

    compiled: Any = CFunc(
        entry,
        ((types.voidptr, types.intp), types.void),
        locals={},
        options=OPTIONS,
        pipeline_class=KernelCompiler,
    )
    compiled._cache = KernelCache(function, argument_types)
    compiled.compile()
    return compiled


def _reader(result: Any) -> Any:
    """Make the function that turns words into a tuple of arguments."""

    @intrinsic
    def read_words(typing_context: Any, words: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(
            context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any
        ) -> ir.Value:
            first = builder.bitcast(arguments[0], WORD.as_pointer())
            addresses = (builder.gep(first, [WORD(number)]) for number in range(1 << 16))
            return _read(context, builder, result, addresses)

        return result(words), generate

    return read_words


def _read(
    context: Any, builder: ir.IRBuilder, kind: Any, addresses: Iterator[ir.Value]
) -> ir.Value:
    """Emit the instructions that read one argument of a type from the next words."""
    if isinstance(kind, types.BaseTuple):
        return context.make_tuple(
            builder, kind, [_read(context, builder, element, addresses) for element in kind]
        )
    word = builder.load(next(addresses))
    if isinstance(kind, types.Array):
        return _read_array(context, builder, kind, word)
    if isinstance(kind, types.Float):
        bits = (
            builder.trunc(word, ir.IntType(kind.bitwidth)) if kind.bitwidth < WORD.width else word
        )
        return builder.bitcast(bits, context.get_value_type(kind))
    value_type = context.get_value_type(kind)
    return builder.trunc(word, value_type) if value_type.width < WORD.width else word


def _read_array(context: Any, builder: ir.IRBuilder, kind: Any, described: ir.Value) -> ir.Value:
    def words_at(place: int) -> ir.Value:
        return builder.load(
            builder.gep(builder.inttoptr(described, WORD.as_pointer().as_pointer()), [WORD(place)])
        )

    array = context.make_array(kind)(context, builder)
    item_bytes = context.get_constant(
        types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype))
    )
    data = builder.bitcast(words_at(_DATA), array.data.type)
    sizes = [
        [builder.load(builder.gep(words_at(place), [WORD(axis)])) for axis in range(kind.ndim)]
        for place in (_SHAPE, _STRIDES)
    ]
    shape, strides = (cgutils.pack_array(builder, part, ty=WORD) for part in sizes)
    populate_array(array, data, shape, strides, item_bytes, meminfo=None)
    return array._getvalue()

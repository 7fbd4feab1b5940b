"""Machine code of kernels: one optimisation of each kernel as a whole, and its entry.

Numba optimises every function and generates machine code for it, and does both again in every
caller. A function that only kernels call (`device_function`) needs neither before it is part of a
kernel.

One parallel loop runs every kernel through its address (`npu_sim.kernels.engine.compile`), so the
loop cannot take typed arguments. The arguments become 64-bit words in memory, and the entry of each
kernel turns the words back into arrays and numbers. An array is its data address, shape and
strides. A tuple is its elements in order. A number is one word; floating-point numbers are their
bit patterns. The caller keeps the arrays alive.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from sys import byteorder
from typing import Any

import numpy as np
from llvmlite import binding, ir
from llvmlite.ir import FunctionType as Signature
from numba import config, njit, typeof, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import from_dtype

from npu_sim.kernels.engine.cache import KernelCache
from npu_sim.kernels.engine.numba_inside import (
    UNCOUNTED,
    CFunc,
    Compiler,
    JITCodeLibrary,
    populate_array,
)
from npu_sim.numbers.arrays import address_of

COMPILE_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", **UNCOUNTED}
"""Options of kernels and of the functions they call. Allocating memory is a compile error:
kernels work in the arrays they are given, so their peak memory is known."""

DEVICE_OPTIONS = {
    "forceinline": True,
    "no_rewrites": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
"""Options of functions that kernels call: inlined, without Numba's rewriting of array expressions,
and without an entry for Python or C."""


class _KernelLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Code of a kernel and of all functions it calls."""

    def _optimize_functions(self, ll_module: binding.ModuleRef) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        """Run LLVM's full pipeline once.

        Numba runs a shorter one before it to remove reference counts, which kernels do not have.
        """
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)


class KernelCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler, for kernels."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.library = _KernelLibrary(self.state.targetctx.codegen(), "kernel")
        self.state.library.enable_object_caching()


class _DeviceLibrary(_KernelLibrary):
    """Code of one function and of its callees, to be linked into a kernel."""

    def _optimize_final_module(self) -> None:
        """Do nothing: kernels are optimised as a whole."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: there is no machine code."""
        return 0

    @property
    def codegen(self) -> "_DeviceLibrary":
        """Numba calls its :meth:`set_env`: there is no machine code with an environment."""
        return self

    def set_env(self, env_name: str, env: Any) -> None:
        """Do nothing."""


class DeviceCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler, for functions that are inlined into compiled loops."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.library = _DeviceLibrary(self.state.targetctx.codegen(), "device function")


def device_function(function: Callable[..., Any], **options: bool) -> Any:
    """Compile a helper that kernels call; ``options`` override :data:`DEVICE_OPTIONS`.

    Calls from Python, as in tests, run a second compiled version.
    """
    compiled = njit(**COMPILE_OPTIONS, **DEVICE_OPTIONS | options, pipeline_class=DeviceCompiler)(
        function
    )
    if not config.DISABLE_JIT:
        compiled._insert = _not_for_python
        compiled._compile_for_args = lambda *_arguments, **_keywords: _for_python(function)
        find = compiled.get_call_template
        compiled.get_call_template = lambda arguments, keywords: find(
            tuple(types.unliteral(kind) for kind in arguments), keywords
        )
    return compiled


def _not_for_python(*_overload: Any) -> None:
    """Keep functions without machine code out of the table of versions that Python may call."""


@cache
def _for_python(function: Callable[..., Any]) -> Any:
    return njit(nogil=True, error_model="numpy")(function)


WORD = ir.IntType(64)


def lay_out(values: tuple[Any, ...]) -> tuple[Any, list[int]]:
    """Return the form of a tuple of arguments, and their 64-bit words.

    Arguments of one form have one Numba type, :func:`type_of`. Forms consist of Python types and
    NumPy dtypes, whose hashes take a tenth of the time of those of Numba types.
    """
    words: list[int] = []
    return _add_words(values, words), words


def _add_words(values: tuple[Any, ...], words: list[int]) -> Any:
    """Append the 64-bit words of a tuple of arguments; return its form."""
    forms: list[Any] = []
    for value in values:
        if isinstance(value, int):  # first, as most values are
            words.append(value)
            forms.append(type(value))
        elif isinstance(value, np.ndarray):
            words += (address_of(value), *value.shape, *value.strides)
            flags = value.flags
            forms.append((value.dtype, value.ndim, flags.c_contiguous, flags.aligned))
        elif isinstance(value, tuple):
            forms.append(_add_words(value, words))
        else:
            scalar = value if isinstance(value, np.generic) else np.float64(value)
            words.append(int.from_bytes(scalar.tobytes(), byteorder, signed=True))
            forms.append(type(value))
    return type(values), tuple(forms)


def type_of(form: Any) -> Any:
    """Return the Numba type of a form of :func:`lay_out`.

    Arrays are writable, read-only ones too: one compiled version serves both.
    """
    if not isinstance(form, tuple):
        return typeof(form(0))
    if isinstance(form[0], np.dtype):
        dtype, dimensions, is_contiguous, is_aligned = form
        layout = "C" if is_contiguous else "A"
        return types.Array(from_dtype(dtype), dimensions, layout, aligned=is_aligned)
    kind, elements = form[0], tuple(map(type_of, form[1]))
    return types.NamedTuple(elements, kind) if hasattr(kind, "_fields") else types.Tuple(elements)


def compile_entry(function: Callable[..., None], worker: Any, argument_types: Any) -> Any:
    """Compile a kernel for some argument types, or load it from the cache on disk.

    Parameters
    ----------
    function
        The kernel, ``function(chunk, *arguments)``.
    worker
        The kernel compiled for inlining, see `npu_sim.kernels.engine.codegen`.
    argument_types
        Numba type of the tuple of arguments, from :func:`type_of`.

    Returns
    -------
    CFunc
        ``entry(words, chunk)`` takes the address of the 64-bit words; ``address`` is its own.
    """
    read_words = _reader(argument_types)

    def entry(words, chunk):
        worker(chunk, *read_words(words))

    signature = (types.voidptr, types.intp), types.void
    compiled: Any = CFunc(
        entry, signature, locals={}, options=COMPILE_OPTIONS, pipeline_class=KernelCompiler
    )
    compiled._cache = KernelCache(function, tuple(argument_types))
    compiled.compile()
    return compiled


@intrinsic
def call_entry(
    typing_context: Any, address: Any, words: Any, chunk: Any
) -> tuple[Any, Callable[..., Any]]:
    """Call the entry of a kernel through its address."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        address, words, chunk = arguments
        pointer = ir.IntType(8).as_pointer()
        entry_type = Signature(ir.VoidType(), [pointer, WORD])
        called = builder.inttoptr(address, entry_type.as_pointer())
        builder.call(called, [builder.inttoptr(words, pointer), chunk])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), generate


def _reader(result: Any) -> Any:
    """Return the intrinsic that turns 64-bit words into a tuple of arguments of type ``result``."""

    @intrinsic
    def read_words(typing_context: Any, words: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(
            context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any
        ) -> ir.Value:
            first = builder.bitcast(arguments[0], WORD.as_pointer())
            places = (builder.gep(first, [WORD(number)]) for number in count())
            return _read(context, builder, result, map(builder.load, places))

        return result(words), generate

    return read_words


def _read(context: Any, builder: ir.IRBuilder, kind: Any, words: Iterator[ir.Value]) -> ir.Value:
    """Emit the instructions that make one argument of the next 64-bit words."""
    if isinstance(kind, types.BaseTuple):
        elements = [_read(context, builder, element, words) for element in kind]
        return context.make_tuple(builder, kind, elements)
    if isinstance(kind, types.Array):
        return _read_array(context, builder, kind, words)
    word, value_type = next(words), context.get_value_type(kind)
    width = kind.bitwidth if isinstance(kind, types.Float) else value_type.width
    bits = builder.trunc(word, ir.IntType(width)) if width < WORD.width else word
    return builder.bitcast(bits, value_type) if isinstance(kind, types.Float) else bits


def _read_array(
    context: Any, builder: ir.IRBuilder, kind: Any, words: Iterator[ir.Value]
) -> ir.Value:
    array = context.make_array(kind)(context, builder)
    data = builder.inttoptr(next(words), array.data.type)
    shape, strides = (
        cgutils.pack_array(builder, [next(words) for _ in range(kind.ndim)], ty=WORD)
        for _ in ("shape", "strides")
    )
    item_bytes = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    item_size = context.get_constant(types.intp, item_bytes)
    populate_array(array, data, shape, strides, item_size, meminfo=None)
    return array._getvalue()

"""Machine code of kernels: one optimisation of each kernel as a whole, its entry, and its file.

Numba optimises every function and generates machine code for it, and does both again in every
caller. A function that only kernels call (`device_function`) needs neither before it is part of a
kernel.

One parallel loop runs every kernel through its address (`npu_sim.kernels.engine.compile`), so the
loop cannot take typed arguments. The arguments become 64-bit words in memory, and the entry of each
kernel turns the words back into arrays and numbers. An array is its data address, shape and
strides. A tuple is its elements in order. A number is one word; floating-point numbers are their
bit patterns. The caller keeps the arrays alive.

Compiled kernels are cached on disk, so that a second process starts at once. Numba's own cache
notices changes of a kernel's file only, not of the functions that the kernel calls, and a damaged
file ends the program with an error. The key of this cache contains the source of the whole package;
of an external kernel also the source of its package and the constants compiled into it
(`npu_sim.kernels.engine.constants`). A compiled kernel is code, so a file is trusted only if no one
but this user and the administrator may write to it. It begins with a checksum over the kernel's
name, signature, source, versions, processor and code. Any other file is a cache miss. A cache that
cannot be written costs a warning.
"""

import hashlib
import os
import pickle
import stat
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from itertools import chain, count
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite import binding, ir
from llvmlite.ir import FunctionType as Signature
from numba import config, njit, typeof, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import from_dtype

from npu_sim.kernels.engine.constants import constants
from npu_sim.kernels.engine.numba_inside import (
    UNCOUNTED,
    CFunc,
    Compiler,
    CompileResult,
    JITCodeLibrary,
    KernelCacheBase,
    dumps,
    populate_array,
)
from npu_sim.language import Text
from npu_sim.numbers.arrays import address_of
from npu_sim.system import cache_folder, is_private, replacing

CACHE_VARIABLE = "NPU_SIM_CACHE_DIR"
"""Environment variable that names the cache folder; empty switches the cache off."""
DIGEST_BYTES = 32
PRIVATE = 0o700
COMPILED_PACKAGES = ("numbers", "kernels", "tiling", "sweeps")
"""Subpackages with functions that become part of compiled code, besides the root modules."""


class KernelCacheWarning(UserWarning):
    """The cache of compiled kernels cannot be used; kernels are compiled in every process."""


class UntrustedError(OSError):
    """Other users own a folder or may write to it."""


class KernelCache(KernelCacheBase):  # type: ignore[misc]
    """Compiled versions of one function, a file for every signature.

    Parameters
    ----------
    function
        The function that was compiled.
    argument_types
        Its argument types, where Numba's signature does not contain them.
    digest
        Digest of its dependencies outside this package. None: unknown, the function is not cached.
        By default it is computed from the function.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        argument_types: tuple[Any, ...] = (),
        digest: str | None = "",
    ) -> None:
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._argument_types = str(argument_types)
        if function.__module__.partition(".")[0] != __name__.partition(".")[0]:
            digest = outside_digest(function)
        self._digest = digest

    @property
    def cache_path(self) -> str | None:
        """The folder, as Numba's tools read it."""
        directory = cache_directory()
        return None if directory is None else str(directory)

    def enable(self) -> None:
        """Do nothing: NPU_SIM_CACHE_DIR switches the cache on and off."""

    def disable(self) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing: there is no index in memory."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel for a signature; None on a cache miss."""
        target_context.refresh()
        key = self._key(sig, target_context.codegen())
        path = self._path(key)
        if path is None:
            return None
        try:
            payload = read_kernel(path, key)
        except OSError as error:
            self._warn_unusable(path, error)
            return None
        if payload is None:
            return None
        try:
            return CompileResult._rebuild(target_context, *pickle.loads(payload))
        except Exception as error:  # a patched Numba of the same version may raise anything
            warnings.warn(
                Text(
                    "{path}: not usable ({error}); compiling {name}",
                    path=path,
                    error=repr(error),
                    name=self._name,
                ),
                KernelCacheWarning,
                stacklevel=2,
            )
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write a compiled kernel, as a whole or not at all."""
        key = self._key(sig, data.codegen)
        path = self._path(key)
        can_cache = all(loop.can_cache for loop in data.lifted)
        if path is None or not can_cache or data.library.has_dynamic_globals:
            return
        try:
            write_kernel(path, key, dumps(data._reduce()))
        except OSError as error:
            self._warn_unusable(path, error)

    def _warn_unusable(self, path: Path, error: OSError) -> None:
        """Warn that kernels are compiled anew in every process."""
        message = Text(
            "compiled kernels cannot be kept in {parent}: {strerror}; set {cache_variable} to a "
            "folder of your own",
            parent=path.parent,
            strerror=error.strerror,
            cache_variable=CACHE_VARIABLE,
        )
        warnings.warn(message, KernelCacheWarning, stacklevel=3)

    def _key(self, sig: Any, codegen: Any) -> str:
        """Return the identity of a compiled kernel: name, source, signature and processor."""
        return repr(
            (self._name, self._digest, self._argument_types, str(sig), codegen.magic_tuple())
        )

    def _path(self, key: str) -> Path | None:
        directory = cache_directory()
        if directory is None or self._digest is None:
            return None
        digest = hashlib.sha256(key.encode()).hexdigest()[:32]
        return directory / f"{self._name.rpartition('.')[2]}-{digest}"


def cache_directory() -> Path | None:
    """Return the folder of kernels of this source and these versions; None without a cache."""
    name = os.environ.get(CACHE_VARIABLE)
    if name == "":
        return None
    return (Path(name) if name else cache_folder()) / source_digest()[:16]


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Return a digest of the dependencies of every compiled kernel: versions and source."""
    digest = hashlib.sha256()
    for version in (numba.__version__, llvmlite.__version__, sys.version):
        digest.update(version.encode())
    package = Path(__file__).parent.parent.parent
    sources = (package.glob(f"{name}/**/*.py") for name in COMPILED_PACKAGES)
    for path in sorted(chain(package.glob("*.py"), *sources)):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def outside_digest(function: Callable[..., Any], *compiled: Callable[..., Any]) -> str | None:
    """Return a digest of what determines a compiled function of another package.

    These are the Python files of its package, or those beside its file, and the constants of the
    function and of those ``compiled`` with it. None without a file, as in a notebook, without such
    a module, or with constants of an unknown type: a change would go unnoticed, so the function is
    not cached.
    """
    if function.__module__ not in sys.modules:
        return None
    package, *_ = function.__module__.partition(".")
    file = Path(function.__code__.co_filename)
    folders = getattr(sys.modules.get(package), "__path__", None)
    sources = (
        chain.from_iterable(Path(folder).rglob("*.py") for folder in folders)
        if folders
        else file.parent.glob("*.py")
    )
    digest = hashlib.sha256()
    try:
        for path in (file, *sorted(sources)):
            digest.update(path.read_bytes())
        digest.update(constants(function, *compiled))
    except (OSError, ValueError):
        return None
    return digest.hexdigest()


def read_kernel(path: Path, key: str) -> bytes | None:
    """Return the content stored under a key; None without a valid file that others cannot write.

    Raises
    ------
    UntrustedError
        For a folder that other users own or may write to.
    """
    if not path.parent.exists():
        return None
    require_private(path.parent.parent)
    require_private(path.parent)
    try:
        status = path.lstat()  # a link is no kernel
        if not stat.S_ISREG(status.st_mode) or not is_private(status):
            return None
        data = path.read_bytes()
    except OSError:
        return None
    payload = data[DIGEST_BYTES:]
    return payload if _checksum(key, payload) == data[:DIGEST_BYTES] else None


def write_kernel(path: Path, key: str, payload: bytes) -> None:
    """Store content under a key, as a whole or not at all.

    Raises
    ------
    OSError
        When it cannot be written; :class:`UntrustedError` when other users could write there.
    """
    _make_private(path.parent)
    require_private(path.parent.parent)
    require_private(path.parent)
    try:
        with replacing(path, 0o600, seconds=0) as file:
            file.write(_checksum(key, payload) + payload)
    except TimeoutError:
        return  # another process is writing the same kernel


def require_private(folder: Path) -> None:
    """Check that only this user and the administrator can change a folder.

    Raises
    ------
    UntrustedError
        When other users can.
    """
    if not is_private(folder.stat()):
        raise UntrustedError(
            1, Text("others own {folder} or may write to it", folder=folder), str(folder)
        )


def _make_private(folder: Path) -> None:
    """Make a folder and its missing parents for this user alone, regardless of the umask."""
    if not folder.is_dir():
        if not folder.parent.is_dir():
            _make_private(folder.parent)
        folder.mkdir(mode=PRIVATE, exist_ok=True)


def _checksum(key: str, payload: bytes) -> bytes:
    name = key.encode()
    return hashlib.sha256(len(name).to_bytes(8, "little") + name + payload).digest()


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
    """Return the form of a tuple of arguments, and their words.

    Arguments of one form have one Numba type, :func:`type_of`. Forms consist of Python types and
    NumPy dtypes, whose hashes take a tenth of the time of those of Numba types.
    """
    words: list[int] = []
    return _add_words(values, words), words


def _add_words(value: Any, words: list[int]) -> Any:
    """Append the words of one argument; return its form."""
    kind = type(value)
    if kind is int:  # first, as most values are
        words.append(value)
        return kind
    if isinstance(value, np.ndarray):
        words += (address_of(value), *value.shape, *value.strides)
        flags = value.flags
        return value.dtype, value.ndim, flags.c_contiguous, flags.aligned
    if isinstance(value, tuple):
        # a list: faster than a generator
        return kind, tuple([_add_words(element, words) for element in value])
    if isinstance(value, float | np.floating):
        bits = value if isinstance(value, np.floating) else np.float64(value)
        words.append(int(bits.view(f"i{bits.itemsize}")))
    else:
        words.append(int(value))
    return kind


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
        ``entry(words, chunk)``, with the address of the words; ``address`` is that of its code.
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
    """Return the intrinsic that turns words into a tuple of arguments of type ``result``."""

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
    """Emit the instructions that make one argument of the next words."""
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

"""Compiled kernels on disk, so that a second process starts at once.

Numba's own cache notices changes of a kernel's file only, not of the functions it calls, and stops with an error when a file is
damaged. This one is keyed on the source of the whole package, and of the package that a kernel of one's own comes from. Every file
carries a checksum: a file that is damaged, of another version, or cannot be read is a miss, and one that cannot be written costs a
warning, never a result.
"""

import hashlib
import os
import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

CACHE_VARIABLE = "NPU_SIM_CACHE_DIR"
"""Environment variable that names the cache folder; empty switches the cache off."""
DIGEST_BYTES = 32


class KernelCacheWarning(UserWarning):
    """The cache of compiled kernels cannot be used; kernels are compiled in every process."""


def cache_directory() -> Path | None:
    """Return the folder of compiled kernels for this source and these versions; None when caching is switched off."""
    named = os.environ.get(CACHE_VARIABLE)
    if named == "":
        return None
    if named is None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        named = str(Path(home) / "npu_sim")
    return Path(named) / source_digest()[:16]


COMPILED_ROOMS = ("numbers", "kernels", "tiling", "sweeps")
"""Where functions live that end up in compiled code, besides the root."""


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Return a digest of everything but the signature and the processor that a compiled kernel depends on."""
    digest = hashlib.sha256()
    for version in (numba.__version__, llvmlite.__version__, sys.version):
        digest.update(version.encode())
    package = Path(__file__).parent.parent.parent
    rooms = (package.glob(f"{room}/**/*.py") for room in COMPILED_ROOMS)
    for path in sorted(chain(package.glob("*.py"), *rooms)):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def own_digest(module: str, file: str) -> str | None:
    """Return a digest of what a kernel of another package depends on: the Python files of its package, or those beside its file.

    None when there is no file, as in a notebook, or no module of the name: then nothing says whether a kernel on disk is the one that
    was written, and it is not kept.
    """
    if module not in sys.modules:
        return None
    package, *_ = module.partition(".")
    folders = getattr(sys.modules.get(package), "__path__", None)
    sources = chain.from_iterable(Path(folder).rglob("*.py") for folder in folders) if folders else Path(file).parent.glob("*.py")
    digest = hashlib.sha256()
    try:
        digest.update(Path(file).read_bytes())
        for path in sorted(sources):
            digest.update(path.read_bytes())
    except OSError:
        return None
    return digest.hexdigest()


class KernelCache(_Cache):  # type: ignore[misc]
    """The compiled versions of one function, a file for every signature.

    Parameters
    ----------
    function
        What was compiled.
    argument_types
        Types it was compiled for, where Numba's signature does not say.
    """

    def __init__(self, function: Callable[..., Any], argument_types: tuple[Any, ...] = ()) -> None:
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._argument_types = str(argument_types)
        is_ours = function.__module__.partition(".")[0] == __name__.partition(".")[0]
        self._own = "" if is_ours else own_digest(function.__module__, function.__code__.co_filename)
        self._enabled = True

    @property
    def cache_path(self) -> str | None:
        """The folder, as Numba's tools ask for it."""
        directory = cache_directory()
        return None if directory is None else str(directory)

    def enable(self) -> None:
        """Use the cache."""
        self._enabled = True

    def disable(self) -> None:
        """Do not use the cache."""
        self._enabled = False

    def flush(self) -> None:
        """Nothing is kept in memory."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel for a signature, or None when it has to be compiled."""
        target_context.refresh()
        path = self._path(sig, target_context.codegen())
        if path is None:
            return None
        try:
            data = path.read_bytes()
        except OSError:
            return None
        payload = data[DIGEST_BYTES:]
        if hashlib.sha256(payload).digest() != data[:DIGEST_BYTES]:
            return None
        try:
            return CompileResult._rebuild(target_context, *pickle.loads(payload))
        except Exception as error:  # whatever a foreign or outdated file makes Numba do, compiling is always right
            warnings.warn(f"{path}: not usable ({error!r}); compiling {self._name}", KernelCacheWarning, stacklevel=2)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write a compiled kernel, whole or not at all."""
        path = self._path(sig, data.codegen)
        if path is None or any(not loop.can_cache for loop in data.lifted) or data.library.has_dynamic_globals:
            return
        payload = dumps(data._reduce())
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=path.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(hashlib.sha256(payload).digest() + payload)
                Path(temporary).replace(path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            message = (
                f"compiled kernels cannot be kept in {path.parent}: {error.strerror}; set {CACHE_VARIABLE} to a folder you may write to"
            )
            warnings.warn(message, KernelCacheWarning, stacklevel=2)

    def _path(self, sig: Any, codegen: Any) -> Path | None:
        directory = cache_directory()
        if directory is None or self._own is None or not self._enabled:
            return None
        key = hashlib.sha256(repr((self._name, self._own, self._argument_types, str(sig), codegen.magic_tuple())).encode()).hexdigest()
        return directory / f"{self._name.rpartition('.')[2]}-{key[:32]}"

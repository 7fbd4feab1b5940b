"""Compiled kernels on disk, so that a second process starts at once.

Numba's own cache notices changes of a kernel's file only, not of the functions it calls, and stops with an error when a file is
damaged. This one is keyed on the source of the whole package, and of the package that a kernel of one's own comes from. Which files
are trusted is said in :mod:`npu_sim.kernels.engine.cache_files`: any other is a miss. One that cannot be written costs a warning,
never a result.
"""

import hashlib
import pickle
import sys
import warnings
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

from npu_sim.kernels.engine.cache_files import (
    CACHE_VARIABLE,
    cache_directory,
    keep_kernel,
    read_kernel,
)
from npu_sim.kernels.engine.numba_inside import CompileResult, KernelCacheBase, dumps


class KernelCacheWarning(UserWarning):
    """The cache of compiled kernels cannot be used; kernels are compiled in every process."""


def own_digest(module: str, file: str) -> str | None:
    """Return a digest of what a kernel of another package depends on: the Python files of its package, or those beside its file.

    None when there is no file, as in a notebook, or no module of the name: then nothing says whether a kernel on disk is the one that
    was written, and it is not kept.
    """
    if module not in sys.modules:
        return None
    package, *_ = module.partition(".")
    folders = getattr(sys.modules.get(package), "__path__", None)
    sources = (
        chain.from_iterable(Path(folder).rglob("*.py") for folder in folders)
        if folders
        else Path(file).parent.glob("*.py")
    )
    digest = hashlib.sha256()
    try:
        digest.update(Path(file).read_bytes())
        for path in sorted(sources):
            digest.update(path.read_bytes())
    except OSError:
        return None
    return digest.hexdigest()


class KernelCache(KernelCacheBase):  # type: ignore[misc]
    """The compiled versions of one function, a file for every signature.

    Parameters
    ----------
    function
        What was compiled.
    argument_types
        Types it was compiled for, where Numba's signature does not say.
    own
        Digest of what it depends on besides this package; None when nothing says that: then it is not kept. Found from the function
        when it is left out.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        argument_types: tuple[Any, ...] = (),
        own: str | None = "",
    ) -> None:
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._argument_types = str(argument_types)
        is_ours = function.__module__.partition(".")[0] == __name__.partition(".")[0]
        self._own = (
            own if is_ours else own_digest(function.__module__, function.__code__.co_filename)
        )
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
        key = self._key(sig, target_context.codegen())
        path = self._path(key)
        if path is None:
            return None
        try:
            payload = read_kernel(path, key)
        except OSError as error:
            self._cannot_keep(path, error)
            return None
        if payload is None:
            return None
        try:
            return CompileResult._rebuild(target_context, *pickle.loads(payload))
        except Exception as error:  # whatever a Numba of the same name and another inside makes of it, compiling is always right
            warnings.warn(
                f"{path}: not usable ({error!r}); compiling {self._name}",
                KernelCacheWarning,
                stacklevel=2,
            )
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write a compiled kernel, whole or not at all."""
        key = self._key(sig, data.codegen)
        path = self._path(key)
        if (
            path is None
            or any(not loop.can_cache for loop in data.lifted)
            or data.library.has_dynamic_globals
        ):
            return
        try:
            keep_kernel(path, key, dumps(data._reduce()))
        except OSError as error:
            self._cannot_keep(path, error)

    def _cannot_keep(self, path: Path, error: OSError) -> None:
        """Warn that kernels are compiled anew in every process."""
        message = f"compiled kernels cannot be kept in {path.parent}: {error.strerror}; set {CACHE_VARIABLE} to a folder of your own"
        warnings.warn(message, KernelCacheWarning, stacklevel=3)

    def _key(self, sig: Any, codegen: Any) -> str:
        """Return what a compiled kernel is: its name and source, its signature, and the processor."""
        return repr((self._name, self._own, self._argument_types, str(sig), codegen.magic_tuple()))

    def _path(self, key: str) -> Path | None:
        directory = cache_directory()
        if directory is None or self._own is None or not self._enabled:
            return None
        return (
            directory
            / f"{self._name.rpartition('.')[2]}-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
        )

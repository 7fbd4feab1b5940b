"""Files of compiled kernels.

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
from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import llvmlite
import numba

from npu_sim.kernels.engine.constants import constants
from npu_sim.kernels.engine.numba_inside import CompileResult, KernelCacheBase, dumps
from npu_sim.language import Text
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

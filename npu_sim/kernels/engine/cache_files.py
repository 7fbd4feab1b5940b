"""Where compiled kernels are kept, and which files there are trusted: a compiled kernel is code.

Only folders and files that this user or the system's administrator owns, and that nobody else may write, are used. Every file says
which kernel it holds, in a checksum over name, signature, versions and processor and the code itself: a file that is damaged, of
another kernel or cannot be read is none.
"""

import fcntl
import hashlib
import os
import stat
import sys
import tempfile
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path

import llvmlite
import numba

CACHE_VARIABLE = "NPU_SIM_CACHE_DIR"
"""Environment variable that names the cache folder; empty switches the cache off."""
DIGEST_BYTES = 32
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
PRIVATE = 0o700
COMPILED_ROOMS = ("numbers", "kernels", "tiling", "sweeps")
"""Where functions live that end up in compiled code, besides the root."""


class UntrustedError(OSError):
    """A folder that others own or may write."""


def cache_directory() -> Path | None:
    """Return the folder of compiled kernels for this source and these versions; None when caching is switched off."""
    named = os.environ.get(CACHE_VARIABLE)
    if named == "":
        return None
    if named is None:
        named = str(Path(os.environ.get("XDG_CACHE_HOME") or _user_cache()) / "npu_sim")
    return Path(named) / source_digest()[:16]


def _user_cache() -> Path:
    """Return the user's cache folder; one among temporary files for a user without a home, as in containers."""
    with suppress(RuntimeError):
        return Path.home() / ".cache"
    return Path(tempfile.gettempdir()) / f"npu_sim-{os.getuid()}"


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


def read_kernel(path: Path, key: str) -> bytes | None:
    """Return what was kept under a key; None when there is nothing sound that others could not have written.

    Raises
    ------
    UntrustedError
        For a folder that others own or may write.
    """
    if not path.parent.exists():
        return None
    require_private(path.parent.parent)
    require_private(path.parent)
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) or not _is_private(
                os.fstat(file.fileno())
            ):
                return None
            data = file.read()
    except OSError:
        return None
    payload = data[DIGEST_BYTES:]
    return payload if _seal(key, payload) == data[:DIGEST_BYTES] else None


def keep_kernel(path: Path, key: str, payload: bytes) -> None:
    """Keep something under a key, whole or not at all.

    Raises
    ------
    OSError
        When it cannot be written, :class:`UntrustedError` when others could write there.
    """
    _make_private(path.parent)
    require_private(path.parent.parent)
    require_private(path.parent)
    temporary = path.with_name(
        f"{path.name}.new"
    )  # one name a kernel: what a killed process leaves there goes with the next write
    with os.fdopen(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another process is keeping the same kernel
        if not _is_file_at(temporary, file.fileno()):
            return  # it has just done so
        try:
            file.truncate()
            file.write(_seal(key, payload) + payload)
            file.flush()
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _is_file_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def require_private(folder: Path) -> None:
    """Check that nobody but this user and the administrator can change what is in a folder.

    Raises
    ------
    UntrustedError
        When somebody can.
    """
    if not _is_private(folder.stat()):
        raise UntrustedError(1, f"others own {folder} or may write to it", str(folder))


def _make_private(folder: Path) -> None:
    """Make a folder and those above it that are missing, for this user alone whatever the umask says."""
    if not folder.is_dir():
        if not folder.parent.is_dir():
            _make_private(folder.parent)
        folder.mkdir(mode=PRIVATE, exist_ok=True)


def _is_private(found: os.stat_result) -> bool:
    if not hasattr(os, "geteuid"):
        return True  # such systems tell owners in another way
    return found.st_uid in (os.geteuid(), 0) and not found.st_mode & OTHERS_MAY_WRITE


def _seal(key: str, payload: bytes) -> bytes:
    named = key.encode()
    return hashlib.sha256(len(named).to_bytes(8, "little") + named + payload).digest()

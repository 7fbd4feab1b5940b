"""What differs between Linux, macOS and Windows; no other module uses what only some of them have.

Where a system lacks something, npu_sim goes without: Windows has no forks, and no owners and modes
of files that a program could check, and macOS cannot tell how many cores a process may use.
"""

import ntpath
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PureWindowsPath
from typing import IO
from zlib import crc32

WINDOWS = os.name == "nt"
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH

HIDDEN = ".npu_sim-"
"""First characters of the names under which files are written."""


def at_fork(**functions: Callable[[], object]) -> None:
    """Register functions to call at a fork, as `os.register_at_fork` takes them."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**functions)


def usable_cores() -> int:
    """Return the number of cores that this process may use; all where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cache_folder() -> Path:
    """Return the cache folder of this user; among temporary files for users without a home."""
    from platformdirs import user_cache_path  # loaded with the first kernel, not with the package

    with suppress(RuntimeError):  # no home
        return user_cache_path("npu_sim", appauthor=False)
    from tempfile import gettempdir

    user = getattr(os, "getuid", int)()
    return Path(gettempdir()) / f"npu_sim-{user}"


def is_private(status: os.stat_result) -> bool:
    """Return whether only this user and the administrator can change a file or folder."""
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & OTHERS_MAY_WRITE


def open_without_waiting(path: str, flags: int) -> int:
    """Open a file, as `open` takes it; a pipe without a writer is opened, too, where it can be."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def is_open_stream(path: Path) -> bool:
    """Return whether a path names an open file, such as ``/dev/stdout``; it is not replaced."""
    if not os.path.islink(path):  # noqa: PTH114 - False where is_symlink raises: a name too long
        return False
    return "/proc" in (os.path.realpath(path.parent)[:5], str(path.readlink())[:5])


def is_reserved(path: Path) -> bool:
    """Return whether Windows takes the name of a file for a device, as with ``aux.jsonl``."""
    if not WINDOWS:
        return False
    if hasattr(ntpath, "isreserved"):  # Python 3.13, which deprecates the method
        return bool(ntpath.isreserved(path.name))
    return PureWindowsPath(path.name).is_reserved()


@contextmanager
def replacing(path: Path, mode: int | None = None, seconds: float = -1) -> Iterator[IO[bytes]]:
    """Open a file that replaces the one at ``path`` when the block ends without an error.

    It is written beside ``path`` under a hidden name that is always the same, and locked meanwhile:
    what a killed process leaves is removed by the next writer.

    Parameters
    ----------
    path
        The file, which is not a link.
    mode
        Its mode; None: that of the umask.
    seconds
        How long to wait for another writer of this file; negative: to its end.

    Raises
    ------
    OSError
        When the file cannot be written; TimeoutError when another process still writes it.
    """
    from filelock import FileLock  # most commands write nothing

    fresh = path.with_name(f"{HIDDEN}{crc32(os.fsencode(path.name)):08x}")
    lock = FileLock(f"{fresh}.lock", timeout=seconds, poll_interval=0.01)
    with lock:
        try:
            fresh.unlink(missing_ok=True)
            with open(fresh, "xb", opener=lambda name, flags: _open(name, flags, mode)) as file:
                yield file
            if mode is not None:
                fresh.chmod(mode)
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
            with suppress(OSError):  # Windows removes the file of a lock at its release
                Path(lock.lock_file).unlink()


def _open(name: str, flags: int, mode: int | None) -> int:
    """Open a file that others cannot read before it has its mode."""
    return os.open(name, flags, 0o666 if mode is None else 0o600)

"""Writing files whole or not at all, and removing only what npu_sim wrote.

What can be known before long work is checked before it: :func:`require_target` for one file, :func:`require_room` for its size.
"""

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from npu_sim.status import UsageError

HINT = "name a file in a folder you may write to"
UNNAMED = getattr(os, "O_TMPFILE", 0)
"""Linux makes files without a name: a process that is killed leaves nothing of them behind."""


def cannot_write(argument: str, path: Path, error: OSError | ValueError) -> UsageError:
    """Return the refusal for a file or folder that the system does not let us write."""
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    why = getattr(error, "strerror", None) or error
    hint = "make room, or name a file on another disk" if full else HINT
    return UsageError(argument, f"{_shown(path)}: cannot be written: {why}", hint)


def require_target(path: Path, argument: str = "out") -> None:
    """Check that a file can be written: its folder is there and may be written, and the name is free or a plain file's.

    Raises
    ------
    UsageError
        Naming what is in the way.
    """
    folder = path.parent
    try:
        if path.is_dir():
            raise UsageError(argument, f"{_shown(path)} is a folder", "name a file in it")
        if not folder.is_dir():
            raise UsageError(
                argument, f"{_shown(path)}: the folder {_shown(folder)} does not exist", HINT
            )
        if path.exists() and not path.is_file():
            raise UsageError(argument, f"{_shown(path)} is no plain file", HINT)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except UsageError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise cannot_write(argument, path, error) from None


def require_room(path: Path, needed_bytes: int, argument: str = "out") -> None:
    """Check that the disk of a file has room for it.

    Raises
    ------
    UsageError
        With the bytes that are needed and those that are free.
    """
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError as error:
        raise cannot_write(argument, path, error) from None
    if needed_bytes > free:
        message = f"{_shown(path)} takes at least {needed_bytes} bytes, its disk has {free} left"
        raise UsageError(argument, message, "make room, or name a file on another disk")


@contextmanager
def whole_file(path: Path, argument: str = "out") -> Iterator[IO[bytes]]:
    """Open a file that gets its name when the block ends without an error: readers see the old file or the whole new one.

    Raises
    ------
    UsageError
        When it cannot be written, also for want of room while the block writes.
    """
    require_target(path, argument)
    try:
        file, temporary = _open_nameless(path.parent)
        try:
            with file:
                yield file
                file.flush()
                os.fchmod(file.fileno(), _mode_of(path))
                _publish(file, temporary, path)
        finally:
            if temporary is not None:
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(argument, path, error) from None


def write_atomically(path: Path, write: Callable[[IO[bytes]], Any], argument: str = "out") -> None:
    """Write a file whole or not at all; see :func:`whole_file`."""
    with whole_file(path, argument) as file:
        write(file)


def write_text(path: Path, text: str, argument: str = "out") -> None:
    """Write a text file whole or not at all; characters that UTF-8 does not have are escaped."""
    write_atomically(
        path, lambda file: file.write(text.encode("utf-8", "backslashreplace")), argument
    )


def foreign_entry(folder: Path, is_own: Callable[[str], bool]) -> str | None:
    """Return the name of something in a folder that npu_sim did not write there; None when there is nothing.

    Its own are plain files with names that ``is_own`` knows; a link, a folder or a special file is foreign whatever its name.
    """
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if not entry.is_file(follow_symlinks=False) or not is_own(entry.name):
            return entry.name
    return None


def remove_own(path: Path, is_own: Callable[[str], bool], argument: str = "out") -> None:
    """Remove a plain file, or a folder in which everything is npu_sim's own; nothing when it is not there.

    Parameters
    ----------
    is_own
        Whether npu_sim writes a file of this name into such a folder.

    Raises
    ------
    UsageError
        When something foreign is there; nothing is removed then.
    """
    if path.is_symlink() or (path.exists() and not path.is_dir() and not path.is_file()):
        raise UsageError(
            argument,
            f"{_shown(path)} is in the way and not of npu_sim",
            "remove it, or choose another name",
        )
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    empty_own(path, is_own, argument=argument)
    path.rmdir()


def empty_own(
    folder: Path, is_own: Callable[[str], bool], last: str = "", argument: str = "out"
) -> None:
    """Remove what npu_sim wrote into a folder; see :func:`remove_own`. The file ``last``, which says what the folder is, goes last."""
    foreign = foreign_entry(folder, is_own)
    if foreign is not None:
        message = f"{_shown(folder)} holds {foreign!r}, which npu_sim did not write"
        raise UsageError(argument, message, "move it elsewhere, or choose another name")
    for path in sorted(folder.iterdir(), key=lambda path: path.name == last):
        path.unlink()


def _open_nameless(folder: Path) -> tuple[IO[bytes], Path | None]:
    """Open a file without a name where the system can, else a temporary one; return it and its name."""
    if UNNAMED and Path("/proc/self/fd").is_dir():
        with suppress(OSError):
            return os.fdopen(os.open(folder, UNNAMED | os.O_WRONLY, 0o600), "wb"), None
    descriptor, name = tempfile.mkstemp(dir=folder)
    return os.fdopen(descriptor, "wb"), Path(name)


def _publish(file: IO[bytes], temporary: Path | None, path: Path) -> None:
    """Give a file its name, in place of an older one."""
    if temporary is not None:
        temporary.replace(path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    # The folder makes Python use linkat, which follows the link under /proc to the file itself.
    link = partial(os.link, f"/proc/self/fd/{file.fileno()}", src_dir_fd=folder, dst_dir_fd=folder)
    try:
        try:
            link(path.name)
        except FileExistsError:
            _replace_linked(link, path.name, folder)
    finally:
        os.close(folder)


def _replace_linked(link: Callable[[str], None], name: str, folder: int) -> None:
    """Put a file without a name in place of an older one, by way of a name that is the same every time.

    Whatever is found at that name is whole: it is of a process that was killed there, or of one that writes the same file meanwhile.
    It is put in place first, as its process would have done.
    """
    fresh = f".npu_sim-{sha256(os.fsencode(name)).hexdigest()[:16]}"
    put = partial(os.replace, fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
    while True:
        try:
            link(fresh)
            break
        except FileExistsError:
            with suppress(FileNotFoundError):
                put()
    try:
        with suppress(FileNotFoundError):  # another writer has done it for us
            put()
    except OSError:
        os.unlink(fresh, dir_fd=folder)
        raise


def _mode_of(path: Path) -> int:
    """Return the rights of the file that is replaced, or those of a new one."""
    with suppress(OSError):
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _shown(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 200 else f"{text[:80]}...{text[-80:]} ({len(text)} characters)"

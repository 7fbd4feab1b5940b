"""Writing files whole or not at all, and removing only what npu_sim wrote; forms of documents.

Commands check a target before long work: :func:`require_target` for the path,
:func:`require_separate` for the other files of the command, :func:`require_room` for free space.
"""

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from npu_sim.language import Text, Verbatim
from npu_sim.status import UsageError, obstacle
from npu_sim.system import HIDDEN, is_open_stream, is_reserved, replacing

HINT = "name a file in a folder you may write to"


FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of the system for a disk, a quota or a file that is full."""


def cannot_write(argument: str, path: Path, error: OSError | ValueError) -> UsageError:
    """Return the error for a path that the system does not allow us to write."""
    full = getattr(error, "errno", None) in FULL_DISK
    return UsageError(
        argument,
        "{path}: cannot be written: {why}",
        "make room, or name a file on another disk" if full else HINT,
        path=_shown(path),
        why=obstacle(error),
    )


def require_target(path: Path, argument: str = "out") -> None:
    """Check that a file can be written.

    Its folder must exist and be writable, and the path must be free or a regular file. A link
    stands for its target.

    Raises UsageError with the obstacle.
    """
    try:
        folder = link_target(path).parent
        if path.is_dir():
            raise UsageError(argument, "{path} is a folder", "name a file in it", path=_shown(path))
        if not folder.is_dir():
            raise UsageError(
                argument,
                "{path}: the folder {folder} does not exist",
                HINT,
                path=_shown(path),
                folder=_shown(folder),
            )
        if is_reserved(path):
            raise UsageError(
                argument,
                "{path}: Windows reserves this name for a device",
                "name another file",
                path=_shown(path),
            )
        if (path.exists() and not path.is_file()) or is_open_stream(path):
            raise UsageError(argument, "{path} is not a plain file", HINT, path=_shown(path))
        with tempfile.TemporaryFile(dir=folder):
            pass
    except UsageError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise cannot_write(argument, path, error) from None


def require_separate(outputs: Mapping[str, Path], inputs: Iterable[Path]) -> None:
    """Check that no output replaces an input or another output.

    Files are compared by identity: links and other spellings of a path name the same file.

    - ``outputs``: paths by the names of their arguments.

    Raises UsageError with the output and what it would replace.
    """
    used = dict.fromkeys(map(_identity, inputs), "")
    for argument, path in outputs.items():
        other = used.setdefault(_identity(path), argument)
        if other != argument:
            raise UsageError(
                argument,
                "{path} is also given as {other}"
                if other
                else "{path} is an input of this command",
                "name another file",
                path=_shown(path),
                other=other,
            )


def link_target(path: Path) -> Path:
    """Return the path itself, or the file that a link names."""
    is_link = os.path.islink(path)  # noqa: PTH114 - False where is_symlink raises: a name too long
    return Path(os.path.realpath(path)) if is_link else path


def _identity(path: Path) -> object:
    """Return what identifies a file: device and inode, or the resolved path of one to be made."""
    try:
        status = path.stat()
    except OSError:
        return os.path.realpath(path)
    return status.st_dev, status.st_ino


def require_room(path: Path, needed_bytes: int) -> None:
    """Check that the disk of a file has ``needed_bytes`` free.

    Raises UsageError with the needed and the free bytes.
    """
    try:
        free = shutil.disk_usage(link_target(path).parent).free
    except OSError as error:
        raise cannot_write("out", path, error) from None
    if needed_bytes > free:
        raise UsageError(
            "out",
            "{path} takes at least {needed_bytes} bytes, its disk has {free} left",
            "make room, or name a file on another disk",
            path=_shown(path),
            needed_bytes=needed_bytes,
            free=free,
        )


def write_atomically(path: Path, write: Callable[[IO[bytes]], Any], argument: str = "out") -> None:
    """Write a file by ``write(file)``; it appears at ``path`` when that ends without an error.

    Readers see the old file or the complete new one. A link stays, and its target is replaced: a
    path that the user named may be one. :func:`write_into` writes into folders of others.

    Raises UsageError when it cannot be written, or the disk becomes full.
    """
    require_target(path, argument)
    target = link_target(path)
    try:
        with replacing(target, _mode_of(target)) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())  # or a crash could leave an empty file at the path
    except OSError as error:
        raise cannot_write(argument, path, error) from None


def write_text(path: Path, text: str, argument: str = "out") -> None:
    """Write a text file whole or not at all; characters that UTF-8 cannot encode are escaped."""
    data = text.encode("utf-8", "backslashreplace")
    write_atomically(path, lambda file: file.write(data), argument)


def write_into(folder: Path, name: str, text: str, argument: str) -> None:
    """Write a text file into a folder whose entries others made: a link is replaced by the file.

    Raises UsageError when it cannot be written.
    """
    path = folder / name
    try:
        if path.is_symlink():
            path.unlink()
    except OSError as error:
        raise cannot_write(argument, path, error) from None
    write_text(path, text, argument)


def foreign_entry(folder: Path, is_own: Callable[[str], bool]) -> str | None:
    """Return the name of an entry that npu_sim did not write into a folder; None without one.

    Own files are regular files whose name ``is_own`` accepts, and what a killed writer left. Links,
    folders and special files are foreign.
    """
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        own = is_own(entry.name) or entry.name.startswith(HIDDEN)
        if not own or not entry.is_file(follow_symlinks=False):
            return entry.name
    return None


def remove_own(path: Path, is_own: Callable[[str], bool]) -> None:
    """Remove a regular file, or a folder that contains only files of npu_sim, if it exists.

    - ``is_own``: whether npu_sim writes a file of this name into such a folder.

    Raises UsageError when there is a foreign entry; nothing is removed then.
    """
    if path.is_symlink() or (path.exists() and not path.is_dir() and not path.is_file()):
        raise UsageError(
            "out",
            "{path} exists, and npu_sim did not write it",
            "remove it, or choose another name",
            path=_shown(path),
        )
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    empty_own(path, is_own)
    path.rmdir()


def empty_own(folder: Path, is_own: Callable[[str], bool], last: str = "") -> None:
    """Remove npu_sim's files from a folder, the file ``last`` last; see :func:`remove_own`."""
    foreign = foreign_entry(folder, is_own)
    if foreign is not None:
        raise UsageError(
            "out",
            "{folder} contains {foreign}, which npu_sim did not write",
            "move it elsewhere, or choose another name",
            folder=_shown(folder),
            foreign=repr(foreign),
        )
    for path in sorted(folder.iterdir(), key=lambda path: path.name == last):
        path.unlink()


def _mode_of(path: Path) -> int | None:
    """Return the mode of the file to be replaced; None where there is none."""
    with suppress(OSError):
        return stat.S_IMODE(path.stat().st_mode)
    return None


def _shown(path: Path) -> str:
    text = str(path)
    if len(text) <= 200:
        return Verbatim(text)
    return Text(
        "{beginning}...{end} ({length} characters)",
        beginning=text[:80],
        end=text[-80:],
        length=len(text),
    )


VERSIONS = MappingProxyType(
    {
        "ablation": 1,
        "baseline": 1,
        "calibration": 1,
        "calls": 1,
        "caveat": 1,
        "caveats": 1,
        "columns": 1,
        "demo": 1,
        "diagnosis": 1,
        "dump": 1,
        "diff": 1,
        "emulation": 1,
        "error": 1,
        "evidence": 1,
        "explain": 1,
        "explorer": 1,
        "kit": 1,
        "kit_check": 1,
        "limits": 1,
        "plan": 1,
        "preflight": 1,
        "preflight_result": 1,
        "products": 1,
        "profile": 1,
        "profile_comparison": 1,
        "run": 1,
        "study": 1,
        "sweep": 1,
        "timeline": 1,
        "usage": 1,
        "verification": 1,
    }
)
"""A version increases when a key is removed or changes its meaning, not for new keys."""


def schema(form: str) -> str:
    """Return the value of ``schema`` in a document of a form, such as ``npu_sim.plan/1``."""
    if form not in VERSIONS:
        raise LookupError("a form without a row in npu_sim.files.writing.VERSIONS", form)
    return f"npu_sim.{form}/{VERSIONS[form]}"

"""Reading of untrusted files: regular files only, with a size limit for each purpose."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from npu_sim.language import Text
from npu_sim.status import UsageError

CONFIG_BYTES = 1 << 20
"""Largest configuration file, of a product or a model; shipped ones have some 10,000 bytes."""
JSON_BYTES = 1 << 26
"""Largest JSON file that describes the state or the columns of a sweep."""
DROPPED_BYTES = 1 << 26
"""Largest file that can be dropped on the explorer; the command line reads larger ones."""
LINE_BYTES = 1 << 20
"""Longest line of a file of calls."""


def open_plain(argument: str, path: Path, hint: str) -> IO[bytes]:
    """Open a regular file for reading.

    A pipe or a device, which might never end, is refused without waiting for it.

    Raises UsageError for any other kind of file, and for one that cannot be read.
    """
    try:
        file = open(path, "rb", opener=_open_without_waiting)  # noqa: SIM115  (returned open)
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
        file.close()
    except IsADirectoryError:
        pass
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            argument, Text("{path}: cannot be read: {why}", path=path, why=why), hint
        ) from None
    raise UsageError(
        argument, Text("{path}: cannot be read: it is not a plain file", path=path), hint
    )


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_limited(argument: str, path: Path, most_bytes: int, hint: str) -> bytes:
    """Return the content of a regular file of at most ``most_bytes`` bytes.

    Raises UsageError when the file is not regular, cannot be read, or is larger.
    """
    with open_plain(argument, path, hint) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise UsageError(
            argument,
            Text(
                "{path} is larger than {most_bytes} bytes, the most that is read of such a file",
                path=path,
                most_bytes=most_bytes,
            ),
            hint,
        )
    return content


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file of calls or a pipe.

    Of a line longer than ``LINE_BYTES``, the first ``LINE_BYTES + 1`` bytes are returned.
    """
    while line := file.readline(LINE_BYTES + 1):
        yield line
        while len(line) > LINE_BYTES and not line.endswith(b"\n"):
            line = file.readline(LINE_BYTES + 1)

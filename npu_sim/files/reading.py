"""Reading what strangers wrote: plain files only, and none larger than what it is for."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from npu_sim.status import UsageError

YAML_BYTES = 1 << 20
"""Largest profile file; the shipped ones have some ten thousand bytes."""
JSON_BYTES = 1 << 26
"""Largest file that says how far a sweep is or what its columns mean."""
DROPPED_BYTES = 1 << 26
"""Largest file dropped on the page of the explorer; a larger one is for the command line."""
LINE_BYTES = 1 << 20
"""Longest line of a file of calls."""


def open_plain(argument: str, path: Path, hint: str) -> IO[bytes]:
    """Open a plain file for reading; a pipe or a device, which might never end, is refused without waiting for it.

    Raises
    ------
    UsageError
        When it is none, or cannot be read.
    """
    try:
        descriptor = os.open(
            path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        )
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise UsageError(argument, f"{path}: cannot be read: it is no plain file", hint)
        return os.fdopen(descriptor, "rb")
    except UsageError:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(argument, f"{path}: cannot be read: {why}", hint) from None


def read_limited(argument: str, path: Path, most_bytes: int, hint: str) -> bytes:
    """Read a plain file that has at most so many bytes.

    Raises
    ------
    UsageError
        When it is none, cannot be read, or is larger.
    """
    with open_plain(argument, path, hint) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise UsageError(
            argument,
            f"{path} is larger than {most_bytes} bytes, the most that is read of such a file",
            hint,
        )
    return content


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file of calls, or of a pipe; of one that is longer than any call, only its beginning, longer than that too."""
    while line := file.readline(LINE_BYTES + 1):
        yield line
        while len(line) > LINE_BYTES and not line.endswith(b"\n"):
            line = file.readline(LINE_BYTES + 1)

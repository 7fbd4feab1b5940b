"""Files dropped on the page: products, device profiles and files of calls."""

import itertools
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from npu_sim.files.reading import CONFIG_BYTES, DROPPED_BYTES
from npu_sim.language import Text, with_changed_fields
from npu_sim.status import NpuSimError, UsageError

PRODUCT, PROFILE, CALLS = "product", "profile", "calls"
KINDS = {
    ".yaml": PRODUCT,
    ".yml": PRODUCT,
    ".csv": PROFILE,
    ".db": PROFILE,
    ".jsonl": CALLS,
    ".json": CALLS,
}
"""Kind of a file by its suffix."""
MOST_BYTES = {PRODUCT: CONFIG_BYTES, PROFILE: DROPPED_BYTES, CALLS: DROPPED_BYTES}
MOST_FILES = 16
PIECE = 1 << 16
"""Bytes read at a time."""
NAME = re.compile(r"[\w +-][\w. +-]{0,99}")
"""A plain file name. It does not begin with a dot, so unfinished ``.part`` files do not match."""


def kind_of(name: str) -> str:
    """Return the kind of a file; see ``KINDS``.

    Raises UsageError if the suffix is unknown, or the name is not a plain file name.
    """
    kind = KINDS.get(Path(name).suffix.lower())
    if kind is None or not NAME.fullmatch(name):
        hint = (
            ".yaml for a product, .csv or .db for what a profiler wrote, .jsonl for "
            "calls; letters, digits, blanks and . _ + - before it"
        )
        raise UsageError(
            "file", Text("{name}: not a file that is read here", name=name[:100]), hint
        )
    return kind


@dataclass
class DroppedFiles:
    """The newest dropped files, in a temporary folder of this process."""

    _folder: TemporaryDirectory[str] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def keep(self, name: str, body: IO[bytes], length: int) -> Path:
        """Store a file, replacing one of the same name, and remove the oldest files.

        - ``name``: name that :func:`kind_of` accepts.
        - ``body``, ``length``: content, and its length in bytes.

        Raises UsageError if the file is too large for its kind, or shorter than ``length``.
        """
        most = MOST_BYTES[kind_of(name)]
        if length > most:
            message = Text(
                "{name} has {length} bytes, more than the {most} that are read of such a file",
                name=name,
                length=length,
                most=most,
            )
            raise UsageError("file", message, "")
        with self._lock:
            self._folder = self._folder or TemporaryDirectory(prefix="npu_sim_explorer_")
        folder = Path(self._folder.name)
        part = folder / f".part{next(self._numbers)}"
        try:
            with part.open("wb") as file:
                while length:
                    piece = body.read(min(PIECE, length))
                    if not piece:
                        raise UsageError(
                            "file", Text("{name} ended early", name=name), "drop it again"
                        )
                    length -= file.write(piece)
            with self._lock:
                part.replace(folder / name)
                files = [file for file in folder.iterdir() if NAME.fullmatch(file.name)]
                files.sort(key=lambda file: file.stat().st_mtime_ns)
                for old in files[:-MOST_FILES]:
                    old.unlink()
        finally:
            part.unlink(missing_ok=True)
        return folder / name

    def forget(self) -> None:
        """Remove the folder."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def without_folder(error: NpuSimError, folder: Path) -> NpuSimError:
    """Return an error whose message omits the temporary folder from file names."""

    def without(text: str) -> str:
        return type(text)(text.replace(f"{folder}{os.sep}", ""))

    message, hint = (with_changed_fields(text, without) for text in (error.message, error.hint))
    return type(error)(*(*error.args[:-2], message, hint))

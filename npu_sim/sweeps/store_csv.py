"""A sweep as a CSV file: one line a plan, codes written as words."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import numba
import numpy as np

from npu_sim.kernels.engine.cache import KernelCache
from npu_sim.sweeps.columns import RecordColumn
from npu_sim.sweeps.engine import usable_cores
from npu_sim.sweeps.space import Space
from npu_sim.sweeps.store_columns import cut_back

PIECE_ROWS = 1 << 13
"""Lines written as text at a time by one thread."""
LONGEST_NUMBER = 20
"""Characters of the longest 64-bit number, sign included."""
COMMA, NEWLINE, MINUS, ZERO = ord(","), ord("\n"), ord("-"), ord("0")


class CsvWriter:
    """Appends every chunk as text."""

    def __init__(self, partial: Path, space: Space, columns: tuple[RecordColumn, ...]) -> None:
        self.partial = partial
        self.least_bytes = 2 * len(columns) * space.rows  # a digit and a comma each
        self.columns = columns
        self._file: IO[bytes] | None = None

    def is_own(self, name: str) -> bool:
        """There is no folder."""
        return False

    def start(self) -> None:
        """Write the line of names."""
        line = ",".join(column.name for column in self.columns) + "\n"
        self.partial.write_bytes(line.encode())
        self.go_on({"bytes": len(line)})

    def go_on(self, state: dict[str, Any]) -> None:
        """Cut the file back to the complete lines."""
        self._file = self.partial.open("r+b")
        cut_back(self._file, int(state["bytes"]))

    def write(self, chunk: np.ndarray) -> dict[str, Any]:
        """Append a chunk."""
        assert self._file is not None
        pieces = [chunk[start : start + PIECE_ROWS] for start in range(0, len(chunk), PIECE_ROWS)]
        with ThreadPoolExecutor(usable_cores()) as pool:
            for text in pool.map(self._text, pieces):
                self._file.write(text.data)
        self._file.flush()
        return {"bytes": self._file.tell()}

    def finish(self, target: Path) -> None:
        """Give the file its final name."""
        self.close()
        self.partial.replace(target)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _text(self, records: np.ndarray) -> np.ndarray:
        values = np.empty((len(self.columns), len(records)), np.int64)
        words: list[bytes] = []
        first_words = np.full(len(self.columns), -1)
        longest = 0
        for position, column in enumerate(self.columns):
            codes, texts = _as_codes(column, records[column.name])
            values[position] = codes
            if texts:
                first_words[position] = len(words)
                words += texts
            longest += 1 + (max(map(len, texts)) if texts else LONGEST_NUMBER)
        ends = np.cumsum([0, *map(len, words)])
        text = np.empty(longest * len(records), np.uint8)
        size = _write_lines(
            text, values, first_words, np.frombuffer(b"".join(words) or b" ", np.uint8), ends
        )
        return text[:size]


def _as_codes(column: RecordColumn, values: np.ndarray) -> tuple[np.ndarray, list[bytes]]:
    """Return whole numbers, and the words they stand for; fp32 values become words of themselves."""
    if column.dtype.kind != "f":
        return values, [word.encode() for word in column.words]
    unique, codes = np.unique(values, return_inverse=True)
    return codes, [str(value).encode() for value in unique]


@numba.njit(nogil=True)
def _write_lines(text, values, first_words, words, ends):  # type: ignore[no-untyped-def]
    """Write one line a record; return the number of bytes written."""
    place = 0
    columns, rows = values.shape
    for row in range(rows):
        for column in range(columns):
            value = values[column, row]
            if first_words[column] >= 0:
                word = first_words[column] + value
                for position in range(ends[word], ends[word + 1]):
                    text[place] = words[position]
                    place += 1
            else:
                place = _write_number(text, place, value)
            text[place] = COMMA
            place += 1
        text[place - 1] = NEWLINE
    return place


@numba.njit(nogil=True)
def _write_number(text, place, value):  # type: ignore[no-untyped-def]
    """Write a whole number; return the place after it."""
    if value < 0:
        text[place] = MINUS
        place += 1
        value = -value
    left = np.uint64(value)
    ten = np.uint64(10)
    last = place
    probe = left // ten
    while probe > 0:
        probe //= ten
        last += 1
    for position in range(last, place - 1, -1):
        text[position] = ZERO + left % ten
        left //= ten
    return last + 1


if not numba.config.DISABLE_JIT:
    _write_lines._cache = KernelCache(
        _write_lines.py_func
    )  # a sweep of a few calls would compile longer than it runs

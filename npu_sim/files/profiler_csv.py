"""Launches from ``kernel_details.csv`` and ``op_summary_*.csv`` of the vendor's profilers.

The columns are those of the vendor's profiling guide, under the names of all its releases. Only the
kernel's type and duration are required.
"""

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from sys import intern

from npu_sim.files.measured_launch import (
    COUNTERS,
    MISSING,
    MeasuredLaunch,
    counter_name,
    refuse_more_launches,
    tensors_of,
)
from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.status import UsageError

LARGEST_FILE = 1 << 31
"""Largest CSV file in bytes."""
MICROSECONDS = {"": 1.0, "us": 1.0, "μs": 1.0, "µs": 1.0, "ns": 1e-3, "ms": 1e3, "s": 1e6}
"""Units of time in names of columns, such as ``Duration(ms)``; without one, microseconds."""
TENSOR_FACTS = ("shapes", "dtypes", "formats")
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "kernel": ("type", "op type"),
    "name": ("name", "op name"),
    "start_us": ("start time", "task start time"),
    "duration_us": ("duration", "task duration"),
    # In a file with both, the first counts blocks and the second their threads.
    "block_dim": ("block num", "block dim"),
    "input_shapes": ("input shapes",),
    "input_dtypes": ("input data types",),
    "input_formats": ("input formats",),
    "output_shapes": ("output shapes",),
    "output_dtypes": ("output data types",),
    "output_formats": ("output formats",),
    "core": ("accelerator core", "task type"),
    "stream": ("stream id",),
    "device": ("device_id", "device id"),
}
"""Names of a column in lower case without unit, those of newer files first."""


def read_csv(file: Path) -> Iterator[MeasuredLaunch]:
    """Yield the launches of a CSV file; raises like ``read_device_profile``."""
    if file.stat().st_size > LARGEST_FILE:
        hint = Text("at most {largest_file} bytes; split the file", largest_file=LARGEST_FILE)
        raise UsageError("file", Text("{file}: {st_size} bytes", file.stat(), file=file), hint)
    with file.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.reader(stream, strict=True)
        try:
            columns = _Columns(file, next(rows, []))
            launches = 0
            for cells in rows:
                if any(map(str.strip, cells)):
                    launches += 1
                    refuse_more_launches(file, launches)
                    yield columns.launch(rows.line_num, cells)
        except UnicodeDecodeError as error:
            message = Text(
                "{file}, line {line}: is not text: {reason}",
                error,
                file=file,
                line=_undecodable_line(file),
            )
            raise UsageError("file", message, "a CSV file in UTF-8") from None
        except csv.Error as error:
            raise UsageError(
                "file",
                Text("{file}, line {line_num}: is not CSV: {error}", rows, file=file, error=error),
                "a complete file of the profiler",
            ) from None


def _undecodable_line(file: Path) -> int:
    """Return the number of the first line that is not UTF-8."""
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return number


class _Columns:
    """Positions of the columns in one file."""

    def __init__(self, file: Path, header: list[str]) -> None:
        self.file = file
        self.header = [cell.strip().strip('"') for cell in header]
        by_name = {
            _column_name(name): index for index, name in reversed(list(enumerate(self.header)))
        }
        self.positions = {
            column: next(by_name[name] for name in names if name in by_name)
            for column, names in COLUMNS.items()
            if any(name in by_name for name in names)
        }
        for required in ("kernel", "duration_us"):
            if required not in self.positions:
                names = " or ".join(repr(name) for name in COLUMNS[required])
                raise UsageError(
                    "file",
                    Text("{file}, line 1: has no column {names}", file=file, names=names),
                    Text("its columns: {columns}", columns=", ".join(self.header)[:200] or "none"),
                )
        counters = {counter_name(name): position for position, name in enumerate(self.header)}
        self.counters = [counters.get(name) for name in COUNTERS]
        self.has_counters = any(position is not None for position in self.counters)
        timed = [self.positions.get("start_us"), self.positions["duration_us"], *self.counters[1:]]
        self.units = {position: self._unit(position) for position in timed if position is not None}
        self.tensors: dict[tuple[str, ...], tuple[TensorSpec | None, ...] | None] = {}
        """Parsed tensors by the text of their cells: most rows repeat a few combinations."""

    def _unit(self, position: int) -> float:
        """Return the microseconds of one unit of a column of times."""
        name = self.header[position]
        unit = name.partition("(")[2].partition(")")[0].strip().lower()
        if unit not in MICROSECONDS:
            message = Text(
                "{file}, line 1, column {name}: {unit} is not a unit of time",
                self,
                name=repr(name),
                unit=repr(unit),
            )
            hint = Text("one of {units}", units=", ".join(filter(None, MICROSECONDS)))
            raise UsageError("file", message, hint)
        return MICROSECONDS[unit]

    def launch(self, line: int, cells: list[str]) -> MeasuredLaunch:
        """Return the launch of one row."""
        if len(cells) != len(self.header):
            message = Text(
                "{file}, line {line}: {cells_count} columns",
                self,
                line=line,
                cells_count=len(cells),
            )
            hint = Text(
                "{header_count}, as in line 1; is the file complete?", header_count=len(self.header)
            )
            raise UsageError("file", message, hint)
        block_dim = self._number(line, cells, "block_dim")
        counters = tuple(
            0.0 if position is None else self._value(line, cells, position) or 0.0
            for position in self.counters
        )
        return MeasuredLaunch(
            line=line,
            kernel=intern(self._text(cells, "kernel")),
            name=intern(self._text(cells, "name")),
            duration_us=self._number(line, cells, "duration_us") or 0.0,
            start_us=self._number(line, cells, "start_us") or 0.0,
            block_dim=int(block_dim) if block_dim else None,  # 0: not recorded
            inputs=self._tensors(line, cells, "input"),
            outputs=self._tensors(line, cells, "output"),
            stream=intern(f"{self._text(cells, 'device')}/{self._text(cells, 'stream')}"),
            core=intern(self._text(cells, "core")),
            counters=counters if self.has_counters else (),
        )

    def _text(self, cells: list[str], column: str) -> str:
        return cells[self.positions[column]].strip() if column in self.positions else ""

    def _number(self, line: int, cells: list[str], column: str) -> float | None:
        return (
            self._value(line, cells, self.positions[column]) if column in self.positions else None
        )

    def _value(self, line: int, cells: list[str], position: int) -> float | None:
        """Return a number, a time in microseconds; None if missing."""
        cell = cells[position]
        try:
            value = float(cell)
        except ValueError:
            text = cell.strip().strip('"')
            if text.upper() in MISSING:
                return None
            try:
                value = float(text)
            except ValueError:
                value = math.nan
        if not 0 <= value < math.inf:
            problem = "{value} is negative" if value < 0 else "{value} is not a number"
            message = Text(
                "{file}, line {line}, column {name}: {problem}",
                self,
                line=line,
                name=repr(self.header[position]),
                problem=Text(problem, value=repr(cell.strip().strip('"'))),
            )
            raise UsageError("file", message, "a number, 0 or larger, or N/A")
        return value * self.units.get(position, 1.0)

    def _tensors(
        self, line: int, cells: list[str], side: str
    ) -> tuple[TensorSpec | None, ...] | None:
        """Return the inputs or outputs of a row; None if the file does not record them."""
        texts = tuple(self._text(cells, f"{side}_{fact}") for fact in TENSOR_FACTS)
        try:
            if texts not in self.tensors:
                self.tensors[texts] = tensors_of(*texts)
            return self.tensors[texts]
        except ValueError as error:
            column = self.header[self.positions[f"{side}_shapes"]]
            message = Text(
                "{file}, line {line}, column {column}: {error}",
                self,
                line=line,
                column=repr(column),
                error=error,
            )
            raise UsageError("file", message, 'such as "4096,1024;1024"') from None


def _column_name(name: str) -> str:
    """Return the name of a column as in COLUMNS: in lower case, without unit."""
    return name.partition("(")[0].strip().lower()

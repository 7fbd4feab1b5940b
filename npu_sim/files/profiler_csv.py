"""Launches from ``kernel_details.csv`` and ``op_summary_*.csv`` of the vendor's profilers.

The columns are those of the vendor's profiling guide, under the names of all its releases. Only the
kernel's type and duration are required.
"""

import csv
import io
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from npu_sim.files.measured_launch import MISSING, MeasuredLaunch, counter_name, tensors_of
from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.status import UsageError

LARGEST_FILE = 1 << 31
"""Largest CSV file in bytes."""
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
        raise UsageError(
            "file",
            Text("{file}: {st_size} bytes", file=file, st_size=file.stat().st_size),
            Text("at most {largest_file} bytes; split the file", largest_file=LARGEST_FILE),
        )
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = file.read_bytes()[: error.start].count(b"\n") + 1
        raise UsageError(
            "file",
            Text(
                "{file}, line {line}: is no text: {reason}",
                file=file,
                line=line,
                reason=error.reason,
            ),
            "a CSV file in UTF-8",
        ) from None
    rows = csv.reader(io.StringIO(text), strict=True)
    try:
        header = next(rows, [])
        columns = _Columns(file, header)
        for cells in rows:
            if any(cell.strip() for cell in cells):
                yield columns.launch(rows.line_num, cells)
    except csv.Error as error:
        raise UsageError(
            "file",
            Text(
                "{file}, line {line_num}: is no CSV: {error}",
                file=file,
                line_num=rows.line_num,
                error=error,
            ),
            "a whole file of the profiler",
        ) from None


class _Columns:
    """Positions of the columns in one file."""

    def __init__(self, file: Path, header: list[str]) -> None:
        self.file = file
        self.header = [cell.strip().strip('"') for cell in header]
        positions = {_plain(name): index for index, name in reversed(list(enumerate(self.header)))}
        self.places = {
            column: next(positions[name] for name in names if name in positions)
            for column, names in COLUMNS.items()
            if any(name in positions for name in names)
        }
        for wanted in ("kernel", "duration_us"):
            if wanted not in self.places:
                names = " or ".join(repr(name) for name in COLUMNS[wanted])
                raise UsageError(
                    "file",
                    Text("{file}, line 1: has no column {names}", file=file, names=names),
                    Text("its columns: {columns}", columns=", ".join(self.header)[:200] or "none"),
                )
        known = set(self.places.values())
        self.counters = {
            place: name
            for place, name in enumerate(self.header)
            if place not in known and _is_counter(name)
        }

    def launch(self, line: int, cells: list[str]) -> MeasuredLaunch:
        """Return the launch of one row."""
        if len(cells) != len(self.header):
            raise UsageError(
                "file",
                Text(
                    "{file}, line {line}: {cells_count} columns",
                    file=self.file,
                    line=line,
                    cells_count=len(cells),
                ),
                Text(
                    "{header_count}, as in line 1; is the file whole?",
                    header_count=len(self.header),
                ),
            )
        block_dim = self._number(line, cells, "block_dim")
        counters = {
            counter_name(name): self._value(line, name, cells[place])
            for place, name in self.counters.items()
        }
        return MeasuredLaunch(
            line=line,
            kernel=self._text(cells, "kernel"),
            name=self._text(cells, "name"),
            duration_us=self._number(line, cells, "duration_us") or 0.0,
            start_us=self._number(line, cells, "start_us") or 0.0,
            block_dim=None if block_dim is None else int(block_dim),
            inputs=self._tensors(line, cells, "input"),
            outputs=self._tensors(line, cells, "output"),
            stream=f"{self._text(cells, 'device')}/{self._text(cells, 'stream')}",
            core=self._text(cells, "core"),
            counters={name: value for name, value in counters.items() if value is not None},
        )

    def _text(self, cells: list[str], column: str) -> str:
        return cells[self.places[column]].strip() if column in self.places else ""

    def _number(self, line: int, cells: list[str], column: str) -> float | None:
        if column not in self.places:
            return None
        return self._value(line, self.header[self.places[column]], cells[self.places[column]])

    def _value(self, line: int, name: str, cell: str) -> float | None:
        text = cell.strip().strip('"')
        if text.upper() in MISSING:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UsageError(
                "file",
                Text(
                    "{file}, line {line}, column {name}: {text} is not a number",
                    file=self.file,
                    line=line,
                    name=repr(name),
                    text=repr(text),
                ),
                "a number, or N/A",
            )
        return value

    def _tensors(
        self, line: int, cells: list[str], side: str
    ) -> tuple[TensorSpec | None, ...] | None:
        shapes, dtypes, formats = (
            self._text(cells, f"{side}_{fact}") for fact in ("shapes", "dtypes", "formats")
        )
        try:
            return tensors_of(shapes, dtypes, formats)
        except ValueError as error:
            column = self.header[self.places[f"{side}_shapes"]]
            raise UsageError(
                "file",
                Text(
                    "{file}, line {line}, column {column}: {error}",
                    file=self.file,
                    line=line,
                    column=repr(column),
                    error=error,
                ),
                'such as "4096,1024;1024"',
            ) from None


def _plain(name: str) -> str:
    return name.partition("(")[0].strip().lower()


def _is_counter(name: str) -> bool:
    return name.startswith(("aic", "aiv", "cube")) and name.partition("(")[0].endswith(
        ("_time", "_cycles", "_ratio", "_rate", "utilization")
    )

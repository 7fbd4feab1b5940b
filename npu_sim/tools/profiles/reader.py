"""Profiles of a device: the vendor's CSV files or its SQLite export, one launch per row.

A folder is a data base of measured kernels, as the vendor's model of performance has it: a CSV file
for every kernel, named after it, a row for every combination of shapes and dtypes with average,
median and standard deviation of its time and the averages of its counters, without block dims.

``kernel_details.csv``, ``op_summary_*.csv`` and the export are read. The columns of the files are
those of the vendor's profiling guide, under the names of all its releases. Only the kernel's type
and duration are required.

An export has launches in ``TASK`` and ``COMPUTE_TASK_INFO``, texts in ``STRING_IDS`` and counters
in ``TASK_PMU_INFO`` (the guide, "Profile Data File Reference (DB)"). The file is untrusted: only
plain tables are read, with limits on time, rows and lengths of texts.
"""

import csv
import math
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, islice, zip_longest
from operator import attrgetter
from pathlib import Path
from sys import intern
from typing import Any

from npu_sim.files.reading import lines_of, open_plain
from npu_sim.language import Text
from npu_sim.numbers.arrays import Shape
from npu_sim.numbers.formats import TensorSpec
from npu_sim.status import UsageError

MISSING = ("", "N/A", "NA", "NULL")
"""Texts that profilers write for a missing value."""
DTYPES = {
    "FLOAT": "float32",
    "FLOAT32": "float32",
    "FLOAT16": "float16",
    "BF16": "bfloat16",
    "BFLOAT16": "bfloat16",
} | {name.upper(): name for name in ("float64", "int8", "uint8", "int16", "int32", "int64", "bool")}
"""dtypes by the profiler's name, without the prefix ``DT_`` of some rows."""


COUNTERS = (
    "aiv_total_cycles",
    "aiv_time",
    "aiv_vec_time",
    "aiv_mte2_time",
    "aiv_mte3_time",
    "aiv_scalar_time",
)
"""Hardware counters that are read: cycles, and times in microseconds; others are ignored."""
MOST_LAUNCHES = 2_000_000
"""Most launches of a profile; each takes about 500 bytes of memory."""


SQLITE_START = b"SQLite format 3\x00"
"""First bytes of every SQLite file."""


@dataclass(frozen=True, slots=True)
class MeasuredLaunch:
    """One launch of a kernel on a device."""

    line: int
    """Line in the file, or row number in a database."""
    kernel: str
    """Type of the kernel."""
    name: str
    """Name of the launch."""
    duration_us: float
    """Measured time in microseconds; 0 if not recorded."""
    start_us: float = 0.0
    """Start time in microseconds; 0 if not recorded."""
    block_dim: int | None = None
    """Number of blocks; None if not recorded."""
    inputs: tuple[TensorSpec | None, ...] | None = None
    """Input tensors; None if not recorded, an element None for an unsupported dtype."""
    outputs: tuple[TensorSpec | None, ...] | None = None
    """Output tensors, likewise."""
    stream: str = ""
    """Device and stream, as ``device/stream``."""
    core: str = ""
    """Kind of core, as the profiler names it."""
    counters: tuple[float, ...] = ()
    """Hardware counters in the order of ``COUNTERS``, 0 where not recorded; empty without any."""

    @property
    def is_vector(self) -> bool:
        """Whether the launch ran on vector cores.

        True also when the core is not recorded, since most modelled kernels run on vector cores.
        """
        return "CUBE" not in self.core.upper() and self.core.upper() not in (
            "AI_CORE",
            "MIX_AIC",
            "AI_CPU",
            "COMMUNICATION",
            "HCCL",
        )

    def counter(self, name: str) -> float:
        """Return a counter; 0 if not recorded."""
        return self.counters[COUNTERS.index(name)] if self.counters else 0.0


@lru_cache(maxsize=4096)  # most rows repeat a few combinations
def tensors_of(shapes: str, dtypes: str, formats: str) -> tuple[TensorSpec | None, ...] | None:
    """Return the tensors of a row; None if not recorded, an element None for an unsupported dtype.

    Axes are separated by commas and tensors by semicolons, in quotes or brackets; an empty shape is
    a scalar.

    Raises ValueError for a malformed shape, or a different number of shapes and dtypes.
    """
    if shapes.strip().upper() in MISSING or dtypes.strip().upper() in MISSING:
        return None
    texts = shapes.strip().strip('"').split(";")
    names = [
        name.strip().upper().removeprefix("DT_") for name in dtypes.strip().strip('"').split(";")
    ]
    if len(texts) != len(names):
        raise ValueError(
            Text("{shapes} shapes for {dtypes} dtypes", shapes=len(texts), dtypes=len(names))
        )
    layouts = [name.strip().upper() for name in formats.strip().strip('"').split(";")]
    tensors: list[TensorSpec | None] = []
    for text, name, layout in zip_longest(texts, names, layouts[: len(names)], fillvalue=""):
        shape, layout = _shape(text), "ND" if layout in MISSING else layout
        known = name in DTYPES
        tensors.append(TensorSpec(shape, DTYPES[name], storage_format=layout) if known else None)
    return tuple(tensors)


def _shape(text: str) -> Shape:
    axes = [axis.strip() for axis in text.strip().strip('"').strip("[]()").split(",")]
    if axes == [""]:
        return ()
    if any(not axis.isdecimal() for axis in axes):
        raise ValueError(Text("{text} is not a shape", text=repr(text)))
    return tuple(map(int, axes))


def refuse_more_launches(file: object, launches: int) -> None:
    """Raise a usage error when a profile has more than ``MOST_LAUNCHES`` launches."""
    if launches > MOST_LAUNCHES:
        raise UsageError(
            "file",
            "{file}: more than {most} launches",
            "a part of the file, such as a few steps of the training",
            file=file,
            most=MOST_LAUNCHES,
        )


def counter_name(name: str) -> str:
    """Return the name of a counter without its unit."""
    return name.partition("(")[0].strip()


FILE_HINT = Text("kernel_details.csv, op_summary_*.csv or the .db of a profiler")
FILES_HINT = Text("a folder with a CSV file for every kernel")
LARGEST_FILE = 1 << 31
"""Largest CSV file in bytes."""
MICROSECONDS = {"": 1.0, "us": 1.0, "μs": 1.0, "µs": 1.0, "ns": 1e-3, "ms": 1e3, "s": 1e6}
"""Units of time in names of columns, such as ``Duration(ms)``; without one, microseconds."""
TENSOR_FACTS = ("shapes", "dtypes", "formats")
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "kernel": ("type", "op type"),
    "name": ("name", "op name"),
    "start_us": ("start time", "task start time"),
    "duration_us": (
        "duration",
        "task duration",
        "profiling median duration",
        "median duration",
        "profiling average duration",
        "average duration",
    ),
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
"""Names of a column in lower case without unit, those of newer files first; of the times of a data
base the median first."""
AVERAGES = ("profiling average ", "average ", "microbench ")
"""What stands before the names of counters in a data base."""
MOST_FILES = 10_000
"""Most files of a data base."""


def read_csv(file: Path, kernel: str = "") -> Iterator[MeasuredLaunch]:
    """Yield the launches of a CSV file; raises like ``read_device_profile``.

    With ``kernel`` the file is one of a data base: its rows without a time were not measured.
    """
    with open_plain("file", file, FILE_HINT) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > LARGEST_FILE:
            raise UsageError(
                "file",
                "{file}: {size} bytes",
                "at most {largest_file} bytes; split the file",
                file=file,
                size=size,
                largest_file=LARGEST_FILE,
            )
        rows = csv.reader(_decoded(file, lines_of(stream)), strict=True)
        try:
            columns = _Columns(file, next(rows, []), kernel)
            recorded = (cells for cells in rows if any(map(str.strip, cells)))
            for launches, cells in enumerate(recorded, start=1):
                refuse_more_launches(file, launches)
                launch = columns.launch(rows.line_num, cells)
                if launch.duration_us or not kernel:
                    yield launch
        except csv.Error as error:
            raise UsageError(
                "file",
                "{file}, line {line_num}: is not CSV: {error}",
                "a complete file of the profiler",
                file=file,
                line_num=rows.line_num,
                error=error,
            ) from None


def _without_prefix(name: str) -> str:
    """Return the name of a counter without what a data base puts before it."""
    prefix = next((prefix for prefix in AVERAGES if name.lower().startswith(prefix)), "")
    return name[len(prefix) :]


def read_folder(folder: Path) -> Iterator[MeasuredLaunch]:
    """Yield the measured rows of a data base; lines are numbered through its files."""
    files = sorted(islice(folder.rglob("*.csv"), MOST_FILES + 1))
    if not files:
        raise UsageError("file", "{folder}: a folder without CSV files", FILES_HINT, folder=folder)
    if len(files) > MOST_FILES:
        raise UsageError(
            "file",
            "{folder}: more than {most} CSV files",
            FILES_HINT,
            folder=folder,
            most=MOST_FILES,
        )
    launches = (launch for file in files for launch in read_csv(file, kernel=file.stem))
    for line, launch in enumerate(launches, start=1):
        refuse_more_launches(folder, line)
        yield replace(launch, line=line)


def _decoded(file: Path, lines: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of a file as text."""
    for number, line in enumerate(lines, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(
                "file",
                "{file}, line {line}: is not text: {reason}",
                "a CSV file in UTF-8",
                file=file,
                line=number,
                reason=error.reason,
            ) from None


class _Columns:
    """Positions of the columns in one file."""

    def __init__(self, file: Path, header: list[str], kernel: str) -> None:
        self.file, self.kernel = file, kernel
        self.header = [cell.strip().strip('"') for cell in header]
        by_name = {
            counter_name(name).lower(): index
            for index, name in reversed(list(enumerate(self.header)))
        }
        self.positions = {
            column: next(by_name[name] for name in names if name in by_name)
            for column, names in COLUMNS.items()
            if any(name in by_name for name in names)
        }
        for required in ("duration_us",) if kernel else ("kernel", "duration_us"):
            if required not in self.positions:
                raise UsageError(
                    "file",
                    "{file}, line 1: has none of the columns {names}",
                    "{files}; this file has the columns {columns}",
                    file=file,
                    files=FILE_HINT,
                    names=", ".join(repr(name) for name in COLUMNS[required]),
                    columns=", ".join(self.header)[:200] or "none",
                )
        names = COLUMNS["duration_us"]
        self.durations = [by_name[name] for name in names if name in by_name]
        counters = {
            _without_prefix(counter_name(name)): position
            for position, name in reversed(list(enumerate(self.header)))
        }
        self.counters = [counters.get(name) for name in COUNTERS]
        self.has_counters = any(position is not None for position in self.counters)
        timed = [self.positions.get("start_us"), *self.durations, *self.counters[1:]]
        self.units = {position: self._unit(position) for position in timed if position is not None}

    def _unit(self, position: int) -> float:
        """Return the microseconds of one unit of a column of times."""
        name = self.header[position]
        unit = name.partition("(")[2].partition(")")[0].strip().lower()
        if unit not in MICROSECONDS:
            raise UsageError(
                "file",
                "{file}, line 1, column {name}: {unit} is not a unit of time",
                "one of {units}",
                file=self.file,
                name=repr(name),
                unit=repr(unit),
                units=", ".join(filter(None, MICROSECONDS)),
            )
        return MICROSECONDS[unit]

    def launch(self, line: int, cells: list[str]) -> MeasuredLaunch:
        """Return the launch of one row."""
        if len(cells) != len(self.header):
            raise UsageError(
                "file",
                "{file}, line {line}: {cells_count} columns",
                "{header_count}, as in line 1; is the file complete?",
                file=self.file,
                line=line,
                cells_count=len(cells),
                header_count=len(self.header),
            )
        block_dim = self._number(line, cells, "block_dim")
        durations = (self._value(line, cells, position) for position in self.durations)
        counters = tuple(
            0.0 if position is None else self._value(line, cells, position) or 0.0
            for position in self.counters
        )
        return MeasuredLaunch(
            line=line,
            kernel=intern(self._text(cells, "kernel") or self.kernel),
            name=intern(self._text(cells, "name")),
            duration_us=next(filter(None, durations), 0.0),
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
            raise UsageError(
                "file",
                "{file}, line {line}, column {name}: {problem}",
                "a number, 0 or larger, or N/A",
                file=self.file,
                line=line,
                name=repr(self.header[position]),
                problem=Text(
                    "{value} is negative" if value < 0 else "{value} is not a number",
                    value=repr(cell.strip().strip('"')),
                ),
            )
        return value * self.units.get(position, 1.0)

    def _tensors(
        self, line: int, cells: list[str], side: str
    ) -> tuple[TensorSpec | None, ...] | None:
        """Return the inputs or outputs of a row; None if the file does not record them."""
        try:
            return tensors_of(*(self._text(cells, f"{side}_{fact}") for fact in TENSOR_FACTS))
        except ValueError as error:
            raise UsageError(
                "file",
                "{file}, line {line}, column {column}: {error}",
                'such as "4096,1024;1024"',
                file=self.file,
                line=line,
                column=repr(self.header[self.positions[f"{side}_shapes"]]),
                error=error,
            ) from None


def read_device_profile(path: str | Path) -> tuple[MeasuredLaunch, ...]:
    """Return all launches of a profile, ordered by start time, or the rows of a data base.

    Raises UsageError when the file cannot be read, has another format, or contains a launch twice;
    the message names file, line and column.
    """
    file = Path(path)
    if file.is_dir():
        return tuple(read_folder(file))
    with open_plain("file", file, FILE_HINT) as stream:
        start = stream.read(len(SQLITE_START))
    if file.suffix.lower() == ".db" and start != SQLITE_START:
        raise UsageError(
            "file",
            "{file}: is not an SQLite database, which its name says it is",
            "the whole .db of a profiler; a CSV file under a name that ends in .csv",
            file=file,
        )
    launches = read_database(file) if start == SQLITE_START else read_csv(file)
    ordered = tuple(sorted(launches, key=attrgetter("start_us")))
    _refuse_repeated_launches(file, ordered)
    return ordered


def _refuse_repeated_launches(file: Path, launches: Sequence[MeasuredLaunch]) -> None:
    """Raise a usage error when launches stand twice, as in joined files: their times would too.

    - ``launches``: ordered by start time.
    """
    repeated = []
    for start_us, together in groupby(launches, key=attrgetter("start_us")):
        first: dict[Any, MeasuredLaunch] = {}
        for launch in together if start_us else ():
            facts = launch.stream, launch.kernel, launch.name, launch.duration_us
            if launch.duration_us and first.setdefault(facts, launch) is not launch:
                repeated.append(launch)
    if repeated:
        raise UsageError(
            "file",
            "{file}: {count} of {launches} launches stand twice, such as {name} in line {line}: "
            "same stream, start time and duration",
            "every launch once: were files joined that contain the same steps?",
            file=file,
            count=len(repeated),
            launches=len(launches),
            name=repeated[0].name or repeated[0].kernel,
            line=repeated[0].line,
        )


TENSOR_COLUMNS = {
    "input": ("inputShapes", "inputDataTypes", "inputFormats"),
    "output": ("outputShapes", "outputDataTypes", "outputFormats"),
}
"""Columns of ``COMPUTE_TASK_INFO`` that describe tensors."""
BLOCK_COLUMNS = ("blockNum", "blockDim", "block_dim")
"""Names of the column with the number of blocks, newer ones first."""
INFO, TASK, STRINGS, COUNTED = "COMPUTE_TASK_INFO", "TASK", "STRING_IDS", "TASK_PMU_INFO"
REQUIRED = {
    INFO: ("opType", "globalTaskId"),
    TASK: ("globalTaskId", "startNs", "endNs"),
    STRINGS: ("id", "value"),
}
"""Columns without which a file is not an export of the profiler."""
LONGEST_TEXT = 1 << 20
"""Most bytes of a text or of a row."""
LONGEST_READING_S = 60.0
"""Most seconds for all queries of a file."""
STEPS_BETWEEN_CHECKS = 100_000
"""Steps of SQLite's virtual machine between two checks of the time."""
MOST_ROWS = 50_000_000
"""Most rows of the tables of texts and of counters, of which a launch has several."""


def read_database(file: Path) -> Iterator[MeasuredLaunch]:
    """Yield the launches of a database; raises like ``read_device_profile``."""
    deadline = time.monotonic() + LONGEST_READING_S
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)
            database.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_CHECKS)
            database.execute("PRAGMA trusted_schema = OFF")
            yield from _Database(file, database).launches()
    except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
        raise UsageError(
            "file",
            "{file}: reading takes longer than {seconds:.0f} s"
            if time.monotonic() > deadline
            else "{file}: cannot be read as a database: {error}",
            "a whole .db file of the profiler",
            file=file,
            seconds=LONGEST_READING_S,
            error=error,
        ) from None


@dataclass
class _Database:
    """An open export; ``texts`` are the values of ``STRING_IDS``."""

    file: Path
    database: sqlite3.Connection

    def __post_init__(self) -> None:
        self.columns = {table: self._columns(table) for table in (*REQUIRED, COUNTED)}
        for table, wanted in REQUIRED.items():
            for column in wanted:
                if column not in self.columns[table]:
                    raise UsageError(
                        "file",
                        "{file}: has no table {table} with a column {wanted}",
                        "an export of the profiler",
                        file=self.file,
                        table=table,
                        wanted=column,
                    )
        self.texts: dict[Any, str] = {}
        for row, number, value in self._rows(STRINGS, "rowid, id, value"):
            if not isinstance(value, str):
                raise self._wrong(STRINGS, row, "value", value, "a text")
            self.texts[number] = value

    def launches(self) -> Iterator[MeasuredLaunch]:
        """Yield the launches in the order of the file."""
        counters = self._counters()
        info, task_columns = self.columns[INFO], self.columns[TASK]
        blocks = next((name for name in BLOCK_COLUMNS if name in info), "")
        names = ("opType", "name", "taskType", *sum(TENSOR_COLUMNS.values(), ()))
        selected = (
            *(f"c.{name}" if name in info else "NULL" for name in (blocks, *names)),
            *(f"t.{name}" if name in task_columns else "NULL" for name in STREAM_COLUMNS),
        )
        query = (
            f"SELECT c.rowid, t.rowid, c.globalTaskId, t.startNs, t.endNs, {', '.join(selected)} "
            f"FROM {INFO} c LEFT JOIN {TASK} t ON t.globalTaskId = c.globalTaskId"
        )
        for count, record in enumerate(self.database.execute(query), start=1):
            refuse_more_launches(self.file, count)
            row, task_row, task, start, end, block_dim, *values, device, stream = record
            text = {
                name: self._text(row, name, value)
                for name, value in zip(names, values, strict=True)
            }
            if values[0] is None:
                raise self._wrong(INFO, row, "opType", None, "a text")
            begin = duration = 0.0  # no row in TASK: not recorded
            if task_row is not None:
                begin = self._number(TASK, task_row, "startNs", start)
                duration = self._number(TASK, task_row, "endNs", end) - begin
            if duration < 0:
                raise self._wrong(TASK, task_row, "endNs", end, "startNs or later")
            number = 0.0 if block_dim is None else self._number(INFO, row, blocks, block_dim)
            yield MeasuredLaunch(
                line=row,
                kernel=text["opType"],
                name=text["name"],
                duration_us=duration / 1000,
                start_us=begin / 1000,
                block_dim=int(number) or None,  # 0: not recorded
                inputs=self._tensors(row, text, "input"),
                outputs=self._tensors(row, text, "output"),
                stream=f"{device}/{stream}",
                core=text["taskType"],
                counters=counters.get(task, ()),
            )

    def _columns(self, table: str) -> set[str]:
        """Return the stored columns of a table; empty for a view, which may compute for ever."""
        found = self.database.execute(
            "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
        ).fetchone()
        if found is None or "VIRTUAL" in str(found[0]).upper().split("(")[0]:
            return set()
        return {str(column[1]) for column in self.database.execute(f"PRAGMA table_info({table})")}

    def _rows(self, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table, up to the most that are read."""
        rows = self.database.execute(f"SELECT {columns} FROM {table}")
        for count, row in enumerate(rows, start=1):
            if count > MOST_ROWS:
                raise UsageError(
                    "file",
                    "{file}, table {table}: more than {most} rows",
                    "a part of the file, such as a few steps of the training",
                    file=self.file,
                    table=table,
                    most=MOST_ROWS,
                )
            yield row

    def _counters(self) -> dict[Any, tuple[float, ...]]:
        """Return the counters of every task, in the order of ``COUNTERS``."""
        if not {"globalTaskId", "name", "value"} <= self.columns[COUNTED]:
            return {}
        found: dict[Any, list[float]] = {}
        for row, task, name, value in self._rows(COUNTED, "rowid, globalTaskId, name, value"):
            counter = counter_name(str(self.texts.get(name, name)))
            number = self._number(COUNTED, row, "value", value)
            if counter in COUNTERS:
                found.setdefault(task, [0.0] * len(COUNTERS))[COUNTERS.index(counter)] = number
        return {task: tuple(numbers) for task, numbers in found.items()}

    def _text(self, row: int, column: str, value: Any) -> str:
        """Return a text of ``COMPUTE_TASK_INFO``, stored by its number; empty if missing."""
        if isinstance(value, bytes | float):
            raise self._wrong(INFO, row, column, value, "the number of a text")
        return "" if value is None else self.texts.get(value, str(value))

    def _number(self, table: str, row: int, column: str, value: Any) -> float:
        if not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise self._wrong(table, row, column, value, "a number, 0 or larger")
        return value

    def _tensors(
        self, row: int, text: dict[str, str], side: str
    ) -> tuple[TensorSpec | None, ...] | None:
        try:
            return tensors_of(*(text[name] for name in TENSOR_COLUMNS[side]))
        except ValueError as error:
            raise UsageError(
                "file",
                "{file}, row {row} of COMPUTE_TASK_INFO: {error}",
                'such as "4096,1024;1024"',
                file=self.file,
                row=row,
                error=error,
            ) from None

    def _wrong(self, table: str, row: int, column: str, value: Any, wanted: str) -> UsageError:
        """Return the error of a cell."""
        return UsageError(
            "file",
            "{file}, table {table}, row {row}, column {column}: {value}",
            wanted,
            file=self.file,
            table=table,
            row=row,
            column=column,
            value="NULL" if value is None else repr(value)[:40],
        )


STREAM_COLUMNS = ("deviceId", "streamId")
"""Columns of ``TASK`` that identify a stream."""

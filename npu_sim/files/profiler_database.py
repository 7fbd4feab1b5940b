"""Launches from the SQLite export of the vendor's profilers.

Launches are in ``TASK`` and ``COMPUTE_TASK_INFO``, texts in ``STRING_IDS`` and counters in
``TASK_PMU_INFO`` (the vendor's profiling guide, "Profile Data File Reference (DB)"). The file is
untrusted: only plain tables are read, with limits on time, rows and lengths of texts.
"""

import math
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_sim.files.measured_launch import (
    COUNTERS,
    MeasuredLaunch,
    counter_name,
    refuse_more_launches,
    tensors_of,
)
from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.status import UsageError

SQLITE_START = b"SQLite format 3\x00"
"""First bytes of every SQLite file."""
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
        problem = Text("{file}: cannot be read as a database: {error}", file=file, error=error)
        if time.monotonic() > deadline:
            problem = Text(
                "{file}: reading takes longer than {seconds:.0f} s",
                file=file,
                seconds=LONGEST_READING_S,
            )
        raise UsageError("file", problem, "a whole .db file of the profiler") from None


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
                    message = Text(
                        "{file}: has no table {table} with a column {wanted}",
                        self,
                        table=table,
                        wanted=column,
                    )
                    raise UsageError("file", message, "an export of the profiler")
        self.texts: dict[Any, str] = {}
        for row, number, value in self._rows(STRINGS, "rowid, id, value"):
            if not isinstance(value, str):
                raise self._wrong(STRINGS, row, "value", value, "a text")
            self.texts[number] = value
        self.tensors: dict[tuple[str, ...], tuple[TensorSpec | None, ...] | None] = {}

    def launches(self) -> Iterator[MeasuredLaunch]:
        """Yield the launches in the order of the file."""
        counters = self._counters()
        info, task_columns = self.columns[INFO], self.columns[TASK]
        blocks = next((name for name in BLOCK_COLUMNS if name in info), "")
        names = ("opType", "name", "taskType", *sum(TENSOR_COLUMNS.values(), ()))
        selected = [f"c.{name}" if name in info else "NULL" for name in (blocks, *names)]
        selected += [f"t.{name}" if name in task_columns else "NULL" for name in STREAM_COLUMNS]
        query = (
            f"SELECT c.rowid, t.rowid, c.globalTaskId, t.startNs, t.endNs, {', '.join(selected)} "
            f"FROM {INFO} c JOIN {TASK} t ON t.globalTaskId = c.globalTaskId"
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
        kind = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?"
        found = self.database.execute(kind, (table,)).fetchone()
        if found is None or "VIRTUAL" in str(found[0]).upper().split("(")[0]:
            return set()
        return {str(column[1]) for column in self.database.execute(f"PRAGMA table_info({table})")}

    def _rows(self, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table, up to the most that are read."""
        rows = self.database.execute(f"SELECT {columns} FROM {table}")
        for count, row in enumerate(rows, start=1):
            if count > MOST_ROWS:
                message = Text(
                    "{file}, table {table}: more than {most} rows",
                    self,
                    table=table,
                    most=MOST_ROWS,
                )
                hint = "a part of the file, such as a few steps of the training"
                raise UsageError("file", message, hint)
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
        shapes, dtypes, formats = texts = tuple(text[name] for name in TENSOR_COLUMNS[side])
        try:
            if texts not in self.tensors:
                self.tensors[texts] = tensors_of(shapes, dtypes, formats)
            return self.tensors[texts]
        except ValueError as error:
            raise UsageError(
                "file",
                Text("{file}, row {row} of COMPUTE_TASK_INFO: {error}", self, row=row, error=error),
                'such as "4096,1024;1024"',
            ) from None

    def _wrong(self, table: str, row: int, column: str, value: Any, wanted: str) -> UsageError:
        """Return the error of a cell."""
        shown = "NULL" if value is None else repr(value)[:40]
        message = Text(
            "{file}, table {table}, row {row}, column {column}: {value}",
            self,
            table=table,
            row=row,
            column=column,
            value=shown,
        )
        return UsageError("file", message, wanted)


STREAM_COLUMNS = ("deviceId", "streamId")
"""Columns of ``TASK`` that identify a stream."""

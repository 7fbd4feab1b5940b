"""Launches from the SQLite export of the vendor's profilers.

Launches are in ``TASK`` and ``COMPUTE_TASK_INFO``, texts in ``STRING_IDS`` and counters in
``TASK_PMU_INFO`` (the vendor's profiling guide, "Profile Data File Reference (DB)").
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from npu_sim.files.measured_launch import MeasuredLaunch, counter_name, tensors_of
from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.status import UsageError

SQLITE_START = b"SQLite format 3\x00"
"""First bytes of every SQLite file."""
TENSOR_COLUMNS = {
    "input_shapes": "inputShapes",
    "input_dtypes": "inputDataTypes",
    "input_formats": "inputFormats",
    "output_shapes": "outputShapes",
    "output_dtypes": "outputDataTypes",
    "output_formats": "outputFormats",
}
"""Columns of ``COMPUTE_TASK_INFO`` that describe tensors."""
BLOCK_COLUMNS = ("blockNum", "blockDim", "block_dim")
"""Names of the column with the number of blocks, newer ones first."""


def read_database(file: Path) -> Iterator[MeasuredLaunch]:
    """Yield the launches of a database; raises like ``read_device_profile``."""
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
            yield from _database_launches(file, database)
    except sqlite3.Error as error:
        raise UsageError(
            "file",
            Text("{file}: cannot be read as a database: {error}", file=file, error=error),
            "a whole .db file of the profiler",
        ) from None


def _database_launches(file: Path, database: sqlite3.Connection) -> Iterator[MeasuredLaunch]:
    columns = {
        table: _names(database, table)
        for table in ("COMPUTE_TASK_INFO", "TASK", "STRING_IDS", "TASK_PMU_INFO")
    }
    for table, wanted in (
        ("COMPUTE_TASK_INFO", "opType"),
        ("TASK", "globalTaskId"),
        ("STRING_IDS", "value"),
    ):
        if wanted not in columns[table]:
            raise UsageError(
                "file",
                Text(
                    "{file}: has no table {table} with a column {wanted}",
                    file=file,
                    table=table,
                    wanted=wanted,
                ),
                "an export of the profiler",
            )
    texts = dict(database.execute("SELECT id, value FROM STRING_IDS"))
    counters: dict[int, dict[str, float]] = {}
    if columns["TASK_PMU_INFO"]:
        for task, name, value in database.execute(
            "SELECT globalTaskId, name, value FROM TASK_PMU_INFO"
        ):
            counters.setdefault(task, {})[counter_name(str(texts.get(name, name)))] = float(value)
    info = columns["COMPUTE_TASK_INFO"]
    blocks = next((name for name in BLOCK_COLUMNS if name in info), "")
    selected = [
        f"c.{name}" if name in info else "NULL"
        for name in ("name", blocks, "taskType", *TENSOR_COLUMNS.values())
    ]
    selected += [
        f"t.{name}" if name in columns["TASK"] else "NULL" for name in ("deviceId", "streamId")
    ]
    query = (
        f"SELECT c.rowid, c.globalTaskId, c.opType, t.startNs, t.endNs, {', '.join(selected)} "
        "FROM COMPUTE_TASK_INFO c JOIN TASK t ON t.globalTaskId = c.globalTaskId"
    )
    for record in database.execute(query):
        row, task, kernel, start, end, name, block_dim, core, *values, device, stream = record
        tensors = {
            column: str(texts.get(value, value) or "")
            for column, value in zip(TENSOR_COLUMNS, values, strict=True)
        }
        yield MeasuredLaunch(
            line=row,
            kernel=str(texts.get(kernel, kernel)),
            name=str(texts.get(name, name)),
            duration_us=(end - start) / 1000,
            start_us=start / 1000,
            block_dim=block_dim,
            inputs=_tensors(file, row, tensors, "input"),
            outputs=_tensors(file, row, tensors, "output"),
            stream=f"{device}/{stream}",
            core=str(texts.get(core, core) or ""),
            counters=counters.get(task, {}),
        )


def _names(database: sqlite3.Connection, table: str) -> set[str]:
    return {str(column[1]) for column in database.execute(f"PRAGMA table_info({table})")}


def _tensors(
    file: Path, row: int, texts: Mapping[str, str], side: str
) -> tuple[TensorSpec | None, ...] | None:
    shapes, dtypes, formats = (texts[f"{side}_{fact}"] for fact in ("shapes", "dtypes", "formats"))
    try:
        return tensors_of(shapes, dtypes, formats)
    except ValueError as error:
        raise UsageError(
            "file",
            Text(
                "{file}, row {row} of COMPUTE_TASK_INFO: {error}", file=file, row=row, error=error
            ),
            'such as "4096,1024;1024"',
        ) from None

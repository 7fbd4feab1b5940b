"""Launches from the SQLite export of the vendor's profilers.

Its facts stand in ``TASK`` and ``COMPUTE_TASK_INFO``, its texts in ``STRING_IDS`` and its counters in ``TASK_PMU_INFO`` (the vendor's
profiling guide, "Profile Data File Reference (DB)").
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from npu_sim.files.measured_launch import MeasuredLaunch, counter_name, tensors_of
from npu_sim.numbers.formats import TensorSpec
from npu_sim.status import UsageError

SQLITE_START = b"SQLite format 3\x00"
"""First bytes of every such file."""
FACTS = {
    "input_shapes": "inputShapes",
    "input_dtypes": "inputDataTypes",
    "input_formats": "inputFormats",
    "output_shapes": "outputShapes",
    "output_dtypes": "outputDataTypes",
    "output_formats": "outputFormats",
}
"""Columns of ``COMPUTE_TASK_INFO`` that hold tensors."""
BLOCK_COLUMNS = ("blockNum", "blockDim", "block_dim")
"""Names of its column of blocks, newer ones first."""


def read_database(file: Path) -> Iterator[MeasuredLaunch]:
    """Yield the launches of a database; see :func:`npu_sim.files.device_profile.read_device_profile` for what it raises."""
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
            yield from _database_launches(file, database)
    except sqlite3.Error as error:
        raise UsageError(
            "file",
            f"{file}: cannot be read as a database: {error}",
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
                f"{file}: has no table {table} with a column {wanted}",
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
    asked = [
        f"c.{name}" if name in info else "NULL"
        for name in ("name", blocks, "taskType", *FACTS.values())
    ]
    asked += [
        f"t.{name}" if name in columns["TASK"] else "NULL" for name in ("deviceId", "streamId")
    ]
    query = (
        f"SELECT c.rowid, c.globalTaskId, c.opType, t.startNs, t.endNs, {', '.join(asked)} "
        "FROM COMPUTE_TASK_INFO c JOIN TASK t ON t.globalTaskId = c.globalTaskId"
    )
    for (
        row,
        task,
        kernel,
        start,
        end,
        name,
        block_dim,
        core,
        *found,
        device,
        stream,
    ) in database.execute(query):
        said = dict(
            zip(FACTS, (str(texts.get(value, value) or "") for value in found), strict=True)
        )
        yield MeasuredLaunch(
            line=row,
            kernel=str(texts.get(kernel, kernel)),
            name=str(texts.get(name, name)),
            duration_us=(end - start) / 1000,
            start_us=start / 1000,
            block_dim=block_dim,
            inputs=_said(file, row, said, "input"),
            outputs=_said(file, row, said, "output"),
            stream=f"{device}/{stream}",
            core=str(texts.get(core, core) or ""),
            counters=counters.get(task, {}),
        )


def _names(database: sqlite3.Connection, table: str) -> set[str]:
    return {str(column[1]) for column in database.execute(f"PRAGMA table_info({table})")}


def _said(
    file: Path, row: int, said: Mapping[str, str], side: str
) -> tuple[TensorSpec | None, ...] | None:
    try:
        return tensors_of(said[f"{side}_shapes"], said[f"{side}_dtypes"], said[f"{side}_formats"])
    except ValueError as error:
        raise UsageError(
            "file", f"{file}, row {row} of COMPUTE_TASK_INFO: {error}", 'such as "4096,1024;1024"'
        ) from None

"""Synthetic profiles in the formats of the vendor's profilers."""

import csv
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """One launch, as a profiler writes it."""

    kernel: str
    duration_us: float
    block_dim: int = 40
    inputs: str = "N/A"
    input_dtypes: str = "N/A"
    outputs: str = "N/A"
    output_dtypes: str = "N/A"
    core: str = "AI_VECTOR_CORE"
    vector_us: float = 0.0
    cycles: float = 0.0


GRAD = Row(
    "RmsNormGrad",
    95.0,
    40,
    "4096,1,1024;4096,1,1024;4096,1,1;1024",
    "DT_BF16;DT_BF16;FLOAT;DT_BF16",
    "4096,1,1024;1024",
    "DT_BF16;FLOAT",
)
EMBEDDING = (
    Row("Cast", 20.0, 40, "4096,1024", "DT_BF16", "4096,1024", "FLOAT"),
    Row("Cast", 3.0, 8, "4096", "INT64", "4096", "INT32"),
    Row("Sort", 10.0, 1, "4096", "FLOAT", "4096;4096", "FLOAT;INT32"),
    Row("MemSet", 800.0),
    Row(
        "EmbeddingDenseGradV2",
        130.0,
        40,
        "4096,1024;4096;4096",
        "FLOAT;INT32;INT32",
        "151936,1024",
        "FLOAT",
    ),
    Row("Cast", 1600.0, 40, "151936,1024", "FLOAT", "151936,1024", "DT_BF16"),
)
"""The launches of EmbeddingDenseBackward of a bf16 gradient and int64 indices at release 8.3 (page
``releases``, "The profile")."""
OTHER = Row(
    "MatMulV2",
    100.0,
    20,
    "4096,4096;4096,1024",
    "DT_BF16;DT_BF16",
    "4096,1024",
    "DT_BF16",
    core="AI_CORE",
)

HEADER = {
    "Name": lambda row, start: f"aclnn{row.kernel}",
    "Type": lambda row, start: row.kernel,
    "Accelerator Core": lambda row, start: row.core,
    "Start Time(us)": lambda row, start: f"{start:.3f}\t",
    "Duration(us)": lambda row, start: f",{row.duration_us}"[1:],
    "Block Dim": lambda row, start: str(row.block_dim),
    "Input Shapes": lambda row, start: f'"{row.inputs}"' if row.inputs != "N/A" else "N/A",
    "Input Data Types": lambda row, start: row.input_dtypes,
    "Output Shapes": lambda row, start: f'"{row.outputs}"' if row.outputs != "N/A" else "N/A",
    "Output Data Types": lambda row, start: row.output_dtypes,
    "aiv_time(us)": lambda row, start: str(row.duration_us),
    "aiv_total_cycles": lambda row, start: str(
        row.cycles or 1800 * row.duration_us * row.block_dim
    ),
    "aiv_vec_time(us)": lambda row, start: str(row.vector_us),
}
"""Columns of ``kernel_details.csv``: name and cell of a row."""

SUMMARY_NAMES = {
    "Name": "Op Name",
    "Type": "OP Type",
    "Start Time(us)": "Task Start Time(us)",
    "Duration(us)": "Task Duration(us)",
} | {"Accelerator Core": "Task Type"}
"""The same columns in ``op_summary_*.csv``."""


def write_csv(
    path: Path,
    rows: Iterable[Row],
    names: dict[str, str] | None = None,
    without: Iterable[str] = (),
) -> Path:
    """Write a profile; ``names`` renames columns, ``without`` omits some."""
    columns = {name: cell for name, cell in HEADER.items() if name not in without}
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([(names or {}).get(name, name) for name in columns])
        start = 1764246877073569.0
        for row in rows:
            writer.writerow([cell(row, start) for cell in columns.values()])
            start += row.duration_us + 1
    return path


def write_database(path: Path, rows: Iterable[Row], blocks: str = "blockDim") -> Path:
    """Write the same launches as the SQLite export of a profiler."""
    texts: dict[str, int] = {}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    columns = "inputShapes, inputDataTypes, outputShapes, outputDataTypes"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE STRING_IDS (id INTEGER, value TEXT)")
        database.execute(
            "CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, deviceId INTEGER, "
            "globalTaskId INTEGER, streamId INTEGER)"
        )
        places = (
            f"name INTEGER, globalTaskId INTEGER, {blocks} INTEGER, "
            "taskType INTEGER, opType INTEGER"
        )
        database.execute(f"CREATE TABLE COMPUTE_TASK_INFO ({places}, {columns})")
        start = 1764246877073569000
        for task, row in enumerate(rows):
            end = start + round(1000 * row.duration_us)
            database.execute("INSERT INTO TASK VALUES (?, ?, 0, ?, 2)", (start, end, task))
            shapes = [
                text(value)
                for value in (
                    f'"{row.inputs}"',
                    row.input_dtypes,
                    f'"{row.outputs}"',
                    row.output_dtypes,
                )
            ]
            cells = (
                text(f"aclnn{row.kernel}"),
                task,
                row.block_dim,
                text(row.core),
                text(row.kernel),
                *shapes,
            )
            database.execute(
                "INSERT INTO COMPUTE_TASK_INFO VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", cells
            )
            start = end + 1000
        database.executemany(
            "INSERT INTO STRING_IDS VALUES (?, ?)",
            [(number, value) for value, number in texts.items()],
        )
    return path


DATA_BASE = {
    "OP State": lambda row: "dynamic",
    "Accelerator Core": lambda row: row.core,
    "Input Shapes": lambda row: f'"{row.inputs}"',
    "Input Data Types": lambda row: row.input_dtypes,
    "Output Shapes": lambda row: f'"{row.outputs}"',
    "Output Data Types": lambda row: row.output_dtypes,
    "Average Duration(us)": lambda row: "0",
    "Profiling Average Duration(us)": lambda row: str(row.duration_us * 1.25),
    "Profiling Median Duration(us)": lambda row: str(row.duration_us),
    "Profiling Std Duration(us)": lambda row: "1.5",
    "Profiling Average aiv_time(us)": lambda row: str(row.duration_us),
    "Profiling Average aiv_total_cycles": lambda row: str(row.cycles),
    "Profiling Average aiv_vec_time(us)": lambda row: str(row.vector_us),
}
"""Columns of a vendor's data base of measured kernels: a file a kernel, no block dim."""


def write_data_base(folder: Path, rows: Iterable[Row]) -> Path:
    """Write rows as such a data base, a file for every kernel."""
    files: dict[str, list[Row]] = {}
    for row in rows:
        files.setdefault(row.kernel, []).append(row)
    folder.mkdir()
    for kernel, same in files.items():
        with (folder / f"{kernel}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(DATA_BASE)
            writer.writerows([cell(row) for cell in DATA_BASE.values()] for row in same)
    return folder

"""Reading what a device's profiler wrote, one launch a row: the vendor's CSV files or its SQLite export."""

from pathlib import Path

from npu_sim.files.measured_launch import MeasuredLaunch
from npu_sim.files.profiler_csv import read_csv
from npu_sim.files.profiler_database import SQLITE_START, read_database
from npu_sim.status import UsageError


def read_device_profile(path: str | Path) -> tuple[MeasuredLaunch, ...]:
    """Read all launches of a profile, in the order in which they began.

    Raises
    ------
    UsageError
        When the file cannot be read or is none of these files; the message names file, line and column.
    """
    file = Path(path)
    if not file.is_file():
        problem = "is no file" if file.exists() else "there is no such file"
        raise UsageError(
            "file",
            f"{file}: {problem}",
            "kernel_details.csv, op_summary_*.csv or the .db of a profiler",
        )
    with file.open("rb") as opened:
        start = opened.read(len(SQLITE_START))
    launches = read_database(file) if start == SQLITE_START else read_csv(file)
    return tuple(sorted(launches, key=lambda one: one.start_us))

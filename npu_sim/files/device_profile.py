"""Profiles of a device: the vendor's CSV files or its SQLite export, one launch per row."""

from pathlib import Path

from npu_sim.files.measured_launch import MeasuredLaunch
from npu_sim.files.profiler_csv import read_csv
from npu_sim.files.profiler_database import SQLITE_START, read_database
from npu_sim.language import Text
from npu_sim.status import UsageError


def read_device_profile(path: str | Path) -> tuple[MeasuredLaunch, ...]:
    """Return all launches of a profile, ordered by start time.

    Raises UsageError when the file cannot be read or has another format; the message names file,
    line and column.
    """
    file, hint = Path(path), "kernel_details.csv, op_summary_*.csv or the .db of a profiler"
    if not file.is_file():
        problem = "is not a file" if file.exists() else "there is no such file"
        raise UsageError("file", Text("{file}: {problem}", file=file, problem=problem), hint)
    try:
        with file.open("rb") as stream:
            start = stream.read(len(SQLITE_START))
    except OSError as error:
        raise UsageError(
            "file", Text("{file}: cannot be read: {error}", file=file, error=error), hint
        ) from None
    launches = read_database(file) if start == SQLITE_START else read_csv(file)
    return tuple(sorted(launches, key=lambda launch: launch.start_us))

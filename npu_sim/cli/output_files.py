"""Files that options name."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer import CallbackParam

from npu_sim.files.writing import require_separate, require_target

OUTPUT_FILES = (
    "figure",
    "out",
    "junit",
    "report",
    "rows_out",
    "sarif",
    "tiling_bytes",
    "trace",
    "write_baseline",
)
"""Options that name files to be written."""


def require_writable(parameter: CallbackParam, path: Path | None) -> Path | None:
    """Check that a file can be written, while options are read and before any work is done.

    Raises UsageError for a path that cannot be written, or that npu_sim does not replace.
    """
    assert parameter.name in OUTPUT_FILES
    if path is not None:
        require_target(path, str(parameter.name))
    return path


def require_separate_files(ctx: typer.Context) -> None:
    """Raise UsageError if an output file of a command is also an input or another output."""
    options = {**ctx.find_root().params, **ctx.params}
    outputs = {name: Path(options.pop(name)) for name in OUTPUT_FILES if options.get(name)}
    if outputs:
        require_separate(outputs, _named_files(list(options.values())))


def _named_files(value: Any) -> Iterator[Path]:
    """Yield the existing files that options name, in lists (``a.yaml,b.yaml``) too."""
    if isinstance(value, list | tuple):
        for entry in value:
            yield from _named_files(entry)
    elif str(value) == "-":
        yield Path("/dev/stdin")
    elif isinstance(value, str | Path):
        text = re.sub(r"(?<=\.npy):\w+$", "", str(value))
        names = {text, *re.split("[,=]", text)}
        # Path.is_file raises for a text that is too long for a name.
        yield from (Path(name) for name in names if os.path.isfile(name))  # noqa: PTH113

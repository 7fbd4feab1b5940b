"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer
from typer import CallbackParam


def writable(parameter: CallbackParam, path: Path | None) -> Path | None:
    """Refuse a file that cannot be written while the options are read: before the command does any work."""
    if path is not None:
        from npu_sim.files.writing import require_target

        require_target(path, str(parameter.name))
    return path


def seed_of(typed: str | int) -> int:
    """Read a seed; a range of numbers this long does not fit into the help.

    Raises
    ------
    UsageError
        When it is no whole number of 64 bits.
    """
    try:
        seed = int(typed)
    except ValueError:
        seed = -1
    if not 0 <= seed < 2**64:
        raise typer.BadParameter(
            f"{typed!r} is not a seed: write a whole number from 0 to 2**64 - 1"
        )
    return seed


Product = Annotated[
    str | None,
    typer.Option(
        "--product",
        help="Product or SoC by any name, or a profile file ending in .yaml; atlas_a2 when left out.",
    ),
]
Soc = Annotated[
    str | None,
    typer.Option("--soc", help="SoC, such as Ascend910B3 or 910B3; it implies its product."),
]
Release = Annotated[
    str | None,
    typer.Option(
        "--release", help="Release of the product's software: 8.3, 8.5, 9.0 or 9.1, the default."
    ),
]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Switch deterministic computation on.")
]
LimitsOption = Annotated[
    str,
    typer.Option(
        "--limits", help="documented: what the documents state; hardware: what really fits."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
CoreOrderOption = Annotated[
    str,
    typer.Option(
        "--core-order",
        help="Arrival of the cores' atomic additions: sequential, reverse, round_robin or random.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        parser=seed_of,
        metavar="NUMBER",
        help="Seed of the random core order and of generated data.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", callback=writable, help="File for the outputs: .npy for one, .npz for several."
    ),
]
Rows = Annotated[
    bool,
    typer.Option("--rows", help="List the rows that can differ between runs, the twenty worst."),
]
RowsOut = Annotated[
    Path | None,
    typer.Option(
        "--rows-out", callback=writable, help="Write every row that can differ to this CSV file."
    ),
]
Threads = Annotated[
    int | None, typer.Option("--threads", help="Threads the kernels use; all cores when left out.")
]

Report = Annotated[
    Path | None,
    typer.Option(
        "--report", callback=writable, help="Write a report to this HTML file; it opens offline."
    ),
]
Trace = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        callback=writable,
        help="Write the lower-bound timeline to this file, as Chrome trace events for Perfetto.",
    ),
]

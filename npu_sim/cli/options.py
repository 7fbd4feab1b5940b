"""Options of commands: a command declares a frozen class whose fields are its options.

:func:`flattened` turns a handler that takes such a class into a function with one parameter per
option, from which typer builds the command.
"""

import inspect
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer import CallbackParam

from npu_sim.language import Text

if TYPE_CHECKING:
    from npu_sim.cores import Profile


OUTPUT_FILES = (
    "figure",
    *("out", "junit", "report", "rows_out", "sarif", "tiling_bytes", "trace", "write_baseline"),
)
"""Options that name files to be written."""


def flattened(handler: Callable[..., None]) -> Callable[..., None]:
    """Return a handler whose option classes are replaced by one parameter per field."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type] = {}
    for parameter in inspect.signature(handler, eval_str=True).parameters.values():
        group = parameter.annotation
        if not is_dataclass(group):
            parameters.append(parameter)
            continue
        assert isinstance(group, type)
        groups[parameter.name] = group
        hints = get_type_hints(group, include_extras=True)
        parameters += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_default_of(field),
                annotation=hints[field.name],
            )
            for field in fields(group)
        ]

    def run(*arguments: Any, **options: Any) -> None:
        for name, group in groups.items():
            names = [field.name for field in fields(group)]
            options[name] = group(**{field: options.pop(field) for field in names})
        handler(*arguments, **options)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__ = handler.__doc__
    return run


def _default_of(field: "Field[Any]") -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def require_writable(parameter: CallbackParam, path: Path | None) -> Path | None:
    """Check that a file can be written, while options are read and before any work is done.

    Raises UsageError for a path that cannot be written, or that npu_sim does not replace.
    """
    assert parameter.name in OUTPUT_FILES
    if path is not None:
        from npu_sim.files.writing import require_target

        require_target(path, str(parameter.name))
    return path


def require_picture(parameter: CallbackParam, path: Path | None) -> Path | None:
    """Check that a picture can be written; raise UsageError for another ending or the path."""
    if path is not None:
        from npu_sim.show.figures import require_ending

        require_ending(path)
    return require_writable(parameter, path)


def require_separate_files(ctx: typer.Context) -> None:
    """Raise UsageError if an output file of a command is also an input or another output."""
    options = {**ctx.find_root().params, **ctx.params}
    outputs = {name: Path(options.pop(name)) for name in OUTPUT_FILES if options.get(name)}
    if outputs:
        from npu_sim.files.writing import require_separate

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


def seed_of(typed: str | int) -> int:
    """Read a seed, an unsigned 64-bit integer.

    Typer would show its own range check as ``0<=x<=18446744073709551615`` in the help.

    Raises
    ------
    typer.BadParameter
        For anything else.
    """
    try:
        seed = int(typed)
    except ValueError:
        seed = -1
    if not 0 <= seed < 2**64:
        raise typer.BadParameter(
            Text("{typed} is not a seed: write an integer from 0 to 2**64 - 1", typed=repr(typed))
        )
    return seed


Product = Annotated[
    str | None,
    typer.Option(
        "--product",
        help=(
            "Product or SoC by any name, or a profile file ending in .yaml; atlas_a2 when left out."
        ),
    ),
]
ProductList = Annotated[
    str,
    typer.Option(
        "--products", "--product", help="all, names with commas, or profile files ending in .yaml."
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
        "--limits",
        help="documented: limits of the product documents; hardware: limits of the buffers.",
    ),
]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV with raw numbers in place of text.")]
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
        "--out",
        callback=require_writable,
        help="File for the outputs: .npy for one, .npz for several.",
    ),
]
Rows = Annotated[
    bool,
    typer.Option("--rows", help="List the rows that can differ between runs, the twenty worst."),
]
RowsOut = Annotated[
    Path | None,
    typer.Option(
        "--rows-out",
        callback=require_writable,
        help="Write every row that can differ to this CSV file.",
    ),
]
Threads = Annotated[
    int | None, typer.Option("--threads", help="Threads the kernels use; all cores when left out.")
]

Report = Annotated[
    Path | None,
    typer.Option(
        "--report",
        callback=require_writable,
        help="Write a report to this HTML file; it opens offline.",
    ),
]
Figure = Annotated[
    Path | None,
    typer.Option(
        "--figure",
        callback=require_picture,
        help="Write one picture; the file is named after it: cores.svg, or cores-A2.png.",
    ),
]
Trace = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        callback=require_writable,
        help="Write the lower-bound timeline to this file, as Chrome trace events for Perfetto.",
    ),
]
TilingBytes = Annotated[
    Path | None,
    typer.Option(
        "--tiling-bytes",
        callback=require_writable,
        help="Write the tiling structure to this file, byte for byte as the kernel receives it.",
    ),
]


@dataclass(frozen=True)
class DeviceOptions:
    """Product, SoC and release."""

    product: Product = None
    soc: Soc = None
    release: Release = None

    def profile(self) -> "Profile":
        """Return the product with its SoC and release."""
        from npu_sim.cores import load_profile

        return load_profile(self.product, self.soc, self.release)


@dataclass(frozen=True)
class CallOptions(DeviceOptions):
    """Device, determinism switch and limits of a call."""

    deterministic: Deterministic = False
    limits: LimitsOption = "documented"

    def keywords(self) -> dict[str, Any]:
        """Return the options as keywords of :func:`npu_sim.plan` and other functions."""
        return {
            "product": self.product,
            "soc": self.soc,
            "release": self.release,
            "deterministic": self.deterministic,
            "limits": self.limits,
        }

    def keywords_on(self, profile: "Profile") -> dict[str, Any]:
        """Return the keywords with a loaded profile in place of product, SoC and release."""
        return {**self.keywords(), "product": profile, "soc": None, "release": None}

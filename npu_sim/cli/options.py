"""Options of commands: the fields of a record that the handler of a command takes.

An option has the type and the default of its field, and the help of the parameter of the same name
in the docstring of the function behind the command, or of :func:`npu_sim.run` for what all
calls have. An option that no function documents is annotated:
``Annotated[..., typer.Option(help=...)]``.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import typer
from typer import CallbackParam
from typer.models import OptionInfo

import npu_sim
from npu_sim.cli.output_files import require_writable
from npu_sim.cli.printing import print_text
from npu_sim.cores import Profile, load_profile, require_release
from npu_sim.framework.target import Limits
from npu_sim.language import Text, Verbatim, say, visible
from npu_sim.operators import run
from npu_sim.show.forms.layout import Paragraph
from npu_sim.status import UsageError

Handler = Callable[..., None]


class PerOperator(NamedTuple):
    """A command with one subcommand per operator, such as ``plan``.

    Its handler takes the operator's name and, with ``takes_arguments``, the typed arguments.
    """

    takes_arguments: bool = True
    """Whether the subcommands have an option for each argument of the operator."""
    example: str = ""
    """Text after the arguments in the example of an operator's help."""
    computes: bool = False
    """Whether the command computes its example, which then has small sizes."""
    takes_files: bool = False
    """Whether tensors, outputs too, are files and not shapes."""
    epilog: Callable[[str], str] | None = None
    """Function that returns the last lines of an operator's help; it takes the operator's name."""


class Command(NamedTuple):
    """What the decorator :func:`command` states of a handler."""

    function: Callable[..., Any] | None
    """Function behind the command; None without one."""
    per_operator: PerOperator | None
    """How operators are subcommands; None for a command without."""
    epilog: str
    """Last lines of the help."""
    settings: dict[str, Any] | None
    """Further settings of click's context."""


COMMANDS: dict[Handler, Command] = {}
"""Commands by their handlers."""


def command(
    function: Callable[..., Any] | None = None,
    per_operator: PerOperator | None = None,
    epilog: str = "",
    settings: dict[str, Any] | None = None,
) -> Callable[[Handler], Handler]:
    """Return a decorator that makes a handler a command; see :class:`Command`."""

    def decorated(handler: Handler) -> Handler:
        COMMANDS[handler] = Command(function, per_operator, epilog, settings)
        return handler

    return decorated


def with_options(handler: Handler) -> Handler:
    """Return a handler whose options are parameters with the flags and the help that typer reads.

    The handler takes them as one record, its parameter ``options``.
    """
    function = COMMANDS[handler].function
    others = dict(inspect.signature(handler).parameters)
    record = others.pop("options").annotation
    options = inspect.signature(record).parameters
    parameters = [*others.values(), *(_option(option, function) for option in options.values())]

    def run_command(*arguments: Any, **values: Any) -> None:
        chosen = record(**{name: values.pop(name) for name in options})
        handler(*arguments, **values, options=chosen)

    run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run_command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run_command.__doc__ = handler.__doc__
    return run_command


def _option(parameter: inspect.Parameter, function: Callable[..., Any] | None) -> inspect.Parameter:
    """Return an option as a parameter that typer reads."""
    kind, option = parameter.annotation, typer.Option()
    if get_origin(kind) is Annotated:
        kind, option = get_args(kind)[0], copy(get_args(kind)[1])
    if get_origin(kind) is Literal:
        kind = str  # the function refuses other values, as in programs
    if not isinstance(option.default, str):  # typer's place of the first flag
        flag = "--" + parameter.name.replace("_", "-")
        option.param_decls = (f"{flag}/--no-{flag[2:]}" if parameter.default is True else flag,)
    option.help = option.help or option_help(parameter.name, function)
    if parameter.name == "release":
        option.callback = name_releases
    return parameter.replace(annotation=Annotated[kind, option])


def option_helps(handler: Handler) -> Iterator[str]:
    """Yield the help of every option of a handler."""
    for parameter in inspect.signature(with_options(handler)).parameters.values():
        for option in get_args(parameter.annotation)[1:]:
            if isinstance(option, OptionInfo):
                yield option.help or ""


def option_help(name: str, function: Callable[..., Any] | None) -> str:
    """Return the help of an option from the docstring of its function."""
    text = _texts(function).get(name) or _texts(run).get(name)
    if text is None:
        raise TypeError("an option that is neither a parameter of its function nor annotated", name)
    while reference := re.match(r"As for :func:(?:npu_sim\.)?(\w+)", text):
        text = _texts(getattr(npu_sim, reference[1]))[name]
    return text


@lru_cache
def _texts(function: Callable[..., Any] | None) -> dict[str, str]:
    """Return the texts of parameters in a numpy docstring, each in one line without markup."""
    text = (function and inspect.getdoc(function)) or ""
    listed = text.partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    entries = re.split(r"^(?=\S)", listed, flags=re.MULTILINE)
    return {
        name.strip(): " ".join(text.replace("`", "").split())
        for names, _, text in (entry.partition("\n") for entry in entries)
        for name in names.split(",")
    }


def chosen_release(release: str | None, releases: bool) -> str | None:
    """Return the release of a command that also has ``--releases``, which stands for all.

    Raises UsageError when both are given.
    """
    if releases and release is not None:
        raise UsageError(
            "release", "--release and --releases exclude each other", "leave one of them out"
        )
    return "all" if releases else release


def name_releases(typed: str | None) -> str | None:
    """Say on standard error which release stands for the version of a toolkit; return the text.

    An unknown release is refused where it is used.
    """
    with suppress(UsageError):
        for stated in (typed or "").split(","):
            if stated and stated != "all" and require_release(stated) != stated:
                note = say(
                    "release {stated} is simulated as {release}, the newest known one that is not "
                    "newer",
                    stated=Verbatim(visible(stated)),
                    release=require_release(stated),
                )
                print_text(Paragraph(note), error=True)
    return typed


def require_picture(parameter: CallbackParam, path: Path | None) -> Path | None:
    """Check that a picture can be written; raise UsageError for another ending or the path."""
    if path is not None:
        from npu_sim.show.forms.svg import require_ending  # loaded for a picture only

        require_ending(path)
    return require_writable(parameter, path)


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


def require_one_form(context: typer.Context, value: bool) -> bool:
    """Check that an answer is not printed in two forms; raise UsageError when it is."""
    if value and (context.params.get("json") or context.params.get("csv")):
        raise UsageError(
            "csv",
            "{first} and {second} exclude each other",
            "leave one of them out",
            first="--json",
            second="--csv",
        )
    return value


# Options of several commands that are not as their functions state them.

Json = Annotated[bool, typer.Option(help="Print JSON instead of text.", callback=require_one_form)]
Csv = Annotated[
    bool,
    typer.Option(help="Print CSV with raw numbers in place of text.", callback=require_one_form),
]
Seed = Annotated[
    int,
    typer.Option(
        help="Seed of the random core order and of generated data.",
        parser=seed_of,
        metavar="NUMBER",
    ),
]
Threads = Annotated[
    int | None, typer.Option(help="Threads the kernels use; all cores when left out.")
]
Rows = Annotated[
    bool, typer.Option(help="List the rows that can differ between runs, the twenty worst.")
]
RowsOut = Annotated[
    Path | None,
    typer.Option(
        help="Write every row that can differ to this CSV file.", callback=require_writable
    ),
]
Report = Annotated[
    Path | None,
    typer.Option(
        help="Write a report to this HTML file; it opens offline.", callback=require_writable
    ),
]
Figure = Annotated[
    Path | None,
    typer.Option(
        help="Write one picture; the file is named after it: cores.svg, or cores-A2.png.",
        callback=require_picture,
    ),
]
Trace = Annotated[
    Path | None,
    typer.Option(
        help="Write the lower-bound timeline to this file, as Chrome trace events for Perfetto.",
        callback=require_writable,
    ),
]
BothModes = Annotated[
    bool | None,
    typer.Option(
        "--deterministic/--no-deterministic", help="The determinism switch; both when left out."
    ),
]
Products = Annotated[str | None, typer.Option("--products", "--product")]
Socs = Annotated[str | None, typer.Option("--socs", "--soc")]


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Options that choose a product, its SoC and its release."""

    product: str | None = None
    soc: str | None = None
    release: str | None = None

    def profile(self) -> Profile:
        """Return the chosen product; raise UsageError as :func:`load_profile`."""
        return load_profile(self.product, self.soc, self.release)


@dataclass(frozen=True, kw_only=True)
class CallOptions(DeviceOptions):
    """Options of the commands that plan one call."""

    deterministic: bool = False
    limits: Limits = "documented"

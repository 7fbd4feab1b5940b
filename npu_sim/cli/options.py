"""Options of commands, made from the signatures and docstrings of the functions behind them.

:func:`command` names the function of a command and its options. An option takes its type and
default from the parameter of that name and its help from the docstring of the function, or of
:func:`npu_sim.run` for what all calls have; what only the command line has stands in
``SHARED_OPTIONS``.
"""

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple

import typer
from typer import CallbackParam

from npu_sim.cli.lazy import cores, files, show
from npu_sim.cli.output import with_progress
from npu_sim.language import Text
from npu_sim.status import UsageError

OUTPUT_FILES = (
    "figure",
    *("out", "junit", "report", "rows_out", "sarif", "tiling_bytes", "trace", "write_baseline"),
)
"""Options that name files to be written."""
RUN = "npu_sim.operators:run"
"""Function that describes the options of every call."""


class Option(NamedTuple):
    """Parts of an option that its function does not state; None or empty ones are as stated."""

    help: str = ""
    kind: Any = None
    """Type of the value, such as ``Path | None``."""
    default: Any = None
    flags: str = ""
    """Spellings, such as ``--products,--product``; made from the name if empty."""
    extra: Mapping[str, Any] = {}
    """Further arguments of ``typer.Option``."""


class Command(NamedTuple):
    """The function behind a command, ``module:name``, and its options by name."""

    place: str
    """Empty for a command without one."""
    options: Mapping[str, Option]


COMMANDS: dict[Callable[..., None], Command] = {}
"""Commands by their handlers."""
Handler = Callable[..., None]


class Options(SimpleNamespace):
    """Values of a command's options by name, and the function they are for.

    Attributes
    ----------
    call
        Values of the options that are parameters of the function.
    """

    def __init__(self, declared: Command, values: dict[str, Any]) -> None:
        super().__init__(**values)
        self.declared = declared
        taken = _parameters(declared.place)
        self.call = {name: value for name, value in values.items() if name in taken}

    def answer(self, *arguments: Any, **keywords: Any) -> Any:
        """Return the answer of the function for these arguments and the options it takes."""
        function, keywords = self.function, {**self.call, **keywords}
        if "progress" not in _parameters(self.declared.place):
            return function(*arguments, **keywords)
        return with_progress(lambda report: function(*arguments, progress=report, **keywords))

    @property
    def function(self) -> Callable[..., Any]:
        """The function behind the command."""
        return _loaded(self.declared.place)

    def profile(self) -> Any:
        """Return the product with its SoC and release."""
        return cores.load_profile(self.product, self.soc, self.release)


def command(place: str, options: str, **own: Option) -> Callable[[Handler], Handler]:
    """Return a decorator that gives a handler the options of a function.

    - ``place``: ``module:name`` of the function behind the command.
    - ``options``: names of the options in the order of the help.
    - ``own``: what is not as the function or ``SHARED_OPTIONS`` states it.
    """
    shown = {
        name: own.get(name) or SHARED_OPTIONS.get(name) or Option() for name in options.split()
    }

    def decorated(handler: Handler) -> Handler:
        COMMANDS[handler] = Command(place, shown)
        return handler

    return decorated


def flattened(handler: Handler) -> Handler:
    """Return a handler with a parameter for every option, from which typer makes the command."""
    declared = COMMANDS.get(handler)
    if declared is None:
        return handler
    given = [
        parameter
        for parameter in inspect.signature(handler).parameters.values()
        if parameter.annotation is not Options
    ]
    parameters = [*given, *(_parameter(declared, name) for name in declared.options)]

    def run(*arguments: Any, **values: Any) -> None:
        taken = dict(zip((parameter.name for parameter in given), arguments, strict=False))
        rest = {
            parameter.name: values.pop(parameter.name)
            for parameter in given
            if parameter.name in values
        }
        handler(**taken, **rest, options=Options(declared, values))

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__ = handler.__doc__
    return run


def _parameter(declared: Command, name: str) -> inspect.Parameter:
    """Return an option as a parameter that typer reads."""
    own, default = declared.options[name], declared.options[name].default
    stated = _parameters(declared.place).get(name) or _parameters(RUN).get(name)
    if own == Option() or (default is None and own.kind is None):
        assert stated is not None, name
        default = stated.default
    kind = own.kind or (str | None if default is None else type(default))
    flag = "--" + name.replace("_", "-")
    flags = own.flags or (f"{flag}/--no-{flag[2:]}" if default is True else flag)
    option = typer.Option(*flags.split(","), help=option_help(declared, name), **own.extra)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
    )


def option_help(declared: Command, name: str) -> str:
    """Return the help of an option: its own, or the text of the docstring of its function."""
    text = declared.options[name].help or _texts(declared.place).get(name) or _texts(RUN)[name]
    while reference := re.match(r"As for :func:(?:npu_sim\.)?(\w+)", text):
        text = _texts(f"npu_sim:{reference[1]}")[name]
    return text


@lru_cache
def _loaded(function: str) -> Callable[..., Any]:
    """Return a function by its place, ``module:name``."""
    module, _, name = function.partition(":")
    loaded: Callable[..., Any] = getattr(import_module(module), name)
    return loaded


@lru_cache
def _parameters(function: str) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function by name; none for no function."""
    return inspect.signature(_loaded(function)).parameters if function else {}


@lru_cache
def _texts(function: str) -> dict[str, str]:
    """Return the texts of parameters in a numpy docstring, each in one line without markup."""
    text = (function and inspect.getdoc(_loaded(function))) or ""
    listed = text.partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    entries = re.split(r"^(?=\S)", listed, flags=re.MULTILINE)
    return {
        name.strip(): " ".join(text.replace("`", "").split())
        for names, _, text in (entry.partition("\n") for entry in entries)
        for name in names.split(",")
    }


def chosen_release(options: Options) -> str | None:
    """Return the release of a command that also has ``--releases``, which stands for all.

    Raises UsageError when both are given.
    """
    if options.releases and options.release is not None:
        raise UsageError(
            "release", "--release and --releases exclude each other", "leave one of them out"
        )
    return "all" if options.releases else options.release


def require_writable(parameter: CallbackParam, path: Path | None) -> Path | None:
    """Check that a file can be written, while options are read and before any work is done.

    Raises UsageError for a path that cannot be written, or that npu_sim does not replace.
    """
    assert parameter.name in OUTPUT_FILES
    if path is not None:
        files.writing.require_target(path, str(parameter.name))
    return path


def require_picture(parameter: CallbackParam, path: Path | None) -> Path | None:
    """Check that a picture can be written; raise UsageError for another ending or the path."""
    if path is not None:
        show.svg.require_ending(path)
    return require_writable(parameter, path)


def require_separate_files(ctx: typer.Context) -> None:
    """Raise UsageError if an output file of a command is also an input or another output."""
    options = {**ctx.find_root().params, **ctx.params}
    outputs = {name: Path(options.pop(name)) for name in OUTPUT_FILES if options.get(name)}
    if outputs:
        files.writing.require_separate(outputs, _named_files(list(options.values())))


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


BOTH_MODES = Option(
    "The determinism switch; both when left out.",
    bool | None,
    flags="--deterministic/--no-deterministic",
)
WRITES: dict[str, Any] = {"callback": require_writable}
SHARED_OPTIONS = {
    "json": Option("Print JSON instead of text.", bool, False),
    "csv": Option("Print CSV with raw numbers in place of text.", bool, False),
    "seed": Option(
        "Seed of the random core order and of generated data.",
        int,
        0,
        extra={"parser": seed_of, "metavar": "NUMBER"},
    ),
    "threads": Option("Threads the kernels use; all cores when left out.", int | None),
    "rows": Option("List the rows that can differ between runs, the twenty worst.", bool, False),
    "rows_out": Option(
        "Write every row that can differ to this CSV file.", Path | None, extra=WRITES
    ),
    "report": Option(
        "Write a report to this HTML file; it opens offline.", Path | None, extra=WRITES
    ),
    "figure": Option(
        "Write one picture; the file is named after it: cores.svg, or cores-A2.png.",
        Path | None,
        extra={"callback": require_picture},
    ),
    "trace": Option(
        "Write the lower-bound timeline to this file, as Chrome trace events for Perfetto.",
        Path | None,
        extra=WRITES,
    ),
}
"""Options of several commands that are no parameters of their functions."""

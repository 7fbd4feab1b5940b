"""The command ``diagnose``."""

import os
import sys
from dataclasses import dataclass
from json import loads
from pathlib import Path
from typing import Annotated, Any

import typer

from npu_sim.cli.errors import REFUSED_EXIT_CODE, USAGE
from npu_sim.cli.options import DeviceOptions, Json, command
from npu_sim.cli.output import print_answer
from npu_sim.questions.preflight_lines import MalformedLineError, require_keys
from npu_sim.status import UsageError, shown
from npu_sim.tools.failures.diagnosis import diagnose
from npu_sim.tools.failures.reader import decoded

STATED = ("product", "soc", "release", "deterministic")
"""Options of ``diagnose`` that the line of a call may state; the line decides, as in preflight."""
RESERVED = {"text", "operator", *STATED}
"""Names that are options of ``diagnose``, and no arguments of an operator."""
File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="File with the error text or log as it was printed, or an exception dump; - for "
        "standard input. Or the text itself.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class DiagnoseOptions(DeviceOptions):
    """Options of ``npu-sim diagnose``."""

    deterministic: bool = False
    call_line: Annotated[
        str | None,
        typer.Option(
            "--call",
            help="The call that failed, as a line of a file of calls: a JSON object with op and "
            "inputs, and where they differ from the options product, soc, release and "
            "deterministic; it is planned.",
        ),
    ] = None
    json: Json = False


@command(diagnose)
def diagnose_command(file: File, options: DiagnoseOptions) -> None:
    """Read an error text or a log: code and stage in words, the operator where the text proves
    it, the argument, and of a device exception (plog or exception dump) the tiling fields.
    """
    device: dict[str, Any] = {
        "product": options.product,
        "soc": options.soc,
        "release": options.release,
        "deterministic": options.deterministic,
    }
    call = {} if options.call_line is None else _call(options.call_line)
    text = decoded(sys.stdin.buffer) if file == "-" else _text_or_path(file)
    diagnosis = diagnose(text, **{**device, **call})
    print_answer("diagnosis", diagnosis, json=options.json)
    if diagnosis.refusal is not None:
        sys.exit(REFUSED_EXIT_CODE)
    if not diagnosis.known:
        sys.exit(USAGE)


def _text_or_path(argument: str) -> str | Path:
    """Return the path of a file, or the argument where it is an error text and no file."""
    # A colon behind the second character is none of a drive.
    is_text = any(map(str.isspace, argument)) or argument.isdigit() or ":" in argument[2:]
    return argument if is_text and not os.path.lexists(argument) else Path(argument)


def _call(text: str) -> dict[str, Any]:
    """Return the arguments of `diagnose` that a call states, given as a line of a file of calls."""
    try:
        call = loads(text)
        require_keys(call)
        operator, inputs = call.get("op"), call["inputs"]
        if (
            isinstance(inputs, dict)
            and not RESERVED & inputs.keys()
            and (operator is None or isinstance(operator, str))
        ):
            stated = {name: call[name] for name in STATED if name in call}
            return {"operator": operator, **stated, **inputs}
    except MalformedLineError as error:
        raise UsageError("call", "call: {error}", error=error) from None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        pass
    raise UsageError(
        "call",
        "call = {call} is not a call",
        "write a JSON object with op and inputs, as a line of a file of calls",
        call=shown(text),
    )

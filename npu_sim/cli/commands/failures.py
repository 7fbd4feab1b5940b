"""Commands on failures: reading an error text or log, and the dump of an accuracy tool."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from npu_sim.cli.options import BOTH_MODES, Option, Options, command
from npu_sim.cli.output import REFUSED, print_answer, reproducing_command, show_answer
from npu_sim.language import Text
from npu_sim.status import UsageError, shown

RESERVED = {"text", "operator", "product", "soc", "release", "deterministic"}
"""Names that are options of ``diagnose``, and no arguments of an operator."""
DIFFERENT = 1
"""Exit code of a dump with an impossible value, a difference from the other one, or nothing that
could be compared with it."""
File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="File with the error text or log as it was printed, or an exception dump; - for "
        "standard input. Or the text itself.",
    ),
]
Folder = Annotated[Path, typer.Argument(help="Folder that msprobe wrote, with step and rank.")]


@command(
    "npu_sim.failures.diagnosis:diagnose",
    "product soc release deterministic call_line json",
    call_line=Option(
        "The call that failed, as a line of a file of calls: a JSON object with op and "
        "inputs; it is planned.",
        str | None,
        flags="--call",
    ),
)
def diagnose_command(file: File, options: Options) -> None:
    """Read an error text or a log: code and stage in words, the operator where the text proves
    it, the argument, and of a device exception (plog or exception dump) the tiling fields.
    """
    from npu_sim.failures.reader import decoded

    operator, inputs = _call(options.call_line)
    text = decoded(sys.stdin.buffer) if file == "-" else _text_or_path(file)
    diagnosis = options.answer(text, operator=operator, **inputs)
    print_answer("diagnosis", diagnosis, as_json=options.json)
    if diagnosis.refusal is not None:
        sys.exit(REFUSED)


def _text_or_path(argument: str) -> str | Path:
    """Return the path of a file, or the argument where it is an error text and no file."""
    # A colon behind the second character is none of a drive.
    is_text = any(map(str.isspace, argument)) or argument.isdigit() or ":" in argument[2:]
    return argument if is_text and not os.path.lexists(argument) else Path(argument)


def _call(text: str | None) -> tuple[str | None, dict[str, Any]]:
    """Return operator and inputs of a call given as JSON."""
    if text is None:
        return None, {}
    try:
        call = json.loads(text)
        operator, inputs = call.get("op"), call["inputs"]
        if (
            isinstance(inputs, dict)
            and not RESERVED & inputs.keys()
            and (operator is None or isinstance(operator, str))
        ):
            return operator, inputs
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        pass
    hint = "write a JSON object with op and inputs, as a line of a file of calls"
    raise UsageError("call", Text("call = {call} is not a call", call=shown(text)), hint)


@command(
    "npu_sim.dumps.reading:read_dump",
    "against product soc release deterministic verify report json",
    against=Option(kind=Path | None),
    deterministic=BOTH_MODES,
)
def dump_command(folder: Folder, options: Options) -> None:
    """List the calls of our operators in an msprobe dump, find values that cannot be, and the
    calls whose outputs differ from another dump although their inputs are equal.
    """
    reading = options.answer(folder)
    show_answer("dump", reading, options, reproducing_command({}))
    if reading.failed:
        sys.exit(DIFFERENT)

"""``npu-sim diagnose``: the reading of an error text or a log."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from npu_sim.cli.options import Deterministic, DeviceOptions, Json
from npu_sim.cli.output import REFUSED, print_answer
from npu_sim.language import Text
from npu_sim.status import UsageError, shown

File = Annotated[
    Path,
    typer.Argument(
        help="Error text or log as it was printed, or an exception dump; - for standard input."
    ),
]
Call = Annotated[
    str | None,
    typer.Option(
        "--call",
        help="The call that failed, as a line of a file of calls: a JSON object with op and "
        "inputs; it is planned.",
    ),
]
RESERVED = {"text", "operator", "product", "soc", "release", "deterministic"}
"""Names that are options here, and no arguments of an operator."""


@dataclass(frozen=True)
class DiagnoseOptions(DeviceOptions):
    """Options of ``npu-sim diagnose``."""

    deterministic: Deterministic = False
    call: Call = None
    json_output: Json = False


def diagnose_command(file: File, options: DiagnoseOptions) -> None:
    """Read an error text or a log: code and stage in words, the operator where the text proves
    it, the argument, and of a device exception (plog or exception dump) the tiling fields.
    """
    from npu_sim.failures.diagnosis import diagnose
    from npu_sim.failures.reader import decoded

    operator, inputs = _call(options.call)
    diagnosis = diagnose(
        decoded(sys.stdin.buffer) if str(file) == "-" else file,
        operator=operator,
        product=options.product,
        soc=options.soc,
        release=options.release,
        deterministic=options.deterministic,
        **inputs,
    )
    print_answer("diagnosis", diagnosis, as_json=options.json_output)
    if diagnosis.refusal is not None:
        sys.exit(REFUSED)


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

"""``npu-sim model``."""

import inspect
import sys
from dataclasses import dataclass
from json import loads
from pathlib import Path
from typing import Annotated, Any

import typer

from npu_sim.cli.arguments import named_values
from npu_sim.cli.call_files import NOT_ACCEPTED, CallFileOptions, write_matrix_report
from npu_sim.cli.options import command
from npu_sim.cli.output_files import require_writable
from npu_sim.cli.printing import print_json, print_text
from npu_sim.functions import model
from npu_sim.language import translated, visible
from npu_sim.questions.preflight import ERROR, INFORMATIONAL
from npu_sim.show.preflight import call_times_view, exit_text, fault_text, recorded_lines
from npu_sim.show.preflight.files import error_lines

Config = Annotated[
    str,
    typer.Argument(
        help="config.json of a model, or a type of model that transformers knows, such as llama."
    ),
]
EPILOG = (
    "The installed transformers build the model on PyTorch's meta device; its forward and "
    "backward pass are recorded. Nothing is downloaded or computed. Exit code 1: at least one "
    "call is refused."
)


@dataclass(frozen=True, kw_only=True)
class ModelOptions(CallFileOptions):
    """Options of ``npu-sim model``."""

    batch: int = 1
    sequence: int = 4096
    dtype: str = "bf16"
    optimizer: str | None = None
    inference: bool = False
    set: Annotated[
        list[str] | None,
        typer.Option(
            help="Value of the configuration to replace, such as num_hidden_layers=2; may be "
            "repeated.",
            metavar="NAME=VALUE",
        ),
    ] = None
    deterministic: bool = False
    out: Annotated[Path | None, typer.Option(callback=require_writable)] = None
    lines: Annotated[
        bool, typer.Option(help="Print what is not accepted and the remarks as sentences only.")
    ] = False


@command(model, epilog=EPILOG)
def model_command(config: Config, options: ModelOptions) -> None:
    """Show the calls of a step of training, or of inference, of a model: outcome, path, launches,
    workspace, lower bound and estimate of each and in total, and where products differ.
    """
    sizes = named_values("set", options.set or (), inspect.signature(model).parameters)
    matrix = model(
        config,
        batch=options.batch,
        sequence=options.sequence,
        dtype=options.dtype,
        optimizer=options.optimizer,
        inference=options.inference,
        deterministic=options.deterministic,
        products=options.products,
        soc=options.soc,
        release=options.chosen_release,
        out=options.out,
        **{name: _json_or_text(text) for name, text in sizes.items()},
    )
    write_matrix_report(options.report, matrix, config)
    if options.json:
        print_json("preflight", {"file": config, **matrix.as_dict()})
    elif options.lines:
        # Only the file of --out has the calls at these lines.
        faults = (
            error_lines(matrix, str(options.out), "")
            if options.out
            else (
                visible(translated(fault_text(fault)))
                for level in (ERROR, INFORMATIONAL)
                for fault in matrix.faults(level)
            )
        )
        for line in faults:
            print(line)
        print_text(*recorded_lines(matrix))
    else:
        print_text(call_times_view(matrix))
        if matrix.faults():
            print_text("", exit_text(matrix))
    if matrix.faults():
        sys.exit(NOT_ACCEPTED)


def _json_or_text(text: str) -> Any:
    try:
        return loads(text)
    except ValueError:
        return text

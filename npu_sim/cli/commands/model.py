"""``npu-sim model``: the calls and times of a model, from its configuration file."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from npu_sim.cli.call_times import Products, Releases, Socs, print_call_times
from npu_sim.cli.options import Deterministic, Json, Report, require_writable
from npu_sim.language import Text
from npu_sim.status import UsageError

Config = Annotated[
    str,
    typer.Argument(
        help="config.json of a model, or a type of model that transformers knows, such as llama."
    ),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Value of the configuration to replace, such as num_hidden_layers=2; may be repeated.",
    ),
]
CallsFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        callback=require_writable,
        help="File for the calls, which npu-sim preflight and timeline --calls read.",
    ),
]

EPILOG = (
    "The installed transformers build the model on PyTorch's meta device; its forward and backward "
    "pass are recorded. Nothing is downloaded or computed. Exit code 1: at least one call is "
    "refused."
)


@dataclass(frozen=True)
class ModelOptions:
    """Options of ``npu-sim model``."""

    batch: Annotated[int, typer.Option("--batch", help="Number of sequences.")] = 1
    sequence: Annotated[int, typer.Option("--sequence", help="Tokens of a sequence.")] = 4096
    dtype: Annotated[
        str, typer.Option("--dtype", help="Dtype of the weights: bf16, fp16 or fp32.")
    ] = "bf16"
    sizes: Sizes = None
    products: Products = None
    soc: Socs = None
    release: Releases = None
    deterministic: Deterministic = False
    out: CallsFile = None
    report: Report = None
    json_output: Json = False


def model_command(config: Config, options: ModelOptions) -> None:
    """Show the calls of a step of training of a model: outcome, path, launches, workspace, lower
    bound and estimate of each and in total, and where products differ.
    """
    from npu_sim.functions import model

    matrix = model(
        config,
        batch=options.batch,
        sequence=options.sequence,
        dtype=options.dtype,
        deterministic=options.deterministic,
        products=options.products,
        soc=options.soc,
        release=options.release,
        out=options.out,
        **dict(map(_size, options.sizes or ())),
    )
    print_call_times(matrix, config, options.report, json_output=options.json_output)
    if matrix.faults():
        sys.exit(1)


def _size(text: str) -> tuple[str, Any]:
    """Return name and value of ``NAME=VALUE``; a value that is no JSON is text."""
    import json

    name, separator, value = text.partition("=")
    if not separator or not name.isidentifier():
        message = Text("set = {text} is not of the form name=value", text=repr(text))
        raise UsageError("set", message, "for instance --set num_hidden_layers=2")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value

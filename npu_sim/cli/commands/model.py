"""``npu-sim model``: the calls and times of a model, from its configuration file."""

import inspect
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from npu_sim.cli.call_times import Products, Releases, Socs, print_call_times
from npu_sim.cli.options import Deterministic, Json, Report, require_writable

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
    from npu_sim.cli.arguments import named_values
    from npu_sim.functions import model

    reserved = inspect.signature(model).parameters
    sizes = named_values("set", options.sizes or (), reserved)
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
        **{name: _json_or_text(text) for name, text in sizes.items()},
    )
    print_call_times(matrix, config, options.report, json_output=options.json_output)
    if matrix.faults():
        sys.exit(1)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text

"""``npu-sim verify``."""

import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from npu_sim.cli.arguments import Arguments
from npu_sim.cli.arrays import read_arrays
from npu_sim.cli.options import BothModes, Json, PerOperator, Report, Seed, Threads, command
from npu_sim.cli.output import print_answer, write_document
from npu_sim.cli.progress import with_progress
from npu_sim.cli.reproducing import reproducing_command
from npu_sim.cli.threads import limit_threads
from npu_sim.files.tensors import read_tensor
from npu_sim.framework.target import Limits
from npu_sim.verdicts.verify import BUDGET, TOTAL_BUDGET, verify

UNREACHABLE_EXIT_CODE = 1
"""Exit code of ``verify`` when an output is unreachable."""


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """Options of ``npu-sim verify``."""

    product: Annotated[
        str | None,
        typer.Option(
            help="Product or SoC by any name, or a profile file ending in .yaml; every product "
            "that has the operator when left out."
        ),
    ] = None
    soc: Annotated[
        str | None, typer.Option(help="SoC, such as Ascend910B3 or 910B3; every one when left out.")
    ] = None
    release: Annotated[
        str | None, typer.Option(help="Release of the product's software; every one when left out.")
    ] = None
    deterministic: BothModes = None
    limits: Limits = "documented"
    budget: Annotated[int, typer.Option(min=1)] = BUDGET
    total_budget: Annotated[int, typer.Option(min=1)] = TOTAL_BUDGET
    seed: Seed = 0
    against: Annotated[
        str | None,
        typer.Option(
            help="File with a second result of the measured output: which rows differ, by how "
            "much, and whether both are possible."
        ),
    ] = None
    explain: bool = True
    threads: Threads = None
    report: Report = None
    json: Json = False


@command(verify, PerOperator(computes=True, takes_files=True))
def verify_command(operator: str, arguments: Arguments, options: VerifyOptions) -> None:
    """Test whether a product can have produced measured outputs (.npy files under the names of the
    results) from the inputs, bit by bit. SoC, release and determinism are optional.
    """
    arrays = read_arrays(operator, arguments)
    if options.against is not None:
        arrays["against"] = read_tensor("against", options.against)
    limit_threads(options.threads)
    answer = with_progress(
        lambda progress: verify(
            operator,
            product=options.product,
            soc=options.soc,
            release=options.release,
            deterministic=options.deterministic,
            limits=options.limits,
            budget=options.budget,
            total_budget=options.total_budget,
            seed=options.seed,
            explain=options.explain,
            progress=progress,
            **arrays,
        )
    )
    write_document(options.report, answer, reproducing_command({}))
    print_answer("verification", answer, json=options.json)
    if answer.status == "unreachable":
        sys.exit(UNREACHABLE_EXIT_CODE)

"""``npu-sim run``."""

from pathlib import Path
from typing import Annotated

import typer

from npu_sim.cli.arguments import Arguments
from npu_sim.cli.arrays import typed_arrays
from npu_sim.cli.options import (
    Figure,
    Json,
    PerOperator,
    Report,
    Rows,
    RowsOut,
    Seed,
    Threads,
    Trace,
    command,
)
from npu_sim.cli.output import exit_unless_runs, write_figure, write_report
from npu_sim.cli.output_files import require_writable
from npu_sim.cli.printing import print_json, print_text
from npu_sim.cli.reproducing import command_on
from npu_sim.cli.threads import limit_threads
from npu_sim.cores import load_profile
from npu_sim.files.tensors import write_tensors
from npu_sim.files.writing import write_text
from npu_sim.framework.target import CoreOrder, Limits
from npu_sim.operators import run
from npu_sim.show.execution import result_view


@command(run, PerOperator(computes=True))
def run_command(
    operator: str,
    arguments: Arguments,
    *,
    product: str | None = None,
    soc: str | None = None,
    release: str | None = None,
    deterministic: bool = False,
    limits: Limits = "documented",
    core_order: CoreOrder = "sequential",
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the outputs: .npy for one, .npz for several.", callback=require_writable
        ),
    ] = None,
    rows: Rows = False,
    rows_out: RowsOut = None,
    threads: Threads = None,
    report: Report = None,
    figure: Figure = None,
    trace: Trace = None,
    json: Json = False,
) -> None:
    """Compute an operator in the product's accumulation order, on .npy files or on random data of
    the given shapes.
    """
    profile = load_profile(product, soc, release)
    arrays = typed_arrays(operator, arguments, profile, limits, seed)
    limit_threads(threads)
    result = run(
        operator,
        product=profile,
        deterministic=deterministic,
        limits=limits,
        core_order=core_order,
        seed=seed,
        **arrays,
    )
    if out is not None:
        write_tensors(out, result.outputs)
    shown: dict[str, object] = {}
    variable_rows = None
    if rows or rows_out is not None:
        from npu_sim.studies.determinism import rows_that_can_differ

        variable_rows = rows_that_can_differ(
            operator,
            result,
            product=profile,
            deterministic=deterministic,
            limits=limits,
            seed=seed,
            **arrays,
        )
        shown["rows"] = [row for output in variable_rows for row in output.as_dicts()]
        if rows_out is not None:
            from npu_sim.show.rows import rows_csv

            write_text(rows_out, rows_csv(variable_rows))
    if report is not None:
        from npu_sim.show.pictures import order_strips
        from npu_sim.show.plan_report import result_report

        shown["order_strips"] = order_strips(result)
        reproducing = command_on(profile, core_order=core_order, seed=seed)
        write_report(report, lambda: result_report(result, reproducing, variable_rows or ()))
    write_figure(figure, result)
    if trace is not None:
        from npu_sim.cli.traces import write_trace_of

        shown["timeline"] = write_trace_of(trace, result.plan, profile)
    if json:
        outcome = "ran" if result.plan.overflow is None else result.plan.outcome
        print_json("run", {"outcome": outcome, **result.as_dict(), **shown})
    else:
        print_text(result_view(result))
        if rows and variable_rows is not None:
            from npu_sim.show.rows import rows_view

            print_text(rows_view(variable_rows))
    exit_unless_runs(result.plan)

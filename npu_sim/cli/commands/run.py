"""``npu-sim run``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from npu_sim.cli.arguments import Arguments
from npu_sim.cli.arrays import typed_arrays
from npu_sim.cli.options import (
    CallOptions,
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
from npu_sim.files.tensors import write_tensors
from npu_sim.files.writing import write_text
from npu_sim.framework.target import CoreOrder
from npu_sim.operators import run
from npu_sim.show.execution import result_view


@dataclass(frozen=True, kw_only=True)
class RunOptions(CallOptions):
    """Options of ``npu-sim run``."""

    core_order: CoreOrder = "sequential"
    seed: Seed = 0
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the outputs: .npy for one, .npz for several.", callback=require_writable
        ),
    ] = None
    rows: Rows = False
    rows_out: RowsOut = None
    threads: Threads = None
    report: Report = None
    figure: Figure = None
    trace: Trace = None
    json: Json = False


@command(run, PerOperator(computes=True))
def run_command(operator: str, arguments: Arguments, options: RunOptions) -> None:
    """Compute an operator in the product's accumulation order, on .npy files or on random data of
    the given shapes.
    """
    profile = options.profile()
    arrays = typed_arrays(operator, arguments, profile, options.limits, options.seed)
    limit_threads(options.threads)
    result = run(
        operator,
        product=profile,
        deterministic=options.deterministic,
        limits=options.limits,
        core_order=options.core_order,
        seed=options.seed,
        **arrays,
    )
    if options.out is not None:
        write_tensors(options.out, result.outputs)
    shown: dict[str, object] = {}
    variable_rows = None
    if options.rows or options.rows_out is not None:
        from npu_sim.studies.determinism import rows_that_can_differ

        variable_rows = rows_that_can_differ(
            operator,
            result,
            product=profile,
            deterministic=options.deterministic,
            limits=options.limits,
            seed=options.seed,
            **arrays,
        )
        shown["rows"] = [row for output in variable_rows for row in output.as_dicts()]
        if options.rows_out is not None:
            from npu_sim.show.rows import rows_csv

            write_text(options.rows_out, rows_csv(variable_rows))
    if options.report is not None:
        from npu_sim.show.pictures import order_strips
        from npu_sim.show.plan_report import result_report

        shown["order_strips"] = order_strips(result)
        reproducing = command_on(profile, core_order=options.core_order, seed=options.seed)
        write_report(
            options.report, lambda: result_report(result, reproducing, variable_rows or ())
        )
    write_figure(options.figure, result)
    if options.trace is not None:
        from npu_sim.cli.traces import write_trace_of

        shown["timeline"] = write_trace_of(options.trace, result.plan, profile)
    if options.json:
        outcome = "ran" if result.plan.overflow is None else result.plan.outcome
        print_json("run", {"outcome": outcome, **result.as_dict(), **shown})
    else:
        print_text(result_view(result))
        if options.rows and variable_rows is not None:
            from npu_sim.show.rows import rows_view

            print_text(rows_view(variable_rows))
    exit_unless_runs(result.plan)

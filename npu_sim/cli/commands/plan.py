"""``npu-sim plan``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from npu_sim.cli.arguments import Arguments, typed_specs
from npu_sim.cli.options import CallOptions, Csv, Figure, Json, PerOperator, Report, Trace, command
from npu_sim.cli.output import exit_unless_runs, print_csv, write_document, write_figure
from npu_sim.cli.output_files import require_writable
from npu_sim.cli.printing import print_json, print_text
from npu_sim.cli.reproducing import command_on
from npu_sim.files.writing import write_atomically
from npu_sim.framework import planning
from npu_sim.operators import plan
from npu_sim.show.plans import plan_view
from npu_sim.show.workspaces import workspace_tables


@dataclass(frozen=True, kw_only=True)
class PlanOptions(CallOptions):
    """Options of ``npu-sim plan``."""

    report: Report = None
    figure: Figure = None
    trace: Trace = None
    tiling_bytes: Annotated[
        Path | None,
        typer.Option(
            help="Write the tiling structure to this file, byte for byte as the kernel receives "
            "it.",
            callback=require_writable,
        ),
    ] = None
    json: Json = False
    csv: Csv = False
    workspace: Annotated[
        bool, typer.Option(help="Add kernels, areas with offsets and lifetimes, and buckets.")
    ] = False


@command(plan, PerOperator())
def plan_command(operator: str, arguments: Arguments, options: PlanOptions) -> None:
    """Check a call and show path, cores, buffers, workspace and determinism."""
    profile = options.profile()
    made = plan(
        operator,
        product=profile,
        deterministic=options.deterministic,
        limits=options.limits,
        **typed_specs(operator, arguments),
    )
    if options.tiling_bytes is not None:
        data = planning.tiling_bytes(made)
        write_atomically(options.tiling_bytes, lambda file: file.write(data), "tiling_bytes")
    write_document(options.report, made, command_on(profile))
    write_figure(options.figure, made)
    shown = {}
    if options.trace is not None:
        from npu_sim.cli.traces import write_trace_of  # timelines are loaded for a trace only

        shown = {"timeline": write_trace_of(options.trace, made, profile)}
    if options.csv:
        print_csv([{"outcome": made.outcome, **made.as_dict()}])
    elif options.json:
        print_json("plan", {"outcome": made.outcome, "plan": made.as_dict(), **shown})
    else:
        areas = ["", workspace_tables(made.workspace)] if options.workspace else []
        print_text(plan_view(made), *areas)
    exit_unless_runs(made)

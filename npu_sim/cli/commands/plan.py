"""``npu-sim plan``."""

from pathlib import Path
from typing import Annotated

import typer

from npu_sim.cli.arguments import Arguments, typed_specs
from npu_sim.cli.options import Csv, Figure, Json, PerOperator, Report, Trace, command
from npu_sim.cli.output import exit_unless_runs, print_csv, write_document, write_figure
from npu_sim.cli.output_files import require_writable
from npu_sim.cli.printing import print_json, print_text
from npu_sim.cli.reproducing import command_on
from npu_sim.cores import load_profile
from npu_sim.files.writing import write_atomically
from npu_sim.framework import planning
from npu_sim.framework.target import Limits
from npu_sim.operators import plan
from npu_sim.show.plans import plan_view
from npu_sim.show.workspaces import workspace_tables


@command(plan, PerOperator())
def plan_command(
    operator: str,
    arguments: Arguments,
    *,
    product: str | None = None,
    soc: str | None = None,
    release: str | None = None,
    deterministic: bool = False,
    limits: Limits = "documented",
    report: Report = None,
    figure: Figure = None,
    trace: Trace = None,
    tiling_bytes: Annotated[
        Path | None,
        typer.Option(
            help="Write the tiling structure to this file, byte for byte as the kernel receives "
            "it.",
            callback=require_writable,
        ),
    ] = None,
    json: Json = False,
    csv: Csv = False,
    workspace: Annotated[
        bool, typer.Option(help="Add kernels, areas with offsets and lifetimes, and buckets.")
    ] = False,
) -> None:
    """Check a call and show path, cores, buffers, workspace and determinism."""
    profile = load_profile(product, soc, release)
    made = plan(
        operator,
        product=profile,
        deterministic=deterministic,
        limits=limits,
        **typed_specs(operator, arguments),
    )
    if tiling_bytes is not None:
        data = planning.tiling_bytes(made)
        write_atomically(tiling_bytes, lambda file: file.write(data), "tiling_bytes")
    write_document(report, made, command_on(profile))
    write_figure(figure, made)
    shown = {}
    if trace is not None:
        from npu_sim.cli.traces import write_trace_of  # timelines are loaded for a trace only

        shown = {"timeline": write_trace_of(trace, made, profile)}
    if csv:
        print_csv([{"outcome": made.outcome, **made.as_dict()}])
    elif json:
        print_json("plan", {"outcome": made.outcome, "plan": made.as_dict(), **shown})
    else:
        areas = ["", workspace_tables(made.workspace)] if workspace else []
        print_text(plan_view(made), *areas)
    exit_unless_runs(made)

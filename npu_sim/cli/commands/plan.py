"""``npu-sim plan``: check a call and show how it is tiled."""

from dataclasses import dataclass
from typing import Any

from npu_sim.cli.options import CallOptions, Csv, Figure, Json, Report, TilingBytes, Trace
from npu_sim.cli.output import exit_unless_runs, print_csv, print_json, print_text


@dataclass(frozen=True)
class PlanOptions(CallOptions):
    """Options of ``npu-sim plan``."""

    report: Report = None
    figure: Figure = None
    trace: Trace = None
    tiling_bytes: TilingBytes = None
    json_output: Json = False
    csv: Csv = False


def plan_command(operator: str, arguments: dict[str, Any], options: PlanOptions) -> None:
    """Check a call and show path, cores, buffers, workspace and determinism."""
    from npu_sim.cli.arguments import typed_specs
    from npu_sim.operators import plan

    profile = options.profile()
    keywords = options.keywords_on(profile)
    result = plan(operator, **keywords, **typed_specs(operator, arguments))
    if options.tiling_bytes is not None:
        from npu_sim.files.writing import write_atomically
        from npu_sim.framework.tiling_bytes import tiling_bytes

        data = tiling_bytes(result)
        write_atomically(options.tiling_bytes, lambda file: file.write(data), "tiling_bytes")
    pictures = {}
    if options.report or options.trace:
        from npu_sim.cli.report_files import command_on, write_report_and_trace

        command = command_on(profile)
        pictures = write_report_and_trace(result, profile, options.report, options.trace, command)
    if options.figure is not None:
        from npu_sim.cli.report_files import write_figure

        write_figure(options.figure, result)
    if options.csv:
        print_csv([{"outcome": result.outcome, **result.as_dict()}])
    elif options.json_output:
        print_json("plan", {"outcome": result.outcome, "plan": result.as_dict(), **pictures})
    else:
        from npu_sim.show.text import plan_view

        print_text(plan_view(result))
    exit_unless_runs(result)

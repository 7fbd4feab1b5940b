"""``npu-sim run``: compute an operator on data from files."""

from dataclasses import dataclass
from typing import Any

from npu_sim.cli.options import (
    CallOptions,
    CoreOrderOption,
    Figure,
    Json,
    Out,
    Report,
    Rows,
    RowsOut,
    Seed,
    Threads,
    Trace,
)
from npu_sim.cli.output import exit_unless_runs, print_json, print_text
from npu_sim.cli.report_files import command_on, write_figure


@dataclass(frozen=True)
class RunOptions(CallOptions):
    """Options of ``npu-sim run``."""

    core_order: CoreOrderOption = "sequential"
    seed: Seed = 0
    out: Out = None
    rows: Rows = False
    rows_out: RowsOut = None
    threads: Threads = None
    report: Report = None
    figure: Figure = None
    trace: Trace = None
    json_output: Json = False


def run_command(operator: str, arguments: dict[str, Any], options: RunOptions) -> None:
    """Compute an operator in the product's accumulation order, on .npy files or on random data of
    the given shapes.
    """
    from npu_sim.cli.arguments import typed_arrays
    from npu_sim.cli.report_files import write_report_and_trace
    from npu_sim.files.tensors import write_tensors
    from npu_sim.files.writing import write_text
    from npu_sim.kernels.engine.threads import limit_threads
    from npu_sim.operators import run
    from npu_sim.show.variable_rows import rows_csv

    profile = options.profile()
    keywords = options.keywords_on(profile)
    order: Any = {"core_order": options.core_order, "seed": options.seed}
    arrays = typed_arrays(operator, arguments, profile, keywords["limits"], options.seed)
    limit_threads(options.threads)
    result = run(operator, **keywords, **order, **arrays)
    if options.out is not None:
        write_tensors(options.out, result.outputs)
    variable_rows = None
    if options.rows or options.rows_out is not None:
        from npu_sim.studies.determinism import rows_that_can_differ

        variable_rows = rows_that_can_differ(
            operator, result, seed=options.seed, **keywords, **arrays
        )
        if options.rows_out is not None:
            write_text(options.rows_out, rows_csv(variable_rows))
    command = command_on(profile, **order)
    pictures = write_report_and_trace(
        result, profile, options.report, options.trace, command, variable_rows or ()
    )
    write_figure(options.figure, result)
    if options.json_output:
        outcome = "ran" if result.plan.overflow is None else result.plan.outcome
        data = {"outcome": outcome, **result.as_dict()}
        if variable_rows is not None:
            data["rows"] = [row for output in variable_rows for row in output.as_dicts()]
        print_json("run", {**data, **pictures})
    else:
        from npu_sim.show.text import result_view
        from npu_sim.show.variable_rows import rows_view

        print_text(result_view(result))
        if options.rows and variable_rows is not None:
            print_text(rows_view(variable_rows))
    exit_unless_runs(result.plan)

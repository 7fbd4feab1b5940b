"""``npu-sim run``: compute an operator on data from files."""

from typing import Any

from npu_sim.cli.again import command_on
from npu_sim.cli.errors import exit_with
from npu_sim.cli.json_output import print_json
from npu_sim.cli.options import (
    CoreOrderOption,
    Deterministic,
    Json,
    LimitsOption,
    Out,
    Product,
    Release,
    Report,
    Rows,
    RowsOut,
    Seed,
    Soc,
    Threads,
    Trace,
)


def run_command(
    operator: str,
    arguments: dict[str, Any],
    product: Product = None,
    soc: Soc = None,
    release: Release = None,
    deterministic: Deterministic = False,
    core_order: CoreOrderOption = "sequential",
    seed: Seed = 0,
    limits: LimitsOption = "documented",
    out: Out = None,
    rows: Rows = False,
    rows_out: RowsOut = None,
    threads: Threads = None,
    report: Report = None,
    trace: Trace = None,
    json_output: Json = False,
) -> None:
    """Compute an operator on data from .npy files, or on generated data where shapes are given, in the product's accumulation order."""
    from npu_sim.cli.arguments import typed_arrays
    from npu_sim.cli.pictures import write_pictures
    from npu_sim.cores import load_profile
    from npu_sim.files.tensors import write_tensors
    from npu_sim.files.writing import write_text
    from npu_sim.kernels.engine.threads import limit_threads
    from npu_sim.operators import run
    from npu_sim.show.open_rows import rows_csv

    loaded = load_profile(product, soc, release)
    arrays = typed_arrays(operator, arguments, loaded, limits, seed)  # type: ignore[arg-type]
    limit_threads(threads)
    result = run(
        operator,
        product=loaded,
        deterministic=deterministic,
        core_order=core_order,  # type: ignore[arg-type]
        seed=seed,
        limits=limits,  # type: ignore[arg-type]
        **arrays,
    )
    if out is not None:
        write_tensors(out, result.outputs)
    found = None
    if rows or rows_out is not None:
        from npu_sim.studies.determinism import rows_that_can_differ

        options: dict[str, Any] = {
            "product": loaded,
            "deterministic": deterministic,
            "limits": limits,
        }
        found = rows_that_can_differ(operator, result, seed=seed, **options, **arrays)
        if rows_out is not None:
            write_text(rows_out, rows_csv(found))
    call = command_on(loaded, core_order=core_order, seed=seed)
    pictures = write_pictures(result, loaded, report, trace, call, found or ())
    if json_output:
        outcome = "ran" if result.plan.overflow is None else result.plan.outcome
        listed = {} if found is None else {"rows": [row for one in found for row in one.as_dicts()]}
        print_json("run", {"outcome": outcome, **result.as_dict(), **listed, **pictures})
    else:
        from npu_sim.cli.console import show
        from npu_sim.show.open_rows import rows_view
        from npu_sim.show.text import result_view

        show(result_view(result), *([rows_view(found)] if rows and found is not None else []))
    exit_with(result.plan)

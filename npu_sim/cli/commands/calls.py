"""Commands on one call: plan, explain, run, diff, limits and verify."""

import inspect
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from npu_sim.cli.errors import refusal_in_shell_form
from npu_sim.cli.operators import named_values, read_arrays, typed_arrays, typed_specs
from npu_sim.cli.options import BOTH_MODES, WRITES, Option, Options, command
from npu_sim.cli.output import (
    REFUSED,
    command_on,
    exit_unless_runs,
    print_answer,
    print_csv,
    print_json,
    print_text,
    reproducing_command,
    show_answer,
    write_figure,
    write_report_and_trace,
)
from npu_sim.status import UsageError

PRODUCTS = Option(flags="--products,--product")
SOCS = Option(flags="--socs,--soc")
DEVICE_OF_REPORT: dict[tuple[str, ...], object] = {("--products", "--product"): "all"}
"""Default of reports on several products."""
UNREACHABLE_EXIT_CODE = 1
"""Exit code of ``verify`` when an output is unreachable."""
Arguments = dict[str, Any]
"""Typed arguments of an operator by name."""


@command(
    "npu_sim.operators:plan",
    "product soc release deterministic limits report figure trace tiling_bytes json csv workspace",
    tiling_bytes=Option(
        "Write the tiling structure to this file, byte for byte as the kernel receives it.",
        Path | None,
        more=WRITES,
    ),
    workspace=Option("Add kernels, areas with offsets and lifetimes, and buckets.", bool, False),
)
def plan_command(operator: str, arguments: Arguments, options: Options) -> None:
    """Check a call and show path, cores, buffers, workspace and determinism."""
    profile = options.profile()
    keywords = options.call | {"product": profile, "soc": None, "release": None}
    result = options.function(operator, **keywords, **typed_specs(operator, arguments))
    if options.tiling_bytes is not None:
        from npu_sim.files.writing import write_atomically
        from npu_sim.framework.tiling_bytes import tiling_bytes

        data = tiling_bytes(result)
        write_atomically(options.tiling_bytes, lambda file: file.write(data), "tiling_bytes")
    pictures = {}
    if options.report or options.trace:
        reproducing = command_on(profile)
        pictures = write_report_and_trace(
            result, profile, options.report, options.trace, reproducing
        )
    if options.figure is not None:
        write_figure(options.figure, result)
    if options.csv:
        print_csv([{"outcome": result.outcome, **result.as_dict()}])
    elif options.json:
        print_json("plan", {"outcome": result.outcome, "plan": result.as_dict(), **pictures})
    else:
        from npu_sim.show.text import plan_view

        print_text(plan_view(result))
        if options.workspace:
            from npu_sim.show.text import workspace_tables

            print_text("", workspace_tables(result.workspace))
    exit_unless_runs(result)


@command("npu_sim.questions.explain:explain", "product soc release deterministic limits json")
def explain_command(operator: str, arguments: Arguments, options: Options) -> None:
    """Explain a plan: every condition with its numbers, the nearest change, buffers, limits,
    workspace and order.
    """
    explanation = options.answer(operator, **typed_specs(operator, arguments))
    if explanation.refusal is not None:
        explanation = replace(explanation, refusal=refusal_in_shell_form(explanation.refusal))
    print_answer("explain", explanation, as_json=options.json)
    if explanation.plan is None or explanation.plan.overflow is not None:
        sys.exit(REFUSED)


@command(
    "npu_sim.operators:run",
    "product soc release deterministic limits core_order seed out rows rows_out threads report "
    "figure trace json",
    out=Option("File for the outputs: .npy for one, .npz for several.", Path | None, more=WRITES),
)
def run_command(operator: str, arguments: Arguments, options: Options) -> None:
    """Compute an operator in the product's accumulation order, on .npy files or on random data of
    the given shapes.
    """
    from npu_sim.files.tensors import write_tensors
    from npu_sim.files.writing import write_text
    from npu_sim.kernels.engine.threads import limit_threads
    from npu_sim.show.studies import rows_csv

    profile = options.profile()
    keywords = options.call | {"product": profile, "soc": None, "release": None, "out": None}
    arrays = typed_arrays(operator, arguments, profile, options.limits, options.seed)
    limit_threads(options.threads)
    result = options.function(operator, **keywords, **arrays)
    if options.out is not None:
        write_tensors(options.out, result.outputs)
    variable_rows = None
    if options.rows or options.rows_out is not None:
        from npu_sim.studies.determinism import rows_that_can_differ

        del keywords["out"], keywords["core_order"]
        variable_rows = rows_that_can_differ(operator, result, **keywords, **arrays)
        if options.rows_out is not None:
            write_text(options.rows_out, rows_csv(variable_rows))
    reproducing = command_on(profile, core_order=options.core_order, seed=options.seed)
    pictures = write_report_and_trace(
        result, profile, options.report, options.trace, reproducing, variable_rows or ()
    )
    write_figure(options.figure, result)
    if options.json:
        outcome = "ran" if result.plan.overflow is None else result.plan.outcome
        data = {"outcome": outcome, **result.as_dict()}
        if variable_rows is not None:
            data["rows"] = [row for output in variable_rows for row in output.as_dicts()]
        print_json("run", {**data, **pictures})
    else:
        from npu_sim.show.studies import rows_view
        from npu_sim.show.text import result_view

        print_text(result_view(result))
        if options.rows and variable_rows is not None:
            print_text(rows_view(variable_rows))
    exit_unless_runs(result.plan)


@command(
    "npu_sim.questions.compare:compare",
    "product soc release releases deterministic limits report json csv",
    product=PRODUCTS,
    soc=SOCS,
    releases=Option("Every release, and what an upgrade changes.", bool, False),
)
def diff_command(operator: str, arguments: Arguments, options: Options) -> None:
    """Compare one call across products, SoCs and releases: outcome, path, cores, buffer, workspace
    and order.
    """
    from npu_sim.releases import default_release

    if options.releases and options.release is not None:
        raise UsageError(
            "release", "--release and --releases exclude each other", "leave one of them out"
        )
    release = "all" if options.releases else options.release
    comparison = options.answer(operator, release=release, **typed_specs(operator, arguments))
    defaults = DEVICE_OF_REPORT | {("--release", "--releases"): default_release()}
    show_answer("diff", comparison, options, reproducing_command(defaults), csv="rows")


@command(
    "npu_sim.questions.limits:limits",
    "vary set product soc release deterministic report figure json csv",
    vary=Option(kind=list[str] | None),
    set=Option(
        "A size, dtype or switch by its natural name, such as rows=4096; repeatable.",
        list[str] | None,
    ),
    product=PRODUCTS,
    soc=SOCS,
)
def limits_command(operator: str, arguments: Arguments, options: Options) -> None:
    """Find the documented and the hardware bounds of an argument on every product."""
    from npu_sim.releases import default_release

    reserved = inspect.signature(options.function).parameters
    natural = named_values("set", options.set or (), reserved)
    table = options.answer(operator, **{**typed_specs(operator, arguments), **natural})
    defaults = DEVICE_OF_REPORT | {("--release",): default_release()}
    show_answer("limits", table, options, reproducing_command(defaults), csv="rows")


@command(
    "npu_sim.verdicts.verify:verify",
    "product soc release deterministic limits budget total_budget seed against explain threads "
    "report json",
    deterministic=BOTH_MODES,
    budget=Option(more={"min": 1}),
    total_budget=Option(more={"min": 1}),
    against=Option(
        "File with a second result of the measured output: which rows differ, by how much, and "
        "whether both are possible.",
        str | None,
    ),
)
def verify_command(operator: str, arguments: Arguments, options: Options) -> None:
    """Test whether a product can have produced measured outputs (.npy files under the names of the
    results) from the inputs, bit by bit. SoC, release and determinism are optional.
    """
    from npu_sim.kernels.engine.threads import limit_threads

    arrays = read_arrays(operator, arguments)
    if options.against is not None:
        from npu_sim.files.tensors import read_tensor

        arrays["against"] = read_tensor("against", options.against)
    limit_threads(options.threads)
    answer = options.answer(operator, **arrays)
    show_answer("verification", answer, options, reproducing_command({}))
    if answer.status == "unreachable":
        sys.exit(UNREACHABLE_EXIT_CODE)

"""Commands on one call: plan, explain, run, diff, limits, verify and timeline."""

import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from npu_sim.cli.lazy import (
    cores,
    files,
    framework,
    kernels,
    operators,
    plans,
    questions,
    show,
    studies,
    sweeps,
    timelines,
)
from npu_sim.cli.operators import named_values, read_arrays, typed_arrays, typed_specs
from npu_sim.cli.options import BOTH_MODES, RUN, WRITES, Option, Options, chosen_release, command
from npu_sim.cli.output import (
    REFUSED_EXIT_CODE,
    command_on,
    exit_unless_runs,
    print_answer,
    print_csv,
    print_json,
    print_text,
    reproducing_command,
    show_answer,
    write_figure,
    write_files,
    write_report,
)
from npu_sim.language import Text
from npu_sim.status import NO_PLAN, Unplanned, UsageError

PRODUCTS = Option(flags="--products,--product")
SOCS = Option(flags="--socs,--soc")
DEVICE_OF_REPORT: dict[tuple[str, ...], object] = {("--products", "--product"): "all"}
"""Default of reports on several products."""
UNREACHABLE_EXIT_CODE = 1
"""Exit code of ``verify`` when an output is unreachable."""
Arguments = dict[str, Any]
"""Typed arguments of an operator by name."""
MOST_VARIED = 1000
"""Most calls that ``timeline --vary`` compares."""


@command(
    "npu_sim.operators:plan",
    "product soc release deterministic limits report figure trace tiling_bytes json csv workspace",
    tiling_bytes=Option(
        "Write the tiling structure to this file, byte for byte as the kernel receives it.",
        Path | None,
        extra=WRITES,
    ),
    workspace=Option("Add kernels, areas with offsets and lifetimes, and buckets.", bool, False),
)
def plan_command(operator: str, arguments: Arguments, options: Options) -> None:
    """Check a call and show path, cores, buffers, workspace and determinism."""
    profile = options.profile()
    keywords = options.call | {"product": profile, "soc": None, "release": None}
    result = options.function(operator, **keywords, **typed_specs(operator, arguments))
    if options.tiling_bytes is not None:
        data = framework.planning.tiling_bytes(result)
        files.writing.write_atomically(
            options.tiling_bytes, lambda file: file.write(data), "tiling_bytes"
        )
    shown_data = write_files(result, profile, options, command_on(profile))
    if options.csv:
        print_csv([{"outcome": result.outcome, **result.as_dict()}])
    elif options.json:
        print_json("plan", {"outcome": result.outcome, "plan": result.as_dict(), **shown_data})
    else:
        print_text(
            show.plans.plan_view(result),
            *(
                ["", show.workspaces.workspace_tables(result.workspace)]
                if options.workspace
                else []
            ),
        )
    exit_unless_runs(result)


@command("npu_sim.questions.explain:explain", "product soc release deterministic limits json")
def explain_command(operator: str, arguments: Arguments, options: Options) -> None:
    """Explain a plan: every condition with its numbers, the nearest change, buffers, limits,
    workspace and order.
    """
    explanation = options.answer(operator, **typed_specs(operator, arguments))
    print_answer("explain", explanation, as_json=options.json)
    if explanation.plan is None or explanation.plan.overflow is not None:
        sys.exit(REFUSED_EXIT_CODE)


@command(
    RUN,
    "product soc release deterministic limits core_order seed out rows rows_out threads report "
    "figure trace json",
    out=Option("File for the outputs: .npy for one, .npz for several.", Path | None, extra=WRITES),
)
def run_command(operator: str, arguments: Arguments, options: Options) -> None:
    """Compute an operator in the product's accumulation order, on .npy files or on random data of
    the given shapes.
    """
    profile = options.profile()
    keywords = options.call | {"product": profile, "soc": None, "release": None, "out": None}
    arrays = typed_arrays(operator, arguments, profile, options.limits, options.seed)
    kernels.engine.compile.limit_threads(options.threads)
    result = options.function(operator, **keywords, **arrays)
    if options.out is not None:
        files.tensors.write_tensors(options.out, result.outputs)
    variable_rows = None
    if options.rows or options.rows_out is not None:
        del keywords["out"], keywords["core_order"]
        variable_rows = studies.determinism.rows_that_can_differ(
            operator, result, **keywords, **arrays
        )
        if options.rows_out is not None:
            files.writing.write_text(options.rows_out, show.studies.rows_csv(variable_rows))
    reproducing = command_on(profile, core_order=options.core_order, seed=options.seed)
    shown_data = write_files(result, profile, options, reproducing, variable_rows or ())
    if options.json:
        rows = [row for output in variable_rows or () for row in output.as_dicts()]
        data = {
            "outcome": "ran" if result.plan.overflow is None else result.plan.outcome,
            **result.as_dict(),
            **({} if variable_rows is None else {"rows": rows}),
            **shown_data,
        }
        print_json("run", data)
    else:
        print_text(show.execution.result_view(result))
        if options.rows and variable_rows is not None:
            print_text(show.studies.rows_view(variable_rows))
    exit_unless_runs(result.plan)


@command(
    "npu_sim.questions.compare:diff",
    "product soc release releases deterministic limits report json csv",
    product=PRODUCTS,
    soc=SOCS,
    releases=Option("Every release, and what an upgrade changes.", bool, False),
)
def diff_command(operator: str, arguments: Arguments, options: Options) -> None:
    """Compare one call across products, SoCs and releases: outcome, path, cores, buffer, workspace
    and order.
    """
    comparison = options.answer(
        operator, release=chosen_release(options), **typed_specs(operator, arguments)
    )
    show_answer(
        "diff",
        comparison,
        options,
        reproducing_command(
            DEVICE_OF_REPORT | {("--release", "--releases"): cores.default_release()}
        ),
        csv="rows",
    )


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
    natural = named_values("set", options.set or (), inspect.signature(options.function).parameters)
    table = options.answer(operator, **{**typed_specs(operator, arguments), **natural})
    show_answer(
        "limits",
        table,
        options,
        reproducing_command(DEVICE_OF_REPORT | {("--release",): cores.default_release()}),
        csv="rows",
    )


@command(
    "npu_sim.verdicts.verify:verify",
    "product soc release deterministic limits budget total_budget seed against explain threads "
    "report json",
    deterministic=BOTH_MODES,
    budget=Option(extra={"min": 1}),
    total_budget=Option(extra={"min": 1}),
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
    arrays = read_arrays(operator, arguments)
    if options.against is not None:
        arrays["against"] = files.tensors.read_tensor("against", options.against)
    kernels.engine.compile.limit_threads(options.threads)
    answer = options.answer(operator, **arrays)
    show_answer("verification", answer, options, reproducing_command({}))
    if answer.status == "unreachable":
        sys.exit(UNREACHABLE_EXIT_CODE)


class Compared(NamedTuple):
    """One call of a comparison: its timeline and plan, or why there is none."""

    name: str
    profile: "cores.Profile"
    found: "timelines.model.Timeline | Unplanned"
    plan: "plans.model.Plan | None" = None

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        outcome: Any = self.plan or self.found
        return {
            "call": self.name,
            "product": self.profile.name,
            "soc": self.profile.soc,
            "release": self.profile.release,
            "outcome": outcome.outcome,
            "timeline" if self.plan else "error": self.found.as_dict(),
        }


@command(
    "npu_sim.functions:timeline",
    "product soc release deterministic limits products socs vary calibration trace report figure "
    "json",
    products=Option("Products to compare: all, or names joined by commas.", str | None),
    socs=Option("SoCs to compare: all of the product, or names joined by commas.", str | None),
    vary=Option("Sizes to compare, such as dim=256,512,513 or dim=256..4096:*2.", str | None),
    calibration=Option(kind=Path | None),
)
def timeline_command(operator: str, arguments: Arguments, options: Options) -> None:
    """Show the lower bound of a call at the published rates, what limits it, and an estimate if one
    can be made; compare SoCs or sizes.
    """
    specs = typed_specs(operator, arguments)
    chosen = options.profile()
    rows = _rows(operator, list(_calls(operator, specs, options.vary)), chosen, options)
    timed: list[Any] = [row for row in rows if row.plan]
    if not timed and isinstance(rows[0].found, NO_PLAN):
        raise rows[0].found
    if len(rows) == 1:
        ((name, profile, bound, plan),) = timed
        changed = questions.explain.with_changes(bound, plan, profile)
        rows = timed = [Compared(name, profile, changed, plan)]
    if options.trace is not None:
        timelines.tracks.write_trace(
            options.trace, [operators.timelines.timed_plan(row.plan, row.profile) for row in timed]
        )
    if options.report is not None:
        _write_report(options, chosen, timed)
    if options.figure is not None:
        if len(timed) != 1:
            raise UsageError(
                "figure",
                Text("figure = {figure}: a picture shows one call on one SoC", options),
                "--report shows several",
            )
        write_figure(options.figure, timed[0].found)
    if options.json:
        print_json(
            "timeline", {"label": "lower bound", "timelines": [row.as_dict() for row in rows]}
        )
    elif len(rows) == 1:
        overflow = show.text.overflow_text(plan)
        print_text(*([overflow, ""] if overflow else []), show.timelines.timeline_view(changed))
    else:
        print_text(
            show.timelines.timelines_view([(row.name, row.profile.soc, row.found) for row in rows])
        )
    if len(rows) == 1:
        exit_unless_runs(plan)


def _rows(
    operator: str, calls: Sequence[tuple[str, Arguments]], chosen: "cores.Profile", options: Options
) -> list[Compared]:
    """Return every call on every device that the options name."""
    calibration = options.calibration and timelines.model.load_calibration(options.calibration)
    profiles, products, socs = [chosen], options.products, options.socs
    for value, several in ((options.product, "products"), (options.soc, "socs")):
        if value is not None and getattr(options, several) is not None:
            raise UsageError(
                several,
                Text("{option} is given twice", option=f"--{several} / --{several[:-1]}"),
                "leave one of the two out",
            )
    if products is not None or socs is not None:
        named = chosen.product.socs if socs == "all" else (socs or "").split(",")
        if products is None and all(chosen.product.soc_named(name.strip()) for name in named):
            products = options.product or chosen.name
        columns = questions.preflight.chosen_columns(products, socs, chosen.release)
        profiles = [column.profile for column in columns]
    rows = []
    for name, call in calls:
        for profile in profiles:
            if calibration is not None:
                calibration.require_device(profile)
            modes = {"deterministic": options.deterministic, "limits": options.limits}
            try:
                made = operators.plan(operator, product=profile, **modes, **call)
                bound = operators.timelines.timeline(made, profile, calibration)
                rows.append(Compared(name, profile, bound, made))
            except NO_PLAN as error:
                rows.append(Compared(name, profile, error))
    return rows


def _calls(operator: str, specs: Arguments, vary: str | None) -> Iterator[tuple[str, Arguments]]:
    """Yield (name, arguments) of every call: one, or one for every value that an axis takes."""
    if vary is None:
        yield "as given", specs
        return

    name, _, listed = vary.partition("=")
    declared = operators.loading.load_operator(operator)
    axis = declared.axis(name.strip())
    if axis not in declared.axes or not listed:
        message = Text("vary = {vary} is not of the form name=values", vary=repr(vary))
        raise UsageError(
            "vary",
            message,
            Text(
                "write AXIS=VALUE,VALUE or AXIS=FIRST..LAST:+STEP with one of: {names}",
                names=", ".join(axis.name for axis in declared.axes),
            ),
        )
    values = sweeps.space.axis_values(axis, axis.name, listed)
    if len(values.codes) > MOST_VARIED:
        message = Text("vary = {vary}: {count} values", vary=repr(vary), count=len(values.codes))
        raise UsageError("vary", message, Text("at most {most} values", most=MOST_VARIED))
    call = framework.planning.fixed_call(declared, specs)
    for code in values.codes:
        value = axis.value(code)
        yield f"{axis.name}={value}", call.arguments({axis.name: value})


def _write_report(options: Options, chosen: "cores.Profile", timed: Sequence[Any]) -> None:
    """Write the report of rows of a comparison that have a plan."""
    reproducing = command_on(chosen)
    if options.socs is not None:
        reproducing = reproducing_command(
            {("--product",): chosen.name, ("--release",): chosen.release}
        )
    drawn = timed[: show.timeline_report.MOST_DRAWN]
    events = timelines.tracks.EVENTS_OF_A_PIPE // len(drawn)
    works = [operators.timelines.tracks(row.plan, row.profile, row.found, events) for row in drawn]
    write_report(
        options.report,
        lambda: show.timeline_report.timeline_report(
            [(row.name, row.found) for row in timed], works, reproducing
        ),
    )

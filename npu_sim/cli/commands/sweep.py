"""``npu-sim sweep``: plans of millions of calls."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from npu_sim.cli.lazy import cores, framework, operators, show, sweeps
from npu_sim.cli.operators import named_values
from npu_sim.cli.options import Option, Options, command
from npu_sim.cli.output import (
    INTERRUPTION,
    print_json,
    print_text,
    reproducing_command,
    with_progress,
    write_report,
)
from npu_sim.language import Text, Verbatim, bytes_text, joined, say
from npu_sim.status import UsageError

DIFFERENT = 1
"""Exit code if --check found differences."""


def epilog(operator: str) -> str:
    """Return what can vary, and an example that works."""
    declared = operators.loading.load_operator(operator)
    words = {
        axis: axis.words if isinstance(axis, framework.arguments.Word) else ("true", "false")
        for axis in declared.all_axes
        if not isinstance(axis, framework.arguments.Number)
    }
    names = (
        say(
            "{name}: {meaning}",
            name=Verbatim(axis.name + (f" ({', '.join(words[axis])})" if axis in words else "")),
            meaning=axis.help,
        )
        for axis in declared.all_axes
    )
    numbers = [
        axis.name
        for axis in declared.axes
        if isinstance(axis, framework.arguments.Number) and axis.unit
    ]
    sizes = (f"{numbers[-1]}=1..100000", *(f"{name}=128,512,1024" for name in numbers[-2:-1]))
    example = say(
        "npu-sim sweep {operator} {grids} --grid product=all --out plans",
        operator=Verbatim(operator),
        grids=Verbatim(" ".join(f"--grid {size}" for size in sizes)),
    )
    return say(
        "Names: product, soc, release (all, or names), {names}. Example: {example}",
        names=joined(names),
        example=example,
    )


@command(
    "npu_sim.sweeps.runner:run_sweep",
    "grid sample seed columns out resume overwrite engine scheduler threads check report json",
    grid=Option(
        "name=values, repeatable: values with commas, ranges 1..100, 0..100:+5, 1..4096:*2; "
        "with --sample also 1..100000:log. Other names keep their default value.",
        list[str],
        [],
    ),
    sample=Option(
        "Draw this many random calls from the grid instead of every combination.", int | None
    ),
    seed=Option("Seed of the sample.", int, 0),
    columns=Option("Columns to keep, with commas; all when left out.", str | None),
    out=Option("A new folder (.npy columns), or a file ending in .csv or .parquet.", Path | None),
    resume=Option("Go on with the interrupted sweep of --out.", bool, False),
    overwrite=Option("Replace what a sweep wrote to --out before.", bool, False),
    engine=Option("local, or dask: a Dask cluster.", str, "local"),
    scheduler=Option(
        "Address of a Dask scheduler; without it a cluster of processes is started here."
    ),
    threads=Option(
        "Threads, or worker processes of a cluster started here; all cores when left out.",
        int | None,
    ),
    check=Option(
        "Plan so many random rows again one by one and compare.", int, 0, extra={"min": 0}
    ),
)
def sweep_command(operator: str, options: Options) -> None:
    """Plan a grid or a random sample of calls: millions of shapes, dtypes, products and modes."""
    if str(options.out) == "-":
        raise UsageError(
            "out",
            Text("out = {out}: a sweep is not written to standard output", out=options.out),
            "a new folder, or a file ending in .csv or .parquet",
        )
    columns = options.columns
    chosen = None if columns is None else [name.strip() for name in columns.split(",")]
    grid = named_values("grid", options.grid, ())
    started = time.perf_counter()
    summary, different = with_progress(
        lambda report: _swept(
            options, report, operator, options.call | {"columns": chosen, "grid": grid}
        )
    )
    assert isinstance(summary, sweeps.space.SweepSummary)
    seconds = time.perf_counter() - started
    drawn = {} if options.report is None else _write_report(options, summary)
    if options.json:
        data = {
            **summary.as_dict(),
            "seconds": seconds,
            "rows_per_second": summary.rows_now / max(summary.seconds, 1e-9),
            "out": str(options.out) if options.out else None,
            "checked": options.check,
            "different": [difference._asdict() for difference in different],
        }
        print_json("sweep", {**data, **drawn})
    else:
        _print_summary(summary, seconds, options.out, options.check, different)
    if different:
        sys.exit(DIFFERENT)


def _swept(
    options: Options, report: Callable[[str, float], None], operator: str, keywords: dict[str, Any]
) -> Any:
    """Make the sweep and report its progress; an interruption prints how to resume."""
    done, total = 0, 1

    def progress(rows: int, of: int) -> None:
        nonlocal done, total
        done, total = rows, of
        report(say("{done} of {total} rows", done=done, total=total), done / max(total, 1))

    try:
        return options.function(operator, **keywords, progress=progress)
    except KeyboardInterrupt:
        INTERRUPTION.report(
            say(
                "interrupted: {kept}",
                kept=say(
                    "{done} of {total} rows are in {out}.partial; go on with --resume",
                    done=done,
                    total=total,
                    out=options.out,
                )
                if options.out
                else "nothing is kept without --out",
            )
        )
        raise


def _reproducing_command(seed: int, grid: list[str]) -> str:
    """Return the command that repeats the sweep, with product and release written out."""
    named = {text.partition("=")[0].strip() for text in grid}
    product, release = (f"product={cores.DEFAULT_PRODUCT}", f"release={cores.default_release()}")
    return reproducing_command(
        {("--seed",): seed},
        [
            *(["--grid", product] if not named & {"product", "soc"} else []),
            *(["--grid", release] if "release" not in named else []),
        ],
    )


def _write_report(options: Options, summary: "sweeps.space.SweepSummary") -> dict[str, Any]:
    """Write the report of a sweep; return the data of its pictures."""
    area, curves = (sweeps.maps.sweep_map(summary.space), show.sweeps.sweep_curves(summary.space))
    write_report(
        options.report,
        lambda: show.sweeps.sweep_report(
            summary, area, curves, _reproducing_command(options.seed, options.grid)
        ),
    )
    return {"map": area, "curves": curves}


def _rate_text(rate: float) -> str:
    """Return a number of plans a second: ``2.1 million a second``, ``70 a second``."""
    return (
        say("{rate:.1f} million a second", rate=rate / 1e6)
        if rate >= 1e6
        else say("{rate} a second", rate=round(rate))
    )


def _print_summary(
    summary: "sweeps.space.SweepSummary",
    seconds: float,
    out: Path | None,
    check: int,
    different: list[Any],
) -> None:

    data = summary.as_dict()
    pace = say(
        "{rate}; {seconds:.1f} s in all",
        rate=_rate_text(summary.rows_now / max(summary.seconds, 1e-9)),
        seconds=seconds,
    )
    found = say("{count} values differ", count=len(different)) if different else "all equal"
    checked = say("{rows} rows one by one", rows=min(check, summary.rows))
    lines = [
        ("plans", str(summary.rows), pace),
        *((name, _counts_text(counts), "") for name, counts in data["counts"].items()),
        *([_peak_line(data["peak_workspace"])] if "peak_workspace" in data else []),
        *(("left out", product, reason) for product, reason in summary.space.left_out),
        *([("rules", summary.rules_source, "")] if summary.rules_source else []),
        *([("checked", checked, found)] if check else []),
        *(
            (
                "different",
                say("row {row}: {field}", difference),
                say("swept {swept}, planned {planned}", difference),
            )
            for difference in different[: sweeps.space.SHOWN_VALUES]
        ),
        *([("written", str(out), "")] if out is not None else []),
    ]
    print_text(show.layout.lines_table(lines))


def _counts_text(counts: dict[str, int]) -> str:
    """Return the most frequent values with their numbers of calls."""
    most = sorted(counts.items(), key=lambda item: -item[1])
    shown = (
        Text("{value}: {count}", value=value, count=count)
        for value, count in most[: sweeps.space.SHOWN_VALUES]
    )
    hidden = len(most) - sweeps.space.SHOWN_VALUES
    extra = say(" and {shown} more", shown=hidden) if hidden > 0 else ""
    return joined(shown, ", ") + extra


def _peak_line(peak: dict[str, Any]) -> tuple[str, str, str]:
    return (
        "workspace",
        say("at most {size} ({column})", size=bytes_text(peak["bytes"]), column=peak["column"]),
        ", ".join(f"{name} {value}" for name, value in peak["call"].items()),
    )

"""``npu-sim sweep``: plans of millions of calls."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from npu_sim.cli.arguments import named_values
from npu_sim.cli.interruption import INTERRUPTION
from npu_sim.cli.options import Json, PerOperator, Report, command
from npu_sim.cli.output import write_report
from npu_sim.cli.printing import print_json, print_text
from npu_sim.cli.progress import with_progress
from npu_sim.cli.reproducing import reproducing_command
from npu_sim.cores import DEFAULT_PRODUCT, default_release
from npu_sim.framework.arguments import Number, Word
from npu_sim.language import Verbatim, bytes_text, joined, say
from npu_sim.operators.loading import load_operator
from npu_sim.plans.answers import Progress
from npu_sim.show.forms.layout import lines_table
from npu_sim.show.summary import call_text, count_lines, outcomes_text, refusal_lines
from npu_sim.status import UsageError
from npu_sim.sweeps.runner import run_sweep
from npu_sim.sweeps.summary import SHOWN_VALUES, SweepSummary

DIFFERENT = 1
"""Exit code if --check found differences."""


def epilog(operator: str) -> str:
    """Return what can vary, and an example that works."""
    declared = load_operator(operator)
    words = {
        axis: axis.words if isinstance(axis, Word) else ("true", "false")
        for axis in declared.all_axes
        if not isinstance(axis, Number)
    }
    names = (
        say(
            "{name}: {meaning}",
            name=Verbatim(axis.name + (f" ({', '.join(words[axis])})" if axis in words else "")),
            meaning=axis.help,
        )
        for axis in declared.all_axes
    )
    numbers = [axis.name for axis in declared.axes if isinstance(axis, Number) and axis.unit]
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


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Options of ``npu-sim sweep``."""

    grid: Annotated[
        list[str] | None,
        typer.Option(
            help="name=values, repeatable: values with commas, ranges 1..100, 0..100:+5, "
            "1..4096:*2; with --sample also 1..100000:log. Other names keep their default value."
        ),
    ] = None
    sample: Annotated[
        int | None,
        typer.Option(
            help="Draw this many random calls from the grid instead of every combination."
        ),
    ] = None
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 0
    columns: Annotated[
        str | None, typer.Option(help="Columns to keep, with commas; all when left out.")
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(help="A new folder (.npy columns), or a file ending in .csv or .parquet."),
    ] = None
    resume: Annotated[bool, typer.Option(help="Go on with the interrupted sweep of --out.")] = False
    overwrite: Annotated[
        bool, typer.Option(help="Replace the file of --out, or the folder of an earlier sweep.")
    ] = False
    engine: Annotated[str, typer.Option(help="local, or dask: a Dask cluster.")] = "local"
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="Address of a Dask scheduler; without it a cluster of processes is started here."
        ),
    ] = None
    threads: Annotated[
        int | None,
        typer.Option(
            help="Threads, or worker processes of a cluster started here; all cores when left out."
        ),
    ] = None
    check: Annotated[
        int, typer.Option(help="Plan so many random rows again one by one and compare.", min=0)
    ] = 0
    report: Report = None
    json: Json = False


@command(run_sweep, PerOperator(takes_arguments=False, epilog=epilog))
def sweep_command(operator: str, options: SweepOptions) -> None:
    """Plan a grid or a random sample of calls: millions of shapes, dtypes, products and modes."""
    if str(options.out) == "-":
        raise UsageError(
            "out",
            "out = {out}: a sweep is not written to standard output",
            "a new folder, or a file ending in .csv or .parquet",
            out=options.out,
        )
    grid, columns = options.grid or [], options.columns
    chosen = None if columns is None else [name.strip() for name in columns.split(",")]
    values = named_values("grid", grid, ())
    started = time.perf_counter()

    def swept(progress: Callable[[int, int], None]) -> Any:
        return run_sweep(
            operator,
            values,
            sample=options.sample,
            seed=options.seed,
            columns=chosen,
            out=options.out,
            resume=options.resume,
            overwrite=options.overwrite,
            engine=options.engine,
            scheduler=options.scheduler,
            threads=options.threads,
            check=options.check,
            progress=progress,
        )

    summary, different = with_progress(lambda shown: _reported(swept, shown, options.out))
    seconds = time.perf_counter() - started
    drawn = (
        {} if options.report is None else _write_report(options.report, summary, options.seed, grid)
    )
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
        print_text(
            lines_table(_summary_lines(summary, seconds, options.out, options.check, different))
        )
    if different:
        sys.exit(DIFFERENT)


def _reported(
    swept: Callable[[Callable[[int, int], None]], Any], shown: Progress, out: Path | None
) -> Any:
    """Make the sweep and report its progress; an interruption prints how to resume."""
    done, total = 0, 1

    def progress(rows: int, of: int) -> None:
        nonlocal done, total
        done, total = rows, of
        shown(say("{done} of {total} rows", done=done, total=total), done / max(total, 1))

    try:
        return swept(progress)
    except KeyboardInterrupt:
        INTERRUPTION.report(
            say(
                "interrupted: {kept}",
                kept=say(
                    "{done} of {total} rows are in {out}.partial; go on with --resume",
                    done=done,
                    total=total,
                    out=out,
                )
                if out
                else "nothing is kept without --out",
            )
        )
        raise


def _reproducing_command(seed: int, grid: list[str]) -> str:
    """Return the command that repeats the sweep, with product and release written out."""
    named = {text.partition("=")[0].strip() for text in grid}
    written = []
    if not named & {"product", "soc"}:
        written += ["--grid", f"product={DEFAULT_PRODUCT}"]
    if "release" not in named:
        written += ["--grid", f"release={default_release()}"]
    return reproducing_command({("--seed",): seed}, written)


def _write_report(path: Path, summary: SweepSummary, seed: int, grid: list[str]) -> dict[str, Any]:
    """Write the report of a sweep; return the data of its pictures."""
    from npu_sim.show.sweeps import sweep_curves, sweep_report  # a report alone plans pictures
    from npu_sim.sweeps.maps import sweep_map

    area, curves = sweep_map(summary.space), sweep_curves(summary.space)
    reproducing = _reproducing_command(seed, grid)
    write_report(path, lambda: sweep_report(summary, area, curves, reproducing))
    return {"map": area, "curves": curves}


def _rate_text(rate: float) -> str:
    """Return a number of plans a second: ``2.1 million a second``, ``70 a second``."""
    return (
        say("{rate:.1f} million a second", rate=rate / 1e6)
        if rate >= 1e6
        else say("{rate} a second", rate=round(rate))
    )


def _summary_lines(
    summary: SweepSummary, seconds: float, out: Path | None, check: int, different: list[Any]
) -> Iterator[tuple[str, str, str]]:
    """Yield what a sweep planned, checked and wrote, as labelled lines."""
    data = summary.as_dict()
    pace = say(
        "{rate}; {seconds:.1f} s in all",
        rate=_rate_text(summary.rows_now / max(summary.seconds, 1e-9)),
        seconds=seconds,
    )
    yield "plans", outcomes_text(summary), pace
    yield from refusal_lines(summary)
    yield from count_lines(summary)
    if "peak_workspace" in data:
        yield _peak_line(data["peak_workspace"])
    for product, reason in summary.space.left_out:
        yield "left out", product, reason
    if summary.rules_source:
        yield "rules", summary.rules_source, ""
    if check:
        found = say("{count} values differ", count=len(different)) if different else "all equal"
        yield "checked", say("{rows} rows one by one", rows=min(check, summary.rows)), found
    for difference in different[:SHOWN_VALUES]:
        yield (
            "different",
            say("row {row}: {field}", row=difference.row, field=difference.field),
            say(
                "swept {swept}, planned {planned}",
                swept=difference.swept,
                planned=difference.planned,
            ),
        )
    if out is not None:
        yield "written", str(out), ""


def _peak_line(peak: dict[str, Any]) -> tuple[str, str, str]:
    return (
        "workspace",
        say("at most {size} ({column})", size=bytes_text(peak["bytes"]), column=peak["column"]),
        call_text(peak["call"]),
    )

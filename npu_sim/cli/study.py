"""``npu-sim study``: determinism, precision, invariance and certificates on a user's own data."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npu_sim.cli.again import command_on
from npu_sim.cli.help import HelpfulGroup
from npu_sim.cli.json_output import print_json
from npu_sim.cli.operators import add_action
from npu_sim.cli.options import (
    CoreOrderOption,
    Deterministic,
    Json,
    Product,
    Release,
    Report,
    Rows,
    RowsOut,
    Seed,
    Soc,
    Threads,
)
from npu_sim.language import say

if TYPE_CHECKING:
    from npu_sim.studies.open_rows import OpenRows

RandomOrders = Annotated[
    int,
    typer.Option(
        "--random-orders", min=0, help="How many random orders to try besides the named ones."
    ),
]
NoProbe = Annotated[
    bool,
    typer.Option(
        "--no-probe", help="Declare the trees only, without recovering them from the kernel."
    ),
]

NotDeterministic = Annotated[bool, typer.Option("--deterministic", hidden=True)]

study_app = typer.Typer(
    cls=HelpfulGroup,
    no_args_is_help=True,
    help="Show what accumulation order, shapes and dtypes do to a result.",
)


def determinism_command(
    operator: str,
    arguments: dict[str, Any],
    product: Product = None,
    soc: Soc = None,
    release: Release = None,
    random_orders: RandomOrders = 32,
    deterministic: NotDeterministic = False,
    seed: Seed = 0,
    rows: Rows = False,
    rows_out: RowsOut = None,
    threads: Threads = None,
    report: Report = None,
    json_output: Json = False,
) -> None:
    """Try many legal orders of the cores' additions and show what moves."""
    if deterministic:
        raise typer.BadParameter(
            "with it there is one legal order, and nothing to study; leave it out: the study tells its result apart from the others'",
            param_hint="--deterministic",
        )
    from npu_sim.show.studies import determinism_lines, study_headline
    from npu_sim.studies.determinism import study_determinism

    call = _call(operator, arguments, (product, soc, release), seed, threads)
    again = command_on(call["product"], seed=seed)
    study = _with_progress(
        lambda tick: study_determinism(
            operator, random_orders=random_orders, seed=seed, progress=tick, **call
        )
    )
    found = [output.rows for output in study.outputs]
    if rows_out is not None:
        from npu_sim.files.writing import write_text
        from npu_sim.show.open_rows import rows_csv

        write_text(rows_out, rows_csv(found))
    _show(
        study.as_dict(),
        study_headline(study),
        determinism_lines(study),
        report,
        json_output,
        again,
        found,
    )
    if rows and not json_output:
        from npu_sim.cli.console import show
        from npu_sim.show.open_rows import rows_view

        show(rows_view(found))


def precision_command(
    operator: str,
    arguments: dict[str, Any],
    product: Product = None,
    soc: Soc = None,
    release: Release = None,
    deterministic: Deterministic = False,
    seed: Seed = 0,
    threads: Threads = None,
    report: Report = None,
    json_output: Json = False,
) -> None:
    """Measure the error of every dtype and math type against float64, with verdicts and causes."""
    from npu_sim.show.studies import precision_lines, study_headline
    from npu_sim.studies.precision import study_precision

    call = _call(operator, arguments, (product, soc, release), seed, threads)
    again = command_on(call["product"], seed=seed)
    study = _with_progress(
        lambda tick: study_precision(operator, deterministic=deterministic, progress=tick, **call)
    )
    _show(
        study.as_dict(), study_headline(study), precision_lines(study), report, json_output, again
    )


def invariance_command(
    operator: str,
    arguments: dict[str, Any],
    product: Product = None,
    soc: Soc = None,
    release: Release = None,
    seed: Seed = 0,
    threads: Threads = None,
    report: Report = None,
    json_output: Json = False,
) -> None:
    """Say whether the bits of a result change with batch, position, padding, cores, product, mode or dtype path."""
    from npu_sim.show.studies import invariance_lines, study_headline
    from npu_sim.studies.invariance import study_invariance

    call = _call(operator, arguments, (product, soc, release), seed, threads)
    again = command_on(call["product"], seed=seed)
    study = _with_progress(lambda tick: study_invariance(operator, progress=tick, **call))
    _show(
        study.as_dict(), study_headline(study), invariance_lines(study), report, json_output, again
    )


def certificate_command(
    operator: str,
    arguments: dict[str, Any],
    product: Product = None,
    soc: Soc = None,
    release: Release = None,
    deterministic: Deterministic = False,
    core_order: CoreOrderOption = "sequential",
    seed: Seed = 0,
    no_probe: NoProbe = False,
    threads: Threads = None,
    report: Report = None,
    json_output: Json = False,
) -> None:
    """Print the exact summation tree of every class of output elements, recovered from the kernel as well."""
    from npu_sim.show.studies import certificate_lines
    from npu_sim.studies.certificate import certify

    call = _call(operator, arguments, (product, soc, release), seed, threads)
    again = command_on(call["product"], core_order=core_order, seed=seed)
    options = {
        "probe": not no_probe,
        "deterministic": deterministic,
        "core_order": core_order,
        "seed": seed,
        **call,
    }
    found = _with_progress(lambda tick: certify(operator, progress=tick, **options))
    data = {"operator": operator, "certificates": [one.as_dict() for one in found]}
    _show(
        data,
        say("{operator}: {found} classes of elements", operator=operator, found=len(found)),
        certificate_lines(found),
        report,
        json_output,
        again,
    )


def _precision_notes() -> str:
    """Return what the numbers of a precision study are measured against, and what its verdicts mean."""
    from npu_sim.show.studies import precision_meanings

    return "\n\n".join(
        say("{name}: {meaning}", name=name, meaning=meaning)
        for _, name, meaning in precision_meanings()
    )


for _name, _handler, _notes in (
    ("determinism", determinism_command, None),
    ("precision", precision_command, _precision_notes),
    ("invariance", invariance_command, None),
    ("certificate", certificate_command, None),
):
    add_action(study_app, _name, _handler, within="study", small=True, notes=_notes)


def _call(
    operator: str,
    arguments: dict[str, Any],
    device: tuple[str | None, str | None, str | None],
    seed: int,
    threads: int | None,
) -> dict[str, Any]:
    """Turn what was typed into a call: files are read, shapes get generated data."""
    from npu_sim.cli.arguments import typed_arrays
    from npu_sim.cores import load_profile
    from npu_sim.kernels.engine.threads import limit_threads

    profile = load_profile(*device)
    limit_threads(threads)
    return {**typed_arrays(operator, arguments, profile, seed=seed), "product": profile}


def _with_progress(work: Callable[[Callable[[str, float], None]], Any]) -> Any:
    """Run a study, with a progress bar on standard error when that is a terminal."""
    if not sys.stderr.isatty():
        return work(lambda stage, share: None)
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("study", total=1.0)
        return work(lambda stage, share: bar.update(task, description=stage, completed=share))


def _show(
    data: dict[str, Any],
    headline: str,
    lines: list[tuple[str, str, str]],
    report: Any,
    json_output: bool,
    again: str,
    rows: "Sequence[OpenRows]" = (),
) -> None:
    if report is not None:
        from npu_sim.show.reports.studies import write_study_report

        write_study_report(report, headline, lines, data, again, rows)
    if json_output:
        print_json("study", data)
        return
    from npu_sim.cli.console import show
    from npu_sim.show.layout import Paragraph, lines_table

    show(Paragraph(headline, "bold green"), "", lines_table(lines))

"""``npu-sim study``: determinism, precision, invariance and certificates on a user's own data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npu_sim.cli.help import NpuSimGroup
from npu_sim.cli.operators import Action, add_action
from npu_sim.cli.options import (
    CoreOrderOption,
    Deterministic,
    DeviceOptions,
    Json,
    Report,
    Rows,
    RowsOut,
    Seed,
    Threads,
)
from npu_sim.cli.output import print_json, print_text, with_progress
from npu_sim.cli.report_files import command_on, write_report
from npu_sim.language import say

if TYPE_CHECKING:
    from npu_sim.studies.variable_rows import VariableRows

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
    cls=NpuSimGroup,
    no_args_is_help=True,
    help="Show what accumulation order, shapes and dtypes do to a result.",
)


@dataclass(frozen=True)
class StudyOptions(DeviceOptions):
    """Options of every study."""

    seed: Seed = 0
    threads: Threads = None
    report: Report = None
    json_output: Json = False


@dataclass(frozen=True)
class DeterminismOptions(StudyOptions):
    """Options of ``npu-sim study determinism``."""

    random_orders: RandomOrders = 32
    rows: Rows = False
    rows_out: RowsOut = None
    deterministic: NotDeterministic = False


@dataclass(frozen=True)
class PrecisionOptions(StudyOptions):
    """Options of ``npu-sim study precision``."""

    deterministic: Deterministic = False


@dataclass(frozen=True)
class CertificateOptions(StudyOptions):
    """Options of ``npu-sim study certificate``."""

    deterministic: Deterministic = False
    core_order: CoreOrderOption = "sequential"
    no_probe: NoProbe = False


def determinism_command(
    operator: str, arguments: dict[str, Any], options: DeterminismOptions
) -> None:
    """Try many legal orders of the cores' additions and show what moves."""
    if options.deterministic:
        raise typer.BadParameter(
            "with it there is one legal order, and nothing to study; leave it out: "
            "the study tells its result apart from the others'",
            param_hint="--deterministic",
        )
    from npu_sim.show.studies import determinism_lines, study_headline
    from npu_sim.studies.determinism import study_determinism

    call = _call(operator, arguments, options)
    command = command_on(call["product"], seed=options.seed)
    orders: dict[str, Any] = {"random_orders": options.random_orders, "seed": options.seed}
    study = with_progress(
        lambda report: study_determinism(operator, progress=report, **orders, **call)
    )
    variable_rows = [output.rows for output in study.outputs]
    if options.rows_out is not None:
        from npu_sim.files.writing import write_text
        from npu_sim.show.variable_rows import rows_csv

        write_text(options.rows_out, rows_csv(variable_rows))
    headline, lines = study_headline(study), determinism_lines(study)
    _show(study.as_dict(), headline, lines, options, command, variable_rows)
    if options.rows and not options.json_output:
        from npu_sim.show.variable_rows import rows_view

        print_text(rows_view(variable_rows))


def precision_command(operator: str, arguments: dict[str, Any], options: PrecisionOptions) -> None:
    """Measure the error of every dtype and math type against float64, with verdicts and causes."""
    from npu_sim.show.studies import precision_lines, study_headline
    from npu_sim.studies.precision import study_precision

    call = _call(operator, arguments, options)
    command = command_on(call["product"], seed=options.seed)
    call["deterministic"] = options.deterministic
    study = with_progress(lambda report: study_precision(operator, progress=report, **call))
    _show(study.as_dict(), study_headline(study), precision_lines(study), options, command)


def invariance_command(operator: str, arguments: dict[str, Any], options: StudyOptions) -> None:
    """Test whether the bits of a result change with batch, position, padding, cores, product, mode
    or dtype path.
    """
    from npu_sim.show.studies import invariance_lines, study_headline
    from npu_sim.studies.invariance import study_invariance

    call = _call(operator, arguments, options)
    command = command_on(call["product"], seed=options.seed)
    study = with_progress(lambda report: study_invariance(operator, progress=report, **call))
    _show(study.as_dict(), study_headline(study), invariance_lines(study), options, command)


def certificate_command(
    operator: str, arguments: dict[str, Any], options: CertificateOptions
) -> None:
    """Print the exact summation tree of every class of output elements, recovered from the kernel
    as well.
    """
    from npu_sim.show.studies import certificate_lines
    from npu_sim.studies.certificate import certify

    call = _call(operator, arguments, options)
    order = {"core_order": options.core_order, "seed": options.seed}
    command = command_on(call["product"], **order)
    call |= {"probe": not options.no_probe, "deterministic": options.deterministic, **order}
    certificates = with_progress(lambda report: certify(operator, progress=report, **call))
    found = len(certificates)
    headline = say("{operator}: {found} classes of elements", operator=operator, found=found)
    data = {
        "operator": operator,
        "certificates": [certificate.as_dict() for certificate in certificates],
    }
    _show(data, headline, certificate_lines(certificates), options, command)


def _precision_notes(operator: str) -> str:
    """Return the references of a precision study and the meaning of its verdicts."""
    from npu_sim.show.studies import precision_meanings

    return "\n\n".join(
        say("{name}: {meaning}", name=name, meaning=meaning)
        for _, name, meaning in precision_meanings()
    )


for _study in (
    Action("determinism", determinism_command, computes=True),
    Action("precision", precision_command, computes=True, epilog=_precision_notes),
    Action("invariance", invariance_command, computes=True),
    Action("certificate", certificate_command, computes=True),
):
    add_action(study_app, _study, within="study")


def _call(operator: str, arguments: dict[str, Any], options: StudyOptions) -> dict[str, Any]:
    """Return the keywords of a study: arrays from files, or generated where shapes were typed."""
    from npu_sim.cli.arguments import typed_arrays
    from npu_sim.kernels.engine.threads import limit_threads

    profile = options.profile()
    limit_threads(options.threads)
    return {**typed_arrays(operator, arguments, profile, seed=options.seed), "product": profile}


def _show(
    data: dict[str, Any],
    headline: str,
    lines: list[tuple[str, str, str]],
    options: StudyOptions,
    command: str,
    variable_rows: "Sequence[VariableRows]" = (),
) -> None:
    if options.report is not None:
        from npu_sim.show.reports.studies import study_report

        write_report(options.report, study_report(headline, lines, data, command, variable_rows))
    if options.json_output:
        print_json("study", data)
        return
    from npu_sim.show.layout import Paragraph, lines_table

    print_text(Paragraph(headline, "bold green"), "", lines_table(lines))

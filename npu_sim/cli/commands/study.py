"""``npu-sim study``: studies of a call on the user's own data."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from npu_sim.cli.arguments import Arguments
from npu_sim.cli.arrays import typed_arrays
from npu_sim.cli.help import NpuSimGroup
from npu_sim.cli.operators import operator_group
from npu_sim.cli.options import (
    DeviceOptions,
    Json,
    PerOperator,
    Report,
    Rows,
    RowsOut,
    Seed,
    Threads,
    command,
)
from npu_sim.cli.output import print_answer, write_document, write_report
from npu_sim.cli.printing import print_json, print_text
from npu_sim.cli.progress import with_progress
from npu_sim.cli.reproducing import command_on
from npu_sim.cli.threads import limit_threads
from npu_sim.files.writing import write_text
from npu_sim.framework.target import CoreOrder
from npu_sim.language import say
from npu_sim.show.certificate import SHOWN_CLASSES, certificate_lines, certificates_headline
from npu_sim.show.forms.layout import Paragraph, lines_table
from npu_sim.show.precision import precision_meanings
from npu_sim.show.rows import rows_csv, rows_view
from npu_sim.show.studies import study_report
from npu_sim.studies.certificate import certify
from npu_sim.studies.determinism import study_determinism
from npu_sim.studies.invariance import study_invariance
from npu_sim.studies.precision import study_precision


@dataclass(frozen=True, kw_only=True)
class StudyOptions(DeviceOptions):
    """Options of every study."""

    seed: Seed = 0
    threads: Threads = None
    report: Report = None
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class DeterminismOptions(StudyOptions):
    """Options of ``npu-sim study determinism``."""

    random_orders: Annotated[int, typer.Option(min=0)] = 32
    rows: Rows = False
    rows_out: RowsOut = None
    deterministic: Annotated[bool, typer.Option(help=" ", hidden=True)] = False


@command(study_determinism, PerOperator(computes=True))
def determinism_command(operator: str, arguments: Arguments, options: DeterminismOptions) -> None:
    """Try many legal orders of the cores' additions and show what moves."""
    call = _call(operator, arguments, options)
    study = with_progress(
        lambda progress: study_determinism(
            operator,
            random_orders=options.random_orders,
            seed=options.seed,
            deterministic=options.deterministic,
            progress=progress,
            **call,
        )
    )
    _show(study, options)
    variable_rows = [output.rows for output in study.outputs]
    if options.rows_out is not None:
        write_text(options.rows_out, rows_csv(variable_rows))
    if options.rows and not options.json:
        print_text(rows_view(variable_rows))


def _meanings(operator: str) -> str:
    """Return the references of a precision study and the meaning of its verdicts."""
    return "\n\n".join(
        say("{name}: {meaning}", name=name, meaning=meaning)
        for _, name, meaning in precision_meanings()
    )


@dataclass(frozen=True, kw_only=True)
class PrecisionOptions(StudyOptions):
    """Options of ``npu-sim study precision``."""

    deterministic: bool = False


@command(study_precision, PerOperator(computes=True, epilog=_meanings))
def precision_command(operator: str, arguments: Arguments, options: PrecisionOptions) -> None:
    """Measure the error of every dtype and math type against float64, with verdicts and causes."""
    call = _call(operator, arguments, options)
    study = with_progress(
        lambda progress: study_precision(
            operator, deterministic=options.deterministic, progress=progress, **call
        )
    )
    _show(study, options)


@dataclass(frozen=True, kw_only=True)
class InvarianceOptions(StudyOptions):
    """Options of ``npu-sim study invariance``."""


@command(study_invariance, PerOperator(computes=True))
def invariance_command(operator: str, arguments: Arguments, options: InvarianceOptions) -> None:
    """Test whether the bits of a result change with batch, position, padding, cores, product, mode
    or dtype path.
    """
    call = _call(operator, arguments, options)
    study = with_progress(lambda progress: study_invariance(operator, progress=progress, **call))
    _show(study, options)


@dataclass(frozen=True, kw_only=True)
class CertificateOptions(StudyOptions):
    """Options of ``npu-sim study certificate``."""

    deterministic: bool = False
    core_order: CoreOrder = "sequential"
    probe: bool = True


@command(certify, PerOperator(computes=True))
def certificate_command(operator: str, arguments: Arguments, options: CertificateOptions) -> None:
    """Print the exact summation tree of every class of output elements, recovered from the kernel
    as well.
    """
    call = _call(operator, arguments, options)
    certificates = with_progress(
        lambda progress: certify(
            operator,
            probe=options.probe,
            deterministic=options.deterministic,
            core_order=options.core_order,
            seed=options.seed,
            progress=progress,
            **call,
        )
    )
    found, lines = len(certificates), list(certificate_lines(certificates))
    headline = certificates_headline(operator, found)
    data = {"certificates": [certificate.as_dict() for certificate in certificates]}
    reproducing = command_on(options.profile(), core_order=options.core_order, seed=options.seed)
    write_report(options.report, lambda: study_report(headline, lines, data, reproducing))
    if options.json:
        print_json("study", {"operator": operator, **data})
    else:
        listed = ("", lines_table(lines[: 2 * SHOWN_CLASSES])) if lines else ()
        more = found - SHOWN_CLASSES
        rest = [say("{count} more classes: --json or --report", count=more)] if more > 0 else []
        print_text(Paragraph(headline, "bold green"), *listed, *rest)


def _call(operator: str, arguments: Arguments, options: StudyOptions) -> dict[str, Any]:
    """Return the keywords of a study: arrays from files, or generated where shapes were typed."""
    profile = options.profile()
    limit_threads(options.threads)
    return {**typed_arrays(operator, arguments, profile, seed=options.seed), "product": profile}


def _show(study: Any, options: StudyOptions) -> None:
    """Write the report of a study if a path is given, and print the study."""
    write_document(options.report, study, command_on(options.profile(), seed=options.seed))
    print_answer("study", study, json=options.json)


study_command = typer.Typer(
    cls=NpuSimGroup,
    no_args_is_help=True,
    help="Show what accumulation order, shapes and dtypes do to a result.",
)
for _name, _handler in {
    "determinism": determinism_command,
    "precision": precision_command,
    "invariance": invariance_command,
    "certificate": certificate_command,
}.items():
    study_command.add_typer(operator_group(f"study {_name}", _handler), name=_name)

"""``npu-sim study`` on a user's own data, and ``npu-sim caveats``."""

from typing import Annotated, Any

import typer

from npu_sim.cli.lazy import files, kernels, operators, show, studies
from npu_sim.cli.operators import Action, NpuSimGroup, add_action, typed_arrays
from npu_sim.cli.options import Option, Options, command
from npu_sim.cli.output import command_on, print_json, print_text, show_answer, write_report
from npu_sim.language import Text, Verbatim, joined, say

study_app = typer.Typer(cls=NpuSimGroup, no_args_is_help=True)


@command(
    "npu_sim.studies.determinism:study_determinism",
    "product soc release seed threads report json random_orders rows rows_out deterministic",
    random_orders=Option(extra={"min": 0}),
    deterministic=Option(" ", bool, False, extra={"hidden": True}),
)
def determinism_command(operator: str, arguments: dict[str, Any], options: Options) -> None:
    """Try many legal orders of the cores' additions and show what moves."""
    study = _study(options, operator, arguments, deterministic=options.deterministic)
    variable_rows = [output.rows for output in study.outputs]
    if options.rows_out is not None:
        files.writing.write_text(options.rows_out, show.studies.rows_csv(variable_rows))
    if options.rows and not options.json:
        print_text(show.studies.rows_view(variable_rows))


@command(
    "npu_sim.studies.precision:study_precision",
    "product soc release seed threads report json deterministic",
)
def precision_command(operator: str, arguments: dict[str, Any], options: Options) -> None:
    """Measure the error of every dtype and math type against float64, with verdicts and causes."""
    _study(options, operator, arguments, deterministic=options.deterministic)


@command(
    "npu_sim.studies.invariance:study_invariance", "product soc release seed threads report json"
)
def invariance_command(operator: str, arguments: dict[str, Any], options: Options) -> None:
    """Test whether the bits of a result change with batch, position, padding, cores, product, mode
    or dtype path.
    """
    _study(options, operator, arguments)


def _study(options: Options, operator: str, arguments: dict[str, Any], **switches: bool) -> Any:
    """Make a study, show it and return it."""
    call = _call(operator, arguments, options)
    study = options.answer(operator, **call, **switches)
    show_answer("study", study, options, command_on(call["product"], seed=options.seed))
    return study


@command(
    "npu_sim.studies.certificate:certify",
    "product soc release seed threads report json deterministic core_order probe",
)
def certificate_command(operator: str, arguments: dict[str, Any], options: Options) -> None:
    """Print the exact summation tree of every class of output elements, recovered from the kernel
    as well.
    """
    call = _call(operator, arguments, options)
    order = {"core_order": options.core_order, "seed": options.seed}
    certificates = options.answer(operator, **call, **order)
    found, lines = len(certificates), list(show.studies.certificate_lines(certificates))
    headline = say("{operator}: {found} classes of elements", operator=operator, found=found)
    data = {"certificates": [certificate.as_dict() for certificate in certificates]}
    write_report(
        options.report,
        lambda: show.studies.study_report(
            headline, lines, data, command_on(call["product"], **order)
        ),
    )
    if options.json:
        print_json("study", {"operator": operator, **data})
    else:
        listed = show.layout.lines_table(lines[: 2 * show.studies.SHOWN_CLASSES])
        more = found - show.studies.SHOWN_CLASSES
        rest = [say("{count} more classes: --json or --report", count=more)] if more > 0 else []
        print_text(show.layout.Paragraph(headline, "bold green"), "", listed, *rest)


def _precision_notes(operator: str) -> str:
    """Return the references of a precision study and the meaning of its verdicts."""
    return "\n\n".join(
        say("{name}: {meaning}", name=name, meaning=meaning)
        for _, name, meaning in show.studies.precision_meanings()
    )


for _action in (
    Action("determinism", determinism_command, computes=True),
    Action("precision", precision_command, computes=True, epilog=_precision_notes),
    Action("invariance", invariance_command, computes=True),
    Action("certificate", certificate_command, computes=True),
):
    add_action(study_app, _action, within="study")


def _call(operator: str, arguments: dict[str, Any], options: Options) -> dict[str, Any]:
    """Return the keywords of a study: arrays from files, or generated where shapes were typed."""
    profile = options.profile()
    kernels.engine.compile.limit_threads(options.threads)
    return {**typed_arrays(operator, arguments, profile, seed=options.seed), "product": profile}


Name = Annotated[
    str | None,
    typer.Argument(help="Caveat to run, or the code of one in a plan; the list when left out."),
]


@command("", "json")
def caveats_command(options: Options, name: Name = None) -> None:
    """List the documented caveats, or run one and print what it shows."""
    if name is None:
        if options.json:
            print_json(
                "caveats", {"caveats": [_data(caveat) for caveat in studies.caveats.CAVEATS]}
            )
            return

        print_text(
            show.layout.lines_table(
                (Verbatim(caveat.name), caveat.title, caveat.source)
                for caveat in studies.caveats.CAVEATS
            )
        )
        return
    caveat = studies.caveats.find_caveat(name)
    if caveat is None:
        _print_statements(name, options.json)
        return
    numbers, lines = caveat.experiment()
    if options.json:
        print_json("caveat", {**_data(caveat), "numbers": numbers})
        return
    print_text(Text("{title} ({source})", caveat), "", *lines)


def _print_statements(code: str, as_json: bool) -> None:
    """Print how plans and runs state a caveat that no experiment shows."""
    found = studies.caveats.statements_of(code)
    if as_json:
        print_json("caveat", {"codes": [code], "statements": [item._asdict() for item in found]})
        return
    for statement in found:
        place = (statement.operator or "several operators", statement.argument.strip("*"))
        print_text(Text("{message} ({place})", statement, place=joined(filter(None, place), ", ")))
    print_text(
        "",
        Text(
            "no experiment shows it: npu-sim plan and run state it with the numbers of the call, "
            "npu-sim preflight FILE --fail-on caveat finds the calls that have it"
        ),
    )


def _data(caveat: "operators.shared.study.Experiment") -> dict[str, Any]:
    return {name: getattr(caveat, name) for name in ("name", "title", "source", "codes")}

"""Studies as labelled lines."""

from collections.abc import Sequence

from rich.console import RenderableType

from npu_sim.language import Text, joined, say
from npu_sim.show.layout import Paragraph, lines_table, stack
from npu_sim.show.text import Line
from npu_sim.studies.certificate import Certificate
from npu_sim.studies.determinism import DeterminismStudy, OutputStudy
from npu_sim.studies.invariance import InvarianceStudy
from npu_sim.studies.precision import AGAINST_GIVEN, AGAINST_ROUNDED, PrecisionStudy
from npu_sim.studies.verdicts import MEANINGS, Verdict

Study = DeterminismStudy | PrecisionStudy | InvarianceStudy
SHOWN_STEPS = 6
"""Number of orders, and of steps of a sum, that are listed."""
SHOWN_TERMS = 3
"""Number of terms of the worst element that are listed."""
SHOWN_TREE = 400
"""Number of characters shown of a tree; ``--json`` has all of it."""


def determinism_lines(study: DeterminismStudy) -> list[Line]:
    """Return a determinism study as lines."""
    lines: list[Line] = [("path", study.path, "")]
    for output in study.outputs:
        lines += _output_lines(output)
    return lines


def _output_lines(output: OutputStudy) -> list[Line]:
    if output.order_dependent == 0:
        return [(output.output, "one result", "its accumulation order is fixed")]
    orders = say("{orders} orders", orders=len(output.orders))
    results = say("{distinct_results} different results from {orders}", output, orders=orders)
    differing = say("{moved} of {elements} elements differ", output)
    spread = "between two legal orders, of the element that differs most in value"
    shown_orders = joined(output.orders[:SHOWN_STEPS], ", ")
    if len(output.orders) > SHOWN_STEPS:
        shown_orders = joined((*output.orders[:SHOWN_STEPS], "..."), ", ")
    different = say("{differs_from_deterministic} elements differ", output)
    lines: list[Line] = [
        (output.output, results, shown_orders),
        ("", differing, say("{order_dependent} can, by plan and indices", output)),
        ("", say("spread up to {max_spread:.3g}", output), spread),
        ("", different, "between the sequential and the deterministic result"),
    ]
    worst = output.worst
    if worst is None:
        return lines
    index = ", ".join(map(str, worst.index))
    value = say(
        "{output}[{index}]: spread {spread:.3g} = {spread_ulp} ulp",
        worst,
        output=output.output,
        index=index,
    )
    note = say(
        "the element that differs most in ulp; with deterministic computation "
        "{deterministic_result:.9g}",
        worst,
    )
    lines.append(("worst", value, note))
    for extreme, order, steps in (
        (worst.lowest, worst.lowest_order, worst.steps_to_lowest),
        (worst.highest, worst.highest_order, worst.steps_to_highest),
    ):
        shown = joined(
            say("core {core} {value:+.6g} -> {sum_after:.9g}", step) for step in steps[:SHOWN_STEPS]
        )
        more = ""
        if len(steps) > SHOWN_STEPS:
            more = say("; {steps} more", steps=len(steps) - SHOWN_STEPS)
        scaled = say("; times {factor:.6g}", worst) if worst.factor != 1 else ""
        note = shown + more + scaled
        lines.append(("", Text("{value} ({order})", value=f"{extreme:.9g}", order=order), note))
    return lines


def precision_lines(study: PrecisionStudy) -> list[Line]:
    """Return a precision study as lines."""
    lines: list[Line] = []
    for output in study.outputs:
        verdicts = joined(map(_verdict_text, output.verdicts), ", ")
        value = say("{output} {dtype}: max {max_ulp:.3g} ulp, mean {mean_ulp:.3g} ulp", output)
        lines.append((output.variant, value, verdicts))
        value = say("of given inputs: max {max_ulp_of_given:.3g} ulp", output)
        lines.append(("", value, "the rounding of the inputs included"))
        index = ", ".join(map(str, output.worst_index))
        terms = joined(
            (
                Text("{name} {value:.4g}", name=term.name, value=term.value)
                for term in output.worst_terms[:SHOWN_TERMS]
            ),
            ", ",
        )
        value = say(
            "worst [{index}] {worst_actual:.7g} for {worst_golden:.7g}", output, index=index
        )
        lines.append(("", value, say("largest terms: {terms}", terms=terms) if terms else ""))
        causes = (
            Text("{name} {max_ulp}", cause, max_ulp=f"{cause.max_ulp:.3g}")
            for cause in output.causes
        )
        lines.append(("", "each cause alone, in ulp", joined(causes, ", ")))
    lines += [(label, "refused", message) for label, message in study.refused.items()]
    return [*lines, *precision_meanings()]


def _verdict_text(verdict: Verdict) -> str:
    return say("{standard} passes", verdict) if verdict.passed else say("{standard} FAILS", verdict)


def precision_meanings() -> list[Line]:
    """Return the references of a precision study and the meanings of its verdicts."""
    return [
        ("against", "the rounded inputs", AGAINST_ROUNDED),
        ("", "the given inputs", AGAINST_GIVEN),
        *(("verdict", standard, meaning) for standard, meaning in MEANINGS.items()),
    ]


def invariance_lines(study: InvarianceStudy) -> list[Line]:
    """Return an invariance study as lines."""
    lines: list[Line] = []
    for row in study.rows:
        if row.changes is None:
            lines.append((row.output, say("{change}: not applicable", row), row.note))
            continue
        note = row.note
        if row.first is not None:
            index = ", ".join(map(str, row.first))
            note = say("first at [{index}]: {before:.9g} becomes {after:.9g}", row, index=index)
        effect = say("{change}: changes", row) if row.changes else say("{change}: same bits", row)
        lines.append((row.output, effect, note))
    return lines


def certificate_lines(certificates: Sequence[Certificate]) -> list[Line]:
    """Return certificates as lines."""
    lines: list[Line] = []
    for certificate in certificates:
        index = ", ".join(map(str, certificate.element))
        agreed = {None: "not probed", True: "the kernel agrees", False: "THE KERNEL DISAGREES"}[
            certificate.agrees
        ]
        value = say(
            "{output}[{index}], {elements} elements alike, {terms} terms",
            certificate,
            index=index,
            terms=len(certificate.terms),
        )
        lines.append(
            (certificate.hash, value, Text("{agreed} ({probe})", certificate, agreed=agreed))
        )
        formula = certificate.text
        if len(formula) > SHOWN_TREE:
            formula = formula[:SHOWN_TREE].rpartition(" ")[0] + " ..."
        lines.append(("", formula, f"t0 = {certificate.terms[0]}, ..."))
    return lines


def certificate_view(certificate: Certificate) -> RenderableType:
    """Return one certificate as a rich renderable."""
    return lines_table(certificate_lines([certificate]))


def study_view(study: Study) -> RenderableType:
    """Return a study as a rich renderable."""
    return stack(
        Paragraph(study_headline(study), "bold green"), "", lines_table(study_lines(study))
    )


def study_lines(study: Study) -> list[Line]:
    """Return a study as lines."""
    if isinstance(study, DeterminismStudy):
        return determinism_lines(study)
    if isinstance(study, PrecisionStudy):
        return precision_lines(study)
    return invariance_lines(study)


def study_headline(study: Study) -> str:
    """Return the operator and the device of a study in one line."""
    return say("{operator} on {product}, {soc}", study)

"""Studies as labelled lines that a person reads."""

from collections.abc import Sequence

from npu_sim.show.layout import lines_table, render
from npu_sim.show.text import Line
from npu_sim.studies.certificate import Certificate
from npu_sim.studies.determinism import DeterminismStudy, OutputStudy
from npu_sim.studies.invariance import InvarianceStudy
from npu_sim.studies.precision import AGAINST_GIVEN, AGAINST_ROUNDED, PrecisionStudy
from npu_sim.studies.verdicts import MEANINGS

SHOWN_STEPS = 6
SHOWN_TREE = 400
"""Characters of a tree that are shown; ``--json`` has all of it."""


def determinism_lines(study: DeterminismStudy) -> list[Line]:
    """Return a determinism study as lines."""
    lines: list[Line] = [("path", study.path, "")]
    for output in study.outputs:
        lines += _output_lines(output)
    return lines


def _output_lines(output: OutputStudy) -> list[Line]:
    if output.order_dependent == 0:
        return [(output.output, "one result", "its accumulation order is fixed")]
    orders = f"{len(output.orders)} orders"
    lines: list[Line] = [
        (output.output, f"{output.distinct_results} different results from {orders}", ", ".join(output.orders[:6]) + ", ..."),
        ("", f"{output.moved} of {output.elements} elements moved", f"{output.order_dependent} can, by plan and indices"),
        ("", f"spread up to {output.max_spread:.3g}", "between two legal orders, of the element that moved most in value"),
        ("", f"{output.differs_from_deterministic} elements differ", "between the sequential and the deterministic result"),
    ]
    worst = output.worst
    if worst is None:
        return lines
    index = ", ".join(map(str, worst.index))
    moved = f"{output.output}[{index}]: spread {worst.spread:.3g} = {worst.spread_ulp} ulp"
    lines.append(("worst", moved, f"the element that moved most in ulp; with deterministic computation {worst.deterministic_result:.9g}"))
    for value, order, steps in (
        (worst.lowest, worst.lowest_order, worst.steps_to_lowest),
        (worst.highest, worst.highest_order, worst.steps_to_highest),
    ):
        shown = "; ".join(f"core {step.core} {step.value:+.6g} -> {step.sum_after:.9g}" for step in steps[:SHOWN_STEPS])
        more = f"; {len(steps) - SHOWN_STEPS} more" if len(steps) > SHOWN_STEPS else ""
        lines.append(("", f"{value:.9g} ({order})", shown + more))
    return lines


def precision_lines(study: PrecisionStudy) -> list[Line]:
    """Return a precision study as lines."""
    lines: list[Line] = []
    for one in study.outputs:
        verdicts = ", ".join(f"{verdict.standard} {'passes' if verdict.passed else 'FAILS'}" for verdict in one.verdicts)
        lines.append((one.variant, f"{one.output} {one.dtype}: max {one.max_ulp:.3g} ulp, mean {one.mean_ulp:.3g} ulp", verdicts))
        lines.append(("", f"of given inputs: max {one.max_ulp_of_given:.3g} ulp", "the rounding of the inputs included"))
        index = ", ".join(map(str, one.worst_index))
        terms = ", ".join(f"{term.name} {term.value:.4g}" for term in one.worst_terms[:3])
        lines.append(("", f"worst [{index}] {one.worst_actual:.7g} for {one.worst_golden:.7g}", f"largest terms: {terms}"))
        lines.append(("", "each cause alone, in ulp", ", ".join(f"{cause.name} {cause.max_ulp:.3g}" for cause in one.causes)))
    lines += [(label, "refused", message) for label, message in study.refused.items()]
    return [*lines, *precision_meanings()]


def precision_meanings() -> list[Line]:
    """Return what a precision study measures against, and what every verdict means, a line each."""
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
            lines.append((row.output, f"{row.change}: not applicable", row.note))
            continue
        first = (
            f"first at [{', '.join(map(str, row.first))}]: {row.before:.9g} becomes {row.after:.9g}" if row.first is not None else row.note
        )
        lines.append((row.output, f"{row.change}: {'changes' if row.changes else 'same bits'}", first))
    return lines


def certificate_lines(certificates: Sequence[Certificate]) -> list[Line]:
    """Return certificates as lines."""
    lines: list[Line] = []
    for one in certificates:
        index = ", ".join(map(str, one.element))
        agreed = {None: "not probed", True: "the kernel agrees", False: "THE KERNEL DISAGREES"}[one.agrees]
        lines.append((one.hash, f"{one.output}[{index}], {one.elements} elements alike, {len(one.terms)} terms", f"{agreed} ({one.probe})"))
        formula = one.text
        lines.append(("", formula if len(formula) <= SHOWN_TREE else formula[:SHOWN_TREE] + " ...", f"t0 = {one.terms[0]}, ..."))
    return lines


def determinism_text(study: DeterminismStudy) -> str:
    """Return a determinism study as text."""
    return _study_text(study, determinism_lines(study))


def precision_text(study: PrecisionStudy) -> str:
    """Return a precision study as text."""
    return _study_text(study, precision_lines(study))


def invariance_text(study: InvarianceStudy) -> str:
    """Return an invariance study as text."""
    return _study_text(study, invariance_lines(study))


def certificate_text(certificate: Certificate) -> str:
    """Return one certificate as text."""
    return render(lines_table(certificate_lines([certificate])))


def _study_text(study: DeterminismStudy | PrecisionStudy | InvarianceStudy, lines: Sequence[Line]) -> str:
    return f"{study.operator} on {study.product}, {study.soc}\n\n{render(lines_table(lines))}"

"""A determinism study as text and as a report."""

from collections.abc import Iterator

from rich.console import RenderableType

from npu_sim.language import Text, joined, say
from npu_sim.show import document_of, view_of
from npu_sim.show.forms.layout import Document
from npu_sim.show.studies import headed_lines, study_headline, study_report
from npu_sim.show.text import Line
from npu_sim.studies.determinism import DeterminismStudy, OutputStudy, WorstElement

SHOWN_STEPS = 6
"""Number of orders, and of steps of a sum, that are listed."""


def determinism_lines(study: DeterminismStudy) -> Iterator[Line]:
    """Yield a determinism study as lines."""
    yield ("path", study.path, "")
    for output in study.outputs:
        if output.order_dependent:
            yield from _output_lines(output)
        else:
            yield (output.output, "one result", "its accumulation order is fixed")


def _output_lines(output: OutputStudy) -> Iterator[Line]:
    results = say(
        "one result from {orders}"
        if output.distinct_results == 1
        else "{distinct_results} different results from {orders}",
        distinct_results=output.distinct_results,
        orders=say("{orders} orders", orders=len(output.orders)),
    )
    differing = say(
        "{moved} of {elements} elements differ", moved=output.moved, elements=output.elements
    )
    spread = "between two legal orders, of the element that differs most in value"
    more_orders = ["..."] if len(output.orders) > SHOWN_STEPS else []
    different = say(
        "{differs_from_deterministic} elements differ",
        differs_from_deterministic=output.differs_from_deterministic,
    )
    yield (output.output, results, joined((*output.orders[:SHOWN_STEPS], *more_orders), ", "))
    yield (
        "",
        differing,
        say("{order_dependent} can, by plan and indices", order_dependent=output.order_dependent),
    )
    yield ("", say("spread up to {max_spread:.3g}", max_spread=output.max_spread), spread)
    yield ("", different, "between the sequential and the deterministic result")
    if output.race:
        yield ("race", output.race, "two runs can differ, with deterministic computation too")
    if output.worst is not None:
        yield from _worst_lines(output.output, output.worst)


def _worst_lines(output: str, worst: WorstElement) -> Iterator[Line]:
    """Yield the element with the largest spread and the orders of its extremes."""
    value = say(
        "{output}[{index}]: spread {spread:.3g} = {spread_ulp} ulp",
        output=output,
        index=", ".join(map(str, worst.index)),
        spread=worst.spread,
        spread_ulp=worst.spread_ulp,
    )
    yield (
        "worst",
        value,
        say(
            "the element that differs most in ulp; with deterministic computation "
            "{deterministic_result:.9g}",
            deterministic_result=worst.deterministic_result,
        ),
    )
    for extreme, order, steps in (
        (worst.lowest, worst.lowest_order, worst.steps_to_lowest),
        (worst.highest, worst.highest_order, worst.steps_to_highest),
    ):
        shown = joined(
            say(
                "core {core} {value:+.6g} -> {sum_after:.9g}",
                core=step.core,
                value=step.value,
                sum_after=step.sum_after,
            )
            for step in steps[:SHOWN_STEPS]
        )
        more = (
            say("; {steps} more", steps=len(steps) - SHOWN_STEPS)
            if len(steps) > SHOWN_STEPS
            else ""
        )
        scaled = say("; times {factor:.6g}", factor=worst.factor) if worst.factor != 1 else ""
        value = Text("{value} ({order})", value=f"{extreme:.9g}", order=order)
        yield ("", value, shown + more + scaled)


def _differing(study: DeterminismStudy) -> str:
    """Return how many elements differ between orders."""
    moved = [
        say(
            "{moved} of {elements} elements of {output} differ between orders",
            moved=output.moved,
            elements=output.elements,
            output=output.output,
        )
        for output in study.outputs
        if output.order_dependent
    ]
    return joined(moved, ", ") if moved else say("every order gives the same bits")


@view_of.register
def determinism_view(study: DeterminismStudy) -> RenderableType:
    """Return a determinism study as a rich renderable."""
    return headed_lines(study_headline(study, _differing(study)), determinism_lines(study))


@document_of.register
def determinism_document(study: DeterminismStudy) -> Document:
    """Return the report of a determinism study."""
    return study_report(
        study_headline(study, _differing(study)),
        determinism_lines(study),
        study.as_dict(),
        rows=[output.rows for output in study.outputs],
    )

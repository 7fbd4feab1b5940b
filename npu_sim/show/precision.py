"""A precision study as text and as a report."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType

from npu_sim.language import Text, grouped, joined, say, ulp_text
from npu_sim.show import document_of, view_of
from npu_sim.show.forms.layout import Document
from npu_sim.show.studies import headed_lines, study_headline, study_report
from npu_sim.show.text import Line
from npu_sim.studies.precision import (
    AGAINST_GIVEN,
    AGAINST_ROUNDED,
    MEANINGS,
    OutputPrecision,
    PrecisionStudy,
    variant_label,
)

SHOWN_TERMS = 3
"""Number of terms of the worst element that are listed."""


def _merged(study: PrecisionStudy) -> list[tuple[str, OutputPrecision]]:
    """Return equal outputs once, each with the name of all their variants."""
    forms = grouped((output.input_dtype, output.form) for output in study.outputs)
    alike = grouped((str(output.as_dict() | {"variant": ""}), output) for output in study.outputs)
    return [(joined(_labels(same, forms)), same[0]) for same in alike.values()]


def _labels(same: Sequence[OutputPrecision], forms: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the name of the variants of each dtype: the dtype alone when all forms are alike.

    - ``forms``: all forms of each dtype.
    """
    for dtype, found in grouped((output.input_dtype, output.form) for output in same).items():
        yield dtype if {*found} == {*forms[dtype]} else variant_label(dtype, _together(found))


def _together(forms: Sequence[str]) -> str:
    """Return forms as one text, the words that all begin with once: cubeMathType 0, 1."""
    shared = {form.rpartition(" ")[0] for form in forms[1:]} == {forms[0].rpartition(" ")[0]}
    rest = (form.rpartition(" ")[2] for form in forms[1:]) if shared else forms[1:]
    return joined((forms[0], *rest), ", ")


def precision_lines(study: PrecisionStudy) -> Iterator[Line]:
    """Yield a precision study as lines, equal outputs once."""
    shown = ""
    for variants, output in _merged(study):
        label, shown = "" if variants == shown else variants, variants
        if not output.elements:
            value = say("{output} {dtype}: no elements", output=output.output, dtype=output.dtype)
            yield (label, value, "")
            continue
        value = say(
            "{output} {dtype}: max {most}, mean {mean}",
            output=output.output,
            dtype=output.dtype,
            most=ulp_text(output.max_ulp),
            mean=ulp_text(output.mean_ulp),
        )
        verdicts = (
            say(
                "{standard} passes" if verdict.passed else "{standard} FAILS",
                standard=verdict.standard,
            )
            for verdict in output.verdicts
        )
        yield (label, value, joined(verdicts, ", "))
        value = say("of given inputs: max {most}", most=ulp_text(output.max_ulp_of_given))
        yield ("", value, "the rounding of the inputs included")
        terms = joined(
            (
                Text("{name} {value:.4g}", name=term.name, value=term.value)
                for term in output.worst_terms[:SHOWN_TERMS]
            ),
            ", ",
        )
        value = say(
            "worst [{index}] {worst_actual:.7g} for {worst_golden:.7g}",
            index=", ".join(map(str, output.worst_index)),
            worst_actual=output.worst_actual,
            worst_golden=output.worst_golden,
        )
        yield ("", value, say("largest terms: {terms}", terms=terms) if terms else "")
        causes = (
            Text(
                "{name} {error}",
                name=cause.name,
                error=ulp_text(cause.max_ulp).removesuffix(" ulp"),
            )
            for cause in output.causes
        )
        yield ("", "each cause alone, in ulp", joined(causes, ", "))
        yield from (
            ("", cause.name, cause.note)
            for cause in output.causes
            if isinstance(cause.note, Text)  # notes with numbers
        )
    yield from ((label, "refused", message) for label, message in study.refused.items())
    yield from precision_meanings()


def precision_meanings() -> list[Line]:
    """Return the references of a precision study and the meanings of its verdicts."""
    return [
        ("against", "the rounded inputs", AGAINST_ROUNDED),
        ("", "the given inputs", AGAINST_GIVEN),
        *(
            ("" if position else "verdict", standard, meaning)
            for position, (standard, meaning) in enumerate(MEANINGS.items())
        ),
    ]


def _error(study: PrecisionStudy) -> str:
    """Return the largest error."""
    if not study.outputs:
        return say("refused")
    measured = (output for output in study.outputs if output.elements)
    worst = max(measured, key=lambda output: output.max_ulp, default=None)
    if worst is None:
        return say("no elements")
    return say(
        "error up to {most} ({output} {dtype})",
        most=ulp_text(worst.max_ulp),
        output=worst.output,
        dtype=worst.dtype,
    )


@view_of.register
def precision_view(study: PrecisionStudy) -> RenderableType:
    """Return a precision study as a rich renderable."""
    return headed_lines(study_headline(study, _error(study)), precision_lines(study))


@document_of.register
def precision_document(study: PrecisionStudy) -> Document:
    """Return the report of a precision study, equal outputs once."""
    headline = study_headline(study, _error(study))
    outputs = [
        output.as_dict() | {"variant": name} for name, output in _merged(study) if output.elements
    ]
    return study_report(headline, precision_lines(study), {"outputs": outputs})

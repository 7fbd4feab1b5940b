"""Certificates of summation trees as text and as a report."""

from collections.abc import Iterable, Iterator

from rich.console import RenderableType

from npu_sim.framework.describing import counted
from npu_sim.language import Text, say
from npu_sim.show import document_of, view_of
from npu_sim.show.forms.layout import Document, lines_table
from npu_sim.show.studies import study_report
from npu_sim.show.text import Line
from npu_sim.studies.certificate import Certificate

SHOWN_CLASSES = 12
"""Number of classes of elements of a certificate that are listed."""
SHOWN_TREE = 120
"""Number of characters shown of a tree; ``--json`` has all of it."""


HEADLINES = {
    0: "{operator}: no output is a sum in an order that is known",
    1: "{operator}: 1 class of elements",
}
"""Headlines of fewer than two classes of elements."""


def certificates_headline(operator: str, found: int) -> str:
    """Return operator and number of classes of elements in one line."""
    template = HEADLINES.get(found, "{operator}: {found} classes of elements")
    return say(template, operator=operator, found=found)


def certificate_lines(certificates: Iterable[Certificate]) -> Iterator[Line]:
    """Yield certificates as lines."""
    for certificate in certificates:
        agreed = {None: "not probed", True: "the kernel agrees", False: "THE KERNEL DISAGREES"}[
            certificate.agrees
        ]
        yield (
            certificate.hash,
            say(
                "{output}[{index}], {elements} alike, {terms}",
                output=certificate.output,
                index=", ".join(map(str, certificate.element)),
                elements=counted(certificate.elements, "element"),
                terms=counted(len(certificate.terms), "term"),
            ),
            Text("{agreed} ({probe})", agreed=agreed, probe=certificate.probe),
        )
        formula = certificate.text
        cut = formula[:SHOWN_TREE].rpartition(" ")[0] + " ..."
        yield (
            "",
            cut if len(formula) > SHOWN_TREE else formula,
            say("t0 = {term}, ...", term=certificate.terms[0]),
        )


@view_of.register
def certificate_view(certificate: Certificate) -> RenderableType:
    """Return one certificate as a rich renderable."""
    return lines_table(certificate_lines([certificate]))


@document_of.register
def certificate_document(certificate: Certificate) -> Document:
    """Return the report of one certificate."""
    lines = list(certificate_lines([certificate]))
    return study_report(lines[0][1], lines, {"certificates": [certificate.as_dict()]})

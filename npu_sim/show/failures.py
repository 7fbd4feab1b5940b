"""A diagnosis as text."""

from rich.console import RenderableType

from npu_sim.failures.diagnosis import Diagnosis
from npu_sim.show.layout import lines_table


def diagnosis_view(diagnosis: Diagnosis) -> RenderableType:
    """Return a diagnosis as a rich renderable."""
    styles = {"impossible": "red"}
    return lines_table(diagnosis.lines, styles=styles)

"""A diagnosis as text."""

from rich.console import RenderableType

from npu_sim.show import view_of
from npu_sim.show.forms.layout import lines_table
from npu_sim.tools.failures.diagnosis import Diagnosis


@view_of.register
def diagnosis_view(diagnosis: Diagnosis) -> RenderableType:
    """Return a diagnosis as a rich renderable."""
    return lines_table(diagnosis.lines, styles={"impossible": "red"})

"""Reports: one HTML file without external resources, for light and dark mode and for print.

Every number in a picture is also in the JSON of the same call. A report is a
:class:`~npu_sim.show.reports.document.Document`; :func:`render` turns it into HTML.
"""

from npu_sim.show.reports.document import (
    Document,
    Drawing,
    Figure,
    Lines,
    Picture,
    Prose,
    Section,
    Table,
    table_report,
)
from npu_sim.show.reports.figures import Axis, Bound, Curve, curve_figure
from npu_sim.show.reports.html import embedded, render
from npu_sim.show.reports.pictures import order_strips
from npu_sim.show.reports.plans import plan_report, result_report, timeline_report
from npu_sim.show.reports.views import view_report

__all__ = [
    "Axis",
    "Bound",
    "Curve",
    "Document",
    "Drawing",
    "Figure",
    "Lines",
    "Picture",
    "Prose",
    "Section",
    "Table",
    "curve_figure",
    "embedded",
    "order_strips",
    "plan_report",
    "render",
    "result_report",
    "table_report",
    "timeline_report",
    "view_report",
]

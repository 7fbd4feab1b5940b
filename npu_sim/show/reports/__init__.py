"""Reports: one self-contained HTML file that opens offline, follows light and dark, and prints.

Every number in a picture is also in the JSON of the same call. Plans and runs have their own reports; comparisons, limits,
sweeps and studies build theirs from :func:`table_report`, :func:`curve_figure` and the blocks of
:mod:`npu_sim.show.reports.document`, and turn them into a file with :func:`render` and :func:`npu_sim.files.writing.write_text`.
"""

from npu_sim.show.reports.document import (
    Document,
    Drawing,
    Figure,
    Lines,
    Picture,
    Section,
    Table,
    Text,
    table_report,
)
from npu_sim.show.reports.figures import Bound, Curve, curve_figure
from npu_sim.show.reports.html import embedded, render
from npu_sim.show.reports.pictures import order_strips
from npu_sim.show.reports.plans import plan_report, result_report, timeline_report

__all__ = [
    "Bound",
    "Curve",
    "Document",
    "Drawing",
    "Figure",
    "Lines",
    "Picture",
    "Section",
    "Table",
    "Text",
    "curve_figure",
    "embedded",
    "order_strips",
    "plan_report",
    "render",
    "result_report",
    "table_report",
    "timeline_report",
]

"""Curves for plotly.js: lines with the documented and the hardware bound drawn across."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from npu_sim.show.reports.document import Figure


@dataclass(frozen=True)
class Curve:
    """One line of a figure; ``stepped`` keeps a value until the next point, ``dashed`` marks what is a model."""

    name: str
    x: Sequence[float | int | str]
    y: Sequence[float | int]
    stepped: bool = False
    dashed: bool = False


@dataclass(frozen=True)
class Bound:
    """A straight line across a figure, such as a documented limit (``x``) or a capacity (``y``)."""

    name: str
    value: float
    axis: Literal["x", "y"] = "x"


def curve_figure(
    x_title: str,
    y_title: str,
    curves: Sequence[Curve],
    bounds: Sequence[Bound] = (),
    *,
    log_x: bool = False,
    log_y: bool = False,
    caption: str = "",
) -> Figure:
    """Return a figure of curves and bounds; axis titles carry the units.

    Parameters
    ----------
    x_title, y_title
        Titles of the axes.
    curves
        The lines.
    bounds
        Straight lines with their names.
    log_x, log_y
        Whether an axis is logarithmic.
    caption
        What the figure shows.
    """
    data = tuple(_trace(curve) for curve in curves)
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": x_title}, "type": "log" if log_x else "-"},
        "yaxis": {"title": {"text": y_title}, "type": "log" if log_y else "-"},
        "shapes": [_shape(bound) for bound in bounds],
        "annotations": [_annotation(bound, log_x if bound.axis == "x" else log_y) for bound in bounds],
        "showlegend": len(data) > 1,
    }
    return Figure(data, layout, caption)


def _trace(curve: Curve) -> dict[str, Any]:
    line: dict[str, Any] = {"width": 2}
    if curve.stepped:
        line["shape"] = "hv"
    if curve.dashed:
        line["dash"] = "dash"
    mode = "lines+markers" if len(curve.x) <= 60 else "lines"
    return {"type": "scatter", "mode": mode, "name": curve.name, "x": list(curve.x), "y": list(curve.y), "line": line}


def _shape(bound: Bound) -> dict[str, Any]:
    across, along = bound.axis, "y" if bound.axis == "x" else "x"
    position = {f"{across}0": bound.value, f"{across}1": bound.value, f"{along}0": 0, f"{along}1": 1, f"{along}ref": "paper"}
    return {"type": "line", "line": {"width": 1.5, "dash": "dot"}, **position}


def _annotation(bound: Bound, logarithmic: bool) -> dict[str, Any]:
    from math import log10

    value = log10(bound.value) if logarithmic and bound.value > 0 else bound.value  # plotly places notes on log axes by exponent
    text = {"text": f"{bound.name} {bound.value:g}" if bound.value < 1e6 else f"{bound.name} {bound.value:.0f}", "showarrow": False}
    if bound.axis == "x":
        return {**text, "x": value, "y": 1, "yref": "paper", "xanchor": "left", "yanchor": "top", "textangle": 90}
    return {**text, "y": value, "x": 1, "xref": "paper", "xanchor": "right", "yanchor": "bottom"}

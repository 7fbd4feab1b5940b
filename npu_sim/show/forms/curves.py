"""Curves for plotly.js: lines, bounds across them, and hatched ranges of refused calls."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log10
from typing import Any, Literal

from npu_sim.language import say, translated
from npu_sim.show.forms.layout import Chart

MARKED_POINTS = 60
"""Lines of up to this many points have markers."""
LABEL_ROW = 0.075
"""Height of a row of labels, as a fraction of the figure."""
Range = tuple[float, float]


@dataclass(frozen=True)
class LimitLine:
    """A straight line across a figure, such as a documented limit (``x``) or a capacity (``y``)."""

    name: str
    value: float
    axis: Literal["x", "y"] = "x"

    @property
    def text(self) -> str:
        """Name and value."""
        return (
            f"{self.name} {self.value:g}" if self.value < 1e6 else f"{self.name} {self.value:.0f}"
        )


@dataclass(frozen=True)
class Axis:
    """An axis of a figure."""

    title: str
    """Title with the unit."""
    is_log: bool = False
    """Whether the axis is logarithmic."""
    span: Range | None = None
    """First and last value; those of the points if None. The y axis follows its points."""


def curve(
    name: str,
    x: Sequence[float | int | str],
    y: Sequence[float | int],
    *,
    stepped: bool = False,
    dashed: bool = False,
    joined: bool = True,
) -> dict[str, Any]:
    """Return one line of a figure.

    - ``name``: name in the legend.
    - ``x``, ``y``: coordinates.
    - ``stepped``: whether a value holds until the next point.
    - ``dashed``: whether the line is dashed.
    - ``joined``: whether the points are connected.
    """
    shape = {"shape": "hv"} if stepped else {}
    dash = {"dash": "dash"} if dashed else {}
    mode = "lines+markers" if len(x) <= MARKED_POINTS else "lines"
    return {
        "type": "scatter",
        "mode": mode if joined else "markers",
        "name": translated(name),
        "x": list(x),
        "y": list(y),
        "line": {"width": 2, **shape, **dash},
    }


def curve_chart(
    x: Axis,
    y: Axis,
    curves: Sequence[dict[str, Any]],
    bounds: Sequence[LimitLine] = (),
    *,
    caption: str = "",
    refused: Iterable[Mapping[str, Any]] = (),
) -> Chart:
    """Return a figure of curves and bounds.

    The x axis covers the data: a bound beyond it is marked at the edge. Each label of an x
    bound has a row of its own.

    - ``x``, ``y``: the axes.
    - ``curves``: the lines, from :func:`curve`.
    - ``bounds``: straight lines with their names.
    - ``caption``: description of the figure.
    - ``refused``: hatched ranges: ``first``, ``last``, ``end``, ``reason`` and ``soc``.
    """
    span = x.span or _span(curves)
    traces = (*curves, *(_refused(line, position == 0) for position, line in enumerate(refused)))
    across = [bound for bound in bounds if bound.axis == "x"]
    inside = [bound for bound in across if span is None or span[0] <= bound.value <= span[1]]
    upright = [bound for bound in bounds if bound.axis == "y"]
    labels = [_x_label(bound, row, span, x.is_log) for row, bound in enumerate(across)] + [
        _y_label(bound, y.is_log) for bound in upright
    ]
    top = 1 - LABEL_ROW * len(across)
    hidden = {"visible": False, "fixedrange": True}
    layout = {
        "xaxis": {**_axis(x), **_drawn_range(span, x.is_log)},
        "yaxis": {**_axis(y), "domain": [0, top]},
        "shapes": [_shape(bound, top) for bound in (*inside, *upright)],
        "annotations": labels,
        "showlegend": len(traces) > 1,
    }
    if len(traces) > len(curves):
        layout["yaxis2"] = {"overlaying": "y", "range": [0, 1], **hidden}
    return Chart(traces, layout, caption)


def _axis(axis: Axis) -> dict[str, Any]:
    return {"title": {"text": axis.title}, "type": "log" if axis.is_log else "-"}


def _span(curves: Sequence[dict[str, Any]]) -> Range | None:
    places = [float(x) for line in curves for x in line["x"] if not isinstance(x, str)]
    return (min(places), max(places)) if places else None


def _drawn_range(span: Range | None, logarithmic: bool) -> dict[str, Any]:
    """Return the range of an axis with a margin on both sides."""
    if span is None or span[0] == span[1]:
        return {}
    low, high = (log10(end) for end in span) if logarithmic else span
    room = (high - low) / 50
    return {"range": [low - room, high + room]}


def _refused(span: Mapping[str, Any], in_legend: bool) -> dict[str, Any]:
    """Hatch a range over the whole height."""
    start, end = span["first"], span["end"]
    return {
        "type": "scatter",
        "mode": "none",
        "name": say("refused"),
        "legendgroup": "refused",
        "showlegend": in_legend,
        "x": [start, end, end, start],
        "y": [0, 0, 1, 1],
        "yaxis": "y2",
        "fill": "toself",
        "fillpattern": {"shape": "/", "size": 7, "solidity": 0.25},
        "hoveron": "fills",
        "hoverinfo": "text",
        "text": say("refused on {where}, {first}..{last}: {reason}", where=span["soc"], **span),
    }


def _shape(bound: LimitLine, top: float) -> dict[str, Any]:
    at, line = bound.value, {"type": "line", "line": {"width": 1.5, "dash": "dot"}}
    if bound.axis == "x":
        return {**line, "x0": at, "x1": at, "y0": 0, "y1": top, "yref": "paper"}
    return {**line, "y0": at, "y1": at, "x0": 0, "x1": 1, "xref": "paper"}


def _x_label(bound: LimitLine, row: int, span: Range | None, logarithmic: bool) -> dict[str, Any]:
    """Return the label of an x bound, in a row above the curves, marked if off the axis."""
    label = {
        "text": bound.text,
        "showarrow": False,
        "y": 1 - LABEL_ROW * row,
        "yref": "paper",
        "yanchor": "top",
    }
    if span is None or span[0] <= bound.value <= span[1]:
        right = span is not None and _share(bound.value, span, logarithmic) > 0.5
        x = log10(bound.value) if logarithmic else bound.value
        return {**label, "x": x, "xanchor": "right" if right else "left"}
    if bound.value > span[1]:
        return {
            **label,
            "text": f"{bound.text} \u2192",
            "x": 1,
            "xref": "paper",
            "xanchor": "right",
        }
    return {**label, "text": f"\u2190 {bound.text}", "x": 0, "xref": "paper", "xanchor": "left"}


def _share(value: float, span: Range, logarithmic: bool) -> float:
    low, at, high = map(log10 if logarithmic else float, (span[0], value, span[1]))
    return (at - low) / (high - low) if high > low else 0.0


def _y_label(bound: LimitLine, logarithmic: bool) -> dict[str, Any]:
    # plotly.js positions annotations on log axes by exponent.
    y = log10(bound.value) if logarithmic and bound.value > 0 else bound.value
    return {
        "text": bound.text,
        "showarrow": False,
        "y": y,
        "x": 1,
        "xref": "paper",
        "xanchor": "right",
        "yanchor": "bottom",
    }

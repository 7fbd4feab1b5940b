"""Curves that ``assets/curves.js`` draws, with limits across them and ranges of refused calls."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from npu_sim.language import count_text, say, translated
from npu_sim.show.forms.layout import Drawing

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
        whole = self.value == int(self.value)
        return f"{self.name} {count_text(int(self.value)) if whole else f'{self.value:g}'}"


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
    x: Sequence[float],
    y: Sequence[float],
    *,
    stepped: bool = False,
    dashed: bool = False,
    joined: bool = True,
    control: bool = False,
) -> dict[str, Any]:
    """Return one line of a figure.

    - ``name``: name in the legend.
    - ``x``, ``y``: coordinates, x in ascending order.
    - ``stepped``: whether a value holds until the next point.
    - ``dashed``: whether the line is dashed.
    - ``joined``: whether the points are connected.
    - ``control``: whether it is what the others are compared with: grey and wide.
    """
    return {
        "name": translated(name),
        "x": list(x),
        "y": list(y),
        "stepped": stepped,
        "dashed": dashed,
        "joined": joined,
        "control": control,
    }


def curve_chart(
    x: Axis,
    y: Axis,
    curves: Sequence[dict[str, Any]],
    bounds: Sequence[LimitLine] = (),
    *,
    caption: str = "",
    refused: Iterable[Mapping[str, Any]] = (),
) -> Drawing:
    """Return a figure of curves and bounds.

    The x axis covers the data: a bound beyond it is marked at the edge.

    - ``x``, ``y``: the axes.
    - ``curves``: the lines, from :func:`curve`.
    - ``bounds``: straight lines with their names.
    - ``caption``: description of the figure.
    - ``refused``: hatched ranges: ``first``, ``last``, ``end``, ``reason`` and ``soc``.
    """
    data = {
        "x": {"title": translated(x.title), "logarithmic": x.is_log, "span": x.span},
        "y": {"title": translated(y.title), "logarithmic": y.is_log},
        "curves": curves,
        "limits": [
            {"text": bound.text, "value": bound.value, "axis": bound.axis} for bound in bounds
        ],
        "refused": [_refused(span) for span in refused],
    }
    return Drawing("drawCurves", data, caption)


def _refused(span: Mapping[str, Any]) -> dict[str, Any]:
    text = say("refused on {where}, {first}..{last}: {reason}", where=span["soc"], **span)
    return {"first": span["first"], "end": span["end"], "text": text}

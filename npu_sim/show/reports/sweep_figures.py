"""Figures of a sweep: its map, cuts as staircases, and what was counted."""

from typing import Any

from npu_sim.language import say
from npu_sim.show.reports.document import Block, Drawing, Figure
from npu_sim.show.reports.figures import Bound, Curve, curve_figure

STAIRCASES = {"cores": "cores that work", "workspace_bytes": "workspace, bytes"}
MAP_CAPTION = (
    "Borders are exact: every call of a map of up to a million is planned; of larger ones every drawn column, and the next value between "
    "columns where the order of paths changes. "
    "Hatched: refused. Maps of cores, workspace and bound are sampled, a cell for a call."
)


def sweep_figures(
    area: dict[str, Any], curves: dict[str, Any], counts: dict[str, dict[str, int]]
) -> tuple[Block, ...]:
    """Return the pictures of a sweep.

    Parameters
    ----------
    area
        From :func:`npu_sim.sweeps.maps.sweep_map`; may be empty.
    curves
        From :func:`npu_sim.show.reports.sweep_curves.sweep_curves`; may be empty.
    counts
        What was counted: calls by value, by field.
    """
    drawn: tuple[Block, ...] = (Drawing("drawMap", area, MAP_CAPTION),) if area else ()
    return (
        *drawn,
        *cut_figures(curves),
        *(bar_figure(name, found) for name, found in counts.items() if len(found) > 1),
    )


def bar_figure(name: str, counts: dict[str, int]) -> Figure:
    """Draw how many calls have each value, in the order of the values where these are numbers."""
    numbers = all(value.lstrip("-").isdecimal() for value in counts)
    shown = (
        sorted(counts.items(), key=lambda item: int(item[0])) if numbers else list(counts.items())
    )
    bars = {
        "type": "bar",
        "x": [value for value, _ in shown],
        "y": [count for _, count in shown],
        "name": "calls",
    }
    layout = {
        "xaxis": {"title": {"text": name}, "type": "category"},
        "yaxis": {"title": {"text": "calls"}},
    }
    return Figure((bars,), layout)


def cut_figures(curves: dict[str, Any]) -> list[Figure]:
    """Draw a cut: cores, workspace and on-chip memory as staircases; where memory is not planned at every value, points."""
    if not curves.get("series"):
        return []
    with_others = ", ".join(f"{name} {value}" for name, value in curves["with"].items())
    limits = [
        Bound(say("{name} limit", name=name), curves[name])
        for name in ("documented", "hardware")
        if curves[name] is not None
    ]
    shared: dict[str, Any] = {
        "log_x": curves["logarithmic"],
        "x_range": (curves["first"], curves["last"]),
    }
    refused = [
        {**one, "soc": series["soc"]} for series in curves["series"] for one in series["refused"]
    ]
    figures = []
    for kind, title in STAIRCASES.items():
        found = [
            (one, one["staircases"][kind]) for one in curves["series"] if kind in one["staircases"]
        ]
        if found:
            lines = [
                Curve(f"{one['product']}, {one['soc']}", steps["x"], steps["y"], stepped=True)
                for one, steps in found
            ]
            caption = _staircase_caption(
                curves, with_others, binned=any(steps["binned"] for _, steps in found)
            )
            figures.append(
                curve_figure(
                    curves["axis"], title, lines, limits, caption=caption, refused=refused, **shared
                )
            )
    if any(one["memory"]["x"] for one in curves["series"]):
        figures.append(_memory_figure(curves, limits, with_others, shared))
    return figures


def _staircase_caption(curves: dict[str, Any], with_others: str, *, binned: bool) -> str:
    asked = (
        "every value is planned"
        if curves["asked"] == curves["values"]
        else say(
            "{curves} of {curves2} values are planned",
            curves=curves["asked"],
            curves2=curves["values"],
        )
    )
    how = (
        say("{asked}, every bin drawn with its lowest and highest", asked=asked)
        if binned
        else say("{asked}, every step is drawn", asked=asked)
    )
    return say(
        "a cut through the sweep with {with_others}; {how}", with_others=with_others, how=how
    )


def _memory_figure(
    curves: dict[str, Any], limits: list[Bound], with_others: str, shared: dict[str, Any]
) -> Figure:
    series = [(one, one["memory"]) for one in curves["series"] if one["memory"]["x"]]
    whole = series[0][1]["asked"] == curves["values"]
    caption = (
        _staircase_caption(
            curves, with_others, binned=any(memory["binned"] for _, memory in series)
        )
        if whole
        else say(
            "a cut through the sweep with {with_others}; each point is one planned call, nothing is said between them",
            with_others=with_others,
        )
    )
    lines = [
        Curve(
            f"{one['product']}, {one['soc']}",
            memory["x"],
            memory["used_bytes"],
            stepped=whole,
            joined=whole,
        )
        for one, memory in series
    ]
    capacities = sorted({memory["capacity_bytes"] for _, memory in series})
    bounds = [*limits, *(Bound("capacity", capacity, "y") for capacity in capacities)]
    return curve_figure(
        curves["axis"], "fullest on-chip memory, bytes", lines, bounds, caption=caption, **shared
    )

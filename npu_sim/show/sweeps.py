"""The report of a sweep: counts, its map, and a cut through it as curves."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from npu_sim.cores import Profile
from npu_sim.framework.arguments import Number
from npu_sim.framework.planning import fixed_call
from npu_sim.framework.target import LIMITS
from npu_sim.language import Text, Verbatim, bytes_text, joined, say
from npu_sim.plans.model import Plan
from npu_sim.questions.limits import find_bound
from npu_sim.show.forms.curves import Axis, LimitLine, curve, curve_chart
from npu_sim.show.forms.layout import (
    Bar,
    BarGroup,
    BarPart,
    Bars,
    Column,
    Document,
    Drawing,
    Table,
    filled,
    lines_table,
    part,
)
from npu_sim.show.summary import (
    FIELDS,
    call_text,
    most_frequent,
    named_value,
    outcomes_text,
    status_text,
    typed,
)
from npu_sim.show.text import operator_title
from npu_sim.status import AclnnError, NpuSimError
from npu_sim.sweeps.maps import (
    Area,
    areas_of,
    ascending,
    drawn_columns,
    edge,
    is_logarithmic,
    open_numbers,
    spread_positions,
)
from npu_sim.sweeps.space import AxisValues, Space
from npu_sim.sweeps.summary import SweepSummary, plan_at

MOST_ASKED = 1 << 18
"""Maximum number of planned values of the axis; longer axes are sampled."""
MOST_STEPS = 2000
"""Maximum number of steps drawn one by one; longer staircases keep the first, lowest, highest and
last of each bin."""
MOST_PLANNED = 8192
"""Maximum number of values, over all series, whose on-chip memory is planned; each takes a whole
plan."""
PLANNED_OF_MORE = 512
"""Number of planned values of a longer axis."""
MOST_SERIES = 6


def sweep_curves(space: Space) -> dict[str, Any]:
    """Plan a cut through a sweep.

    Parameters
    ----------
    space
        The sweep.

    Returns
    -------
    dict
        Empty without an axis of several numbers, else:

        - ``axis``, its ``first`` and ``last`` value, and the values ``with`` which it is cut;
        - the ``documented`` and ``hardware`` bounds of the axis on the first product, or None;
        - the numbers of its ``values``, and of those that were ``asked``, that is planned;
        - ``series``, one per product and SoC. ``staircases`` by name have ``x``, ``y`` and whether
          they are ``binned``. ``memory`` has ``x``, ``used_bytes`` and ``capacity_bytes`` of the
          fullest on-chip memory: a staircase if every value was planned, else single calls.
          ``refused`` has the first and last value of each refused range, and the reason.
    """
    numbers = open_numbers(space)
    if not numbers:
        return {}
    cut = ascending(numbers[0])
    positions = spread_positions(cut, MOST_ASKED)
    chosen_area = areas_of(space, (cut,))[0]
    areas = [
        replace(chosen_area, profile=profile) for profile in _profiles(space, chosen_area.profile)
    ]
    chosen = dict(chosen_area.fixed)
    del chosen["limits"]
    deterministic = bool(chosen.pop("deterministic"))
    call = fixed_call(space.operator, {**chosen, cut.name: cut.codes[0]}, deterministic)
    assert isinstance(cut.axis, Number)
    bounds: dict[str, int | None] = {
        limits: find_bound(call, cut.axis, chosen_area.profile, limits).largest for limits in LIMITS
    }
    ends = {
        "first": cut.codes[0],
        "last": cut.codes[-1],
        "values": len(cut.codes),
        "asked": len(positions),
    }
    planned = spread_positions(
        cut,
        len(cut.codes)
        if len(cut.codes) * len(areas) <= MOST_PLANNED
        else PLANNED_OF_MORE // len(areas),
    )
    return {
        "axis": cut.name,
        **ends,
        "with": areas[0].fixed,
        "logarithmic": is_logarithmic(cut),
        **bounds,
        "series": [
            {**_series(area, cut, positions), "memory": _memory(area, cut, planned)}
            for area in areas
        ],
    }


def _profiles(space: Space, first: Profile) -> list[Profile]:
    """Return the drawn devices: the first ones, with the one that was chosen."""
    shown = list(space.profiles[:MOST_SERIES])
    return shown if first in shown else [first, *shown[1:]]


def _series(area: Area, cut: AxisValues, positions: list[int]) -> dict[str, Any]:
    records = area.records(positions)
    runs = records["status"] == 0
    x = np.array([cut.codes[position] for position in positions])
    drawn = drawn_columns(records) if runs.any() else {}
    return {
        "product": area.profile.name,
        "soc": area.profile.soc,
        "staircases": {
            kind: staircase(x[runs], records[name][runs]) for kind, name in drawn.items()
        },
        "refused": list(_refused(area, cut, positions, runs)),
    }


def staircase(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Return the corners of a staircase; the extremes of each bin if there are too many.

    - ``x``, ``y``: positions in ascending order, and values, both of shape (points,).
    """
    changes = np.flatnonzero(np.concatenate([[True], y[1:] != y[:-1]]))
    corners = np.union1d(changes, [len(x) - 1])
    binned = len(corners) > MOST_STEPS
    if binned:
        edges = np.unique(np.linspace(0, len(x), MOST_STEPS // 4 + 1).astype(np.int64))
        corners = np.unique(
            [
                place
                for a, b in pairwise(edges)
                for place in (a, a + int(y[a:b].argmin()), a + int(y[a:b].argmax()), b - 1)
            ]
        )
    return {"x": x[corners].tolist(), "y": y[corners].tolist(), "binned": binned}


def _memory(area: Area, cut: AxisValues, positions: list[int]) -> dict[str, Any]:
    """Plan whole calls for the fullest on-chip memory, which records lack."""
    used: dict[int, int] = {}
    capacity = None
    for position in positions:
        planned = area.planned(position)
        memory = planned.fullest_memory if isinstance(planned, Plan) else None
        if memory is not None:
            used[cut.codes[position]], capacity = memory.used_bytes, memory.capacity_bytes
    steps = {"x": list(used), "y": list(used.values()), "binned": False}
    if used and len(positions) == len(cut.codes):
        steps = staircase(np.array(steps["x"]), np.array(steps["y"]))
    return {
        "x": steps["x"],
        "used_bytes": steps["y"],
        "capacity_bytes": capacity,
        "asked": len(positions),
        "binned": steps["binned"],
    }


def _refused(
    area: Area, cut: AxisValues, positions: Sequence[int], runs: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Yield the ranges of refused calls, each with the reason of its first call."""
    changes = [0, *(int(place) + 1 for place in np.flatnonzero(runs[1:] != runs[:-1])), len(runs)]
    for start, stop in pairwise(changes):
        if not runs[start]:
            first, last = positions[start], positions[stop - 1]
            error = area.planned(first)
            yield {
                "first": cut.codes[first],
                "last": cut.codes[last],
                "end": edge(cut, last + 1),
                "reason": error.message if not isinstance(error, Plan) else "",
            }


STAIRCASE_TITLES = {"cores": "cores that work", "workspace_bytes": "workspace, bytes"}
MAP_CAPTION = Text(
    "Borders are exact: every call of a map of up to a million is planned; of larger ones every "
    "drawn column, and the next value between columns where the order of paths changes. Hatched: "
    "refused. Maps of cores, workspace and bound are sampled, a cell for a call. N stands for a "
    "number that differs from call to call."
)


def sweep_report(
    summary: SweepSummary, area: dict[str, Any], curves: dict[str, Any], command: str = ""
) -> Document:
    """Return the report of a sweep: the map of what runs, then why the rest does not.

    - ``summary``: counts of the sweep.
    - ``area``: its map, from :func:`npu_sim.sweeps.maps.sweep_map`; may be empty.
    - ``curves``: a cut through the sweep, from :func:`sweep_curves`; may be empty.
    - ``command``: command that reproduces the report.
    """
    title = operator_title(summary.space.operator.name)
    sentence = Text("{title}: {outcomes}", title=title, outcomes=outcomes_text(summary))
    sections = filled(
        (
            "What runs",
            [Drawing("drawMap", area, _map_caption(area)) if area else _matrix(summary.space)],
        ),
        ("Why calls are refused", [_refusals_table(summary)]),
        ("A cut through the sweep", cut_charts(curves)),
        ("How often", _count_bars(summary)),
        ("Largest workspace of a kernel", [_peak_table(summary)]),
        ("Varied sizes", [_axes_table(summary)]),
    )
    tone = "neutral" if summary.refusals() else "good"
    return Document(sentence, sentence, sections, command, tone)


def _matrix(space: Space) -> Table:
    """Return the path or the refusal of every call of a small sweep without sizes.

    A row for every combination of values that vary, a column for every device.
    """
    columns: list[Column] = []
    answers: dict[tuple[str, ...], dict[Profile, str]] = {}
    if not open_numbers(space) and space.sample is None and 1 < space.rows <= MOST_CELLS:
        varied = [axis.name for axis in space.axes if len(axis.codes) > 1]
        for profile, values in map(space.call_at, range(space.rows)):
            named = tuple(typed(values[name]) for name in varied)
            planned = plan_at(space.operator, profile, values)
            answers.setdefault(named, {})[profile] = _outcome_text(planned)
        columns += [Column(Verbatim(name), _named(place)) for place, name in enumerate(varied)]
        columns += [Column(_device(profile), _answer(profile)) for profile in space.profiles]
    return Table(columns, list(answers.items()))


MOST_CELLS = 400
"""Calls of a sweep without sizes that are shown one by one; each is planned."""
Answer = tuple[tuple[str, ...], dict[Profile, str]]
"""Values that vary, and the outcome on every device."""


def _named(place: int) -> Callable[[Answer], str]:
    return lambda answer: answer[0][place]


def _answer(profile: Profile) -> Callable[[Answer], str]:
    return lambda answer: answer[1][profile]


def _device(profile: Profile) -> Verbatim:
    return Verbatim(f"{profile.name}, {profile.soc}, {profile.release}")


def _outcome_text(planned: Plan | NpuSimError) -> str:
    """Return path and key of a plan, or the status of a refusal."""
    if isinstance(planned, AclnnError):
        return say("refused {status}", status=str(int(planned.status)))
    if not isinstance(planned, Plan):
        return planned.message
    if planned.tiling_key is None:
        return planned.path
    key = str(planned.tiling_key)  # keys have no separators
    return Text("{path}, key {tiling_key}", path=planned.path, tiling_key=key)


def _map_caption(area: dict[str, Any]) -> str:
    if not area["left_out"]:
        return MAP_CAPTION
    others = say("{count} more maps are not drawn.", count=area["left_out"])
    return joined((MAP_CAPTION, others), " ")


def _refusals_table(summary: SweepSummary) -> Table:
    """Return every status of refused calls, and why the first call that has it is refused."""
    return lines_table(
        (
            status_text(refusal.status),
            say(
                "{count} calls; the first: {reason}",
                count=f"{refusal.calls:,}",
                reason=refusal.reason,
            ),
            call_text(refusal.call),
        )
        for refusal in summary.refusals()
    )


def _peak_table(summary: SweepSummary) -> Table:
    peak = summary.as_dict().get("peak_workspace")
    lines = [(bytes_text(peak["bytes"]), call_text(peak["call"]))] if peak else []
    return Table((Column("bytes", part(0)), Column("call", part(1))), lines)


def _axes_table(summary: SweepSummary) -> Table:
    axes = tuple((Verbatim(axis.name), _typed_values(axis)) for axis in summary.space.axes)
    columns = (Column("name", part(0)), Column("values", part(1)))
    return Table(columns, axes, folded=True)


def _typed_values(axis: AxisValues) -> Verbatim:
    """Return the values of an axis as they are typed: ``16, 128``, ``0..100:+5``."""
    if isinstance(axis.codes, tuple):
        return Verbatim(", ".join(typed(axis.axis.value(code)) for code in axis.codes))
    step = f":+{axis.codes.step}" if axis.codes.step > 1 else ""
    return Verbatim(f"{axis.codes[0]}..{axis.codes[-1]}{':log' if axis.log else step}")


def _count_bars(summary: SweepSummary) -> Iterator[Bars]:
    """Yield how often the calls that run have each kernel, key and number of cores."""
    counts = summary.as_dict()["counts"]
    groups = [
        BarGroup(title, tuple(_bars_of(counts[name])))
        for name, title in FIELDS.items()
        if len(counts.get(name, ())) > 1
    ]
    if groups:
        yield Bars(tuple(groups))


def _bars_of(counts: Mapping[str, int]) -> Iterator[Bar]:
    """Yield the most frequent values, and how many others there are."""
    shown = most_frequent(counts)
    longest = max(count for _, count in shown)
    for value, count in shown:
        text = f"{count:,}"
        yield Bar(value, (BarPart(count / longest, "c0", text),), text)


def cut_charts(curves: dict[str, Any]) -> Iterator[Drawing]:
    """Draw a cut as staircases; memory as points unless every value is planned."""
    if not curves.get("series"):
        return
    with_others = joined((named_value(name, value) for name, value in curves["with"].items()), ", ")
    limits = [
        LimitLine(say("{name} limit", name=name), curves[name])
        for name in ("documented", "hardware")
        if curves[name] is not None
    ]
    x = Axis(curves["axis"], curves["logarithmic"], (curves["first"], curves["last"]))
    refused = [
        {**span, "soc": series["soc"]} for series in curves["series"] for span in series["refused"]
    ]
    for kind, title in STAIRCASE_TITLES.items():
        staircases = [
            (series, series["staircases"][kind])
            for series in curves["series"]
            if kind in series["staircases"]
        ]
        if staircases:
            lines = [
                curve(f"{series['product']}, {series['soc']}", steps["x"], steps["y"], stepped=True)
                for series, steps in staircases
            ]
            caption = _staircase_caption(
                curves, with_others, binned=any(steps["binned"] for _, steps in staircases)
            )
            yield curve_chart(x, Axis(title), lines, limits, caption=caption, refused=refused)
    if any(series["memory"]["x"] for series in curves["series"]):
        yield _memory_chart(curves, limits, with_others, x)


def _staircase_caption(curves: dict[str, Any], with_others: str, *, binned: bool) -> str:
    planned, total = curves["asked"], curves["values"]
    some = say("{planned} of {total} values are planned", planned=planned, total=total)
    return say(
        "a cut through the sweep with {with_others}; {how}",
        with_others=with_others,
        how=say(
            "{density}, every bin drawn with its lowest and highest"
            if binned
            else "{density}, every step is drawn",
            density=some if planned != total else "every value is planned",
        ),
    )


def _memory_chart(
    curves: dict[str, Any], limits: list[LimitLine], with_others: str, x: Axis
) -> Drawing:
    planned = [found for found in curves["series"] if found["memory"]["x"]]
    whole = planned[0]["memory"]["asked"] == curves["values"]
    caption = _staircase_caption(
        curves, with_others, binned=any(series["memory"]["binned"] for series in planned)
    )
    points = say(
        "a cut through the sweep with {with_others}; each point is one planned "
        "call, values between them are not computed",
        with_others=with_others,
    )
    lines = [
        curve(
            f"{series['product']}, {series['soc']}",
            series["memory"]["x"],
            series["memory"]["used_bytes"],
            stepped=whole,
            joined=whole,
        )
        for series in planned
    ]
    capacities = sorted({series["memory"]["capacity_bytes"] for series in planned})
    bounds = [*limits, *(LimitLine(say("capacity"), capacity, "y") for capacity in capacities)]
    return curve_chart(
        x,
        Axis("fullest on-chip memory, bytes"),
        lines,
        bounds,
        caption=caption if whole else points,
    )

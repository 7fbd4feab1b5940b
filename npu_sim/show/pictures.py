"""Pictures as SVG: cores, on-chip memory, workspace, order dependence, and work over time."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import floor, log10
from typing import Any

import numpy as np
from markupsafe import Markup

from npu_sim.framework.describing import PLURALS
from npu_sim.framework.execution import OrderMask, Result
from npu_sim.language import Text, joined, say
from npu_sim.operators.timelines import tracks_of
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Memory, Plan, Workspace, WorkspacePart
from npu_sim.show.forms import svg
from npu_sim.show.forms.svg import BAR_HEIGHT, COLOURS, WIDTH, Pictures, element, legend, picture
from npu_sim.show.text import memory_name
from npu_sim.show.times import covered_time

LETTER_ROOM = 5


def _note(part: Any) -> str:
    """Return the remark on a buffer or a part of the workspace, to follow other text."""
    return Text(", {note}", note=part.note) if part.note else ""


def _segment(x: float, width: float, y: float, colour: str, title: str, label: str) -> Markup:
    shape = svg.bar(x, y, max(width, 0.5), colour, title)
    if len(label) * svg.CHARACTER_WIDTH + LETTER_ROOM > width:
        return shape
    return shape + svg.centred(label, x + width / 2, y + BAR_HEIGHT / 2, "on")


def _side_by_side(segments: Iterable[tuple[float, str, str, str]], y: float) -> Iterator[Markup]:
    """Yield segments from the left on: width, colour, title and label of each."""
    x = 0.0
    for width, *texts in segments:
        yield _segment(x, width, y, *texts)
        x += width


# On-chip memories


def memory_map(memories: Sequence[Memory]) -> Markup:
    """Draw on-chip memories to scale; overflowing buffers extend beyond the capacity mark."""
    parts: list[Markup] = []
    y = 0.0
    for memory in memories:
        drawn, height = _memory_bar(memory, y)
        parts += drawn
        y += height
    return picture(max(y - 8, 1), parts, "on-chip memory to scale")


def memory_colours(memory: Memory) -> list[tuple[str, str]]:
    """Return the colour and label of each allocation, then of the free memory."""
    named: list[tuple[str, str]] = [
        (
            f"c{number % COLOURS}",
            Text("{name} {bytes}", name=allocation.name, bytes=allocation.bytes),
        )
        for number, allocation in enumerate(memory.allocations)
    ]
    return (
        [*named, ("free", say("free {free_bytes}", free_bytes=memory.free_bytes))]
        if memory.free_bytes > 0
        else named
    )


def memory_title(memory: Memory) -> str:
    """Return name and phase of a memory."""
    return memory_name(memory) + (Text(", {phase}", phase=memory.phase) if memory.phase else "")


def _memory_bar(memory: Memory, y: float) -> tuple[list[Markup], float]:
    """Draw a memory with its legend; return shapes and height."""
    scale = WIDTH / max(memory.capacity_bytes, memory.used_bytes, 1)
    caption = say(
        "{memory_title}: {used_bytes} of {capacity_bytes} bytes{evidence}",
        memory_title=memory_title(memory),
        used_bytes=memory.used_bytes,
        capacity_bytes=memory.capacity_bytes,
        evidence=""
        if memory.evidence is Evidence.EXACT
        else Text(" ({value})", value=memory.evidence.value),
    )
    segments = [
        (
            allocation.bytes * scale,
            f"c{number % COLOURS}",
            say(
                "{name}: {bytes} bytes{note}",
                name=allocation.name,
                bytes=allocation.bytes,
                note=_note(allocation),
            ),
            allocation.name,
        )
        for number, allocation in enumerate(memory.allocations)
    ]
    if memory.free_bytes > 0:
        title = say("free: {free_bytes} bytes", free_bytes=memory.free_bytes)
        segments.append((memory.free_bytes * scale, "free", title, "free"))
    parts = [svg.caption(caption, y + 12), *_side_by_side(segments, y + 20)]
    if memory.free_bytes < 0:
        edge = memory.capacity_bytes * scale
        title = say(
            "does not fit: {used_bytes} of {capacity_bytes} bytes",
            used_bytes=memory.used_bytes,
            capacity_bytes=memory.capacity_bytes,
        )
        parts.append(svg.mark(edge, y + 14, title))
    marks, height = legend(memory_colours(memory), y + 22 + BAR_HEIGHT)
    return parts + marks, BAR_HEIGHT + 36 + height


# Workspace


def workspace_map(parts: Sequence[WorkspacePart], total: int) -> Markup:
    """Draw the workspace as a stacked bar, with a second bar for parts too small to see in it."""
    known = [part for part in parts if part.evidence is not Evidence.UNKNOWN]
    drawn = _workspace_bar(known, parts, 0, say("{total} bytes", total=total))
    height = BAR_HEIGHT + 28.0
    largest = max(known, key=lambda part: part.bytes, default=None)
    rest = [part for part in known if part is not largest]
    rest_bytes = sum(part.bytes for part in rest)
    if largest is not None and len(rest) > 1 and rest_bytes < largest.bytes / 8:
        drawn += _workspace_bar(
            rest, parts, height + 8, say("without {name}, enlarged", name=largest.name)
        )
        height += BAR_HEIGHT + 36
    unknown = [part for part in parts if part.evidence is Evidence.UNKNOWN]
    for number, part in enumerate(unknown):
        title, label = (
            say("{name}: size unknown", name=part.name) + _note(part),
            say("{name}: unknown", name=part.name),
        )
        drawn.append(_segment(number * 260, 250, height + 8, "unknown", title, label))
    height += BAR_HEIGHT + 12 if unknown else 0
    return picture(height, drawn, say("workspace of {total} bytes", total=total))


def workspace_colours(parts: Sequence[WorkspacePart]) -> tuple[str, ...]:
    """Return the colour of each part."""
    kinds = {Evidence.EXACT: "", Evidence.MODEL: " model"}
    return tuple(
        "unknown" if part.evidence is Evidence.UNKNOWN else f"c{n % COLOURS}{kinds[part.evidence]}"
        for n, part in enumerate(parts)
    )


def _workspace_bar(
    shown: Sequence[WorkspacePart], parts: Sequence[WorkspacePart], y: float, caption: str
) -> list[Markup]:
    scale = WIDTH / max(sum(part.bytes for part in shown), 1)
    colours = workspace_colours(parts)
    segments = [
        (
            part.bytes * scale,
            colours[parts.index(part)],
            say(
                "{name}: {bytes} bytes, {kind}, {evidence}",
                name=part.name,
                bytes=part.bytes,
                kind=part.kind,
                evidence=part.evidence.value,
            )
            + _note(part),
            part.name,
        )
        for part in shown
    ]
    return [svg.caption(caption, y + 12), *_side_by_side(segments, y + 20)]


# Order dependence

LEAST_OPACITY = 0.35
"""Minimum opacity of a bin with any order dependence, so that few rows stay visible."""


def order_strip(strip: dict[str, Any]) -> Markup:
    """Draw the order dependence of an output as a strip, from :func:`order_strip_data`.

    Opacity is the fraction of rows that depend on timing. A second strip shows those rows enlarged.
    """
    bins, runs = strip["bins"], strip["runs"]
    total = max((bin_["stop"] for bin_ in bins), default=1)
    parts = [
        svg.caption(say("{output}, by {axis}", output=strip["output"], axis=strip["axis"]), 12)
    ]
    for bin_ in bins:
        first, last, count = bin_["start"], bin_["stop"], bin_["order_dependent"]
        size = last - first
        opacity = max(count / max(size, 1), LEAST_OPACITY) if count else 0
        x, width = first * WIDTH / total, size * WIDTH / total
        title = say(
            "{parts} {first}..{last}: {count} of {size} depend on timing",
            parts=PLURALS[strip["axis"]],
            first=first,
            last=last,
            count=count,
            size=size,
        )
        parts += [
            svg.bar(x, 20, width, "fixed"),
            svg.bar(x, 20, width, "timing", title, fill_opacity=opacity),
        ]
    height = BAR_HEIGHT + 22.0
    if runs:
        parts += _magnified(strip["axis"], runs, height)
        height += BAR_HEIGHT + 30
    meaning = say("can differ between runs; paler where fewer elements can")
    marks, more = legend([("timing", meaning)], height)
    height += more
    return picture(height, parts + marks, say("order dependence of {strip}", strip=strip["output"]))


def _magnified(axis: str, runs: Sequence[dict[str, int]], y: float) -> list[Markup]:
    count = sum(run["stop"] - run["start"] for run in runs)
    text = say(
        "enlarged: the {count} {parts} that depend on timing alone, {first} first, {last} last",
        count=count,
        parts=PLURALS[axis],
        first=runs[0]["start"],
        last=runs[-1]["stop"] - 1,
    )
    parts = [svg.caption(text, y + 14)]
    x = 0.0
    for run in runs:
        first, last = run["start"], run["stop"]
        width = (last - first) * WIDTH / count
        title = say(
            "{parts} {first}..{last} depend on timing", parts=PLURALS[axis], first=first, last=last
        )
        parts.append(svg.bar(x, y + 22, width, "timing apart", title))
        x += width
    return parts


CELL = 60
CELLS_IN_A_ROW = 16
MOST_CELLS = 512
"""Larger numbers of cores are drawn as strips only."""
COUNTED = ("blocks", "tiles")
"""Suffixes of ranges that count the work of a core, such as ``gradInput blocks``."""
FULL = 0.85
"""Opacity of the largest part; smaller parts are in proportion."""
UPRIGHT = ((7.6, "on"), (6.0, "on small"))
"""Width of a digit and class of the numbers in a strip, largest first."""
GAP = 1
"""Width between the numbers of two cores."""
TURNED = 11
"""Width of a number rotated by 90 degrees; narrower parts have no numbers."""


def core_map(plan: Plan) -> Markup:
    """Draw the cores of a plan: strips of the ranges, then each core with its part of the work."""
    names = list(dict.fromkeys(name for work in plan.cores for name in work.ranges))
    partitions = [name for name in names if _is_partition(plan, name)]
    loads = (
        partitions + [name for name in names if name not in partitions and name.endswith(COUNTED)]
        or names[:1]
    )
    parts: list[Markup] = []
    y = 0.0
    for number, name in enumerate(partitions):
        parts += _core_strip(plan, name, y, number)
        y += BAR_HEIGHT + 30
    if plan.cores_available <= MOST_CELLS:
        parts += [_core_cell(plan, loads, core, y) for core in range(plan.cores_available)]
        y += -(-plan.cores_available // CELLS_IN_A_ROW) * CELL
        if len(loads) > 1:
            marks, height = legend(
                [(f"c{number % COLOURS}", name) for number, name in enumerate(loads)], y
            )
            parts += marks
            y += height
    return picture(
        y + 2,
        parts,
        say(
            "{block_dim} of {cores_available} {core_kind} work",
            block_dim=plan.block_dim,
            cores_available=plan.cores_available,
            core_kind=plan.core_kind,
        ),
    )


def _is_partition(plan: Plan, name: str) -> bool:
    """Return whether the parts that cores take of a range are disjoint."""
    ranges = sorted(work.ranges[name] for work in plan.cores if name in work.ranges)
    return all(later[0] >= earlier[1] for earlier, later in pairwise(ranges))


def _core_strip(plan: Plan, name: str, y: float, number: int) -> list[Markup]:
    spans = [(work.core, *work.ranges[name]) for work in plan.cores if name in work.ranges]
    low, high = min(start for _, start, _ in spans), max(stop for _, _, stop in spans)
    scale = WIDTH / max(high - low, 1)
    narrowest = min(((stop - start) * scale for _, start, stop in spans if stop > start), default=0)
    digits = len(str(max(core for core, *_ in spans)))
    kind = next(
        (kind for width, kind in UPRIGHT if digits * width + GAP <= narrowest),
        "on turned" if narrowest >= TURNED else "",
    )
    parts = [svg.caption(Text("{name} {low}..{high}", name=name, low=low, high=high), y + 12)]
    for core, start, stop in spans:
        colour = f"c{number % COLOURS}" + (" odd" if core % 2 else "")
        x, width = (start - low) * scale, (stop - start) * scale
        title = say(
            "core {core}: {name} {start}..{stop} ({count})",
            core=core,
            name=name,
            start=start,
            stop=stop,
            count=stop - start,
        )
        parts.append(svg.bar(x, y + 20, max(width, 0.5), colour, title))
        if kind and stop > start:
            parts.append(_number_of(core, x + width / 2, y + 20 + BAR_HEIGHT / 2, kind))
    return parts


def _number_of(core: int, x: float, y: float, kind: str) -> Markup:
    turned: dict[str, Any] = (
        {"transform": f"rotate(-90 {x:.2f} {y:.2f})"} if kind == "on turned" else {}
    )
    return svg.centred(str(core), x, y, kind, **turned)


def _core_cell(plan: Plan, names: Sequence[str], core: int, top: float) -> Markup:
    """Draw one core; a click on a working core shows its steps (``assets/steps.js``)."""
    column, row = core % CELLS_IN_A_ROW, core // CELLS_IN_A_ROW
    pitch = WIDTH / CELLS_IN_A_ROW
    x, y = column * pitch, top + row * CELL
    box: dict[str, Any] = {"x": x, "y": y, "width": pitch - 6, "height": CELL - 6}
    work = next((work for work in plan.cores if work.core == core), None)
    bars: list[Markup] = []
    chosen: dict[str, Any] = {}
    if work is None:
        title, state = say("core {core}: idle", core=core), "cell idle"
    else:
        ranges = [
            Text(
                "{name} {start}..{stop} ({size})",
                name=name,
                start=start,
                stop=stop,
                size=stop - start,
            )
            for name, (start, stop) in work.ranges.items()
        ]
        title = say("core {core}: ", core=core) + joined(ranges, ", ")
        state, chosen = "cell", {"data_cell": core}
        bars = _cell_bars(plan, names, work.ranges, box)
    frame = element("rect", title, **box, rx=4, class_=state)
    label = element("text", text=str(core), x=x + 5, y=y + 14, class_="corner")
    return element("g", title, children=[*bars, frame, label], **chosen)


def _cell_bars(
    plan: Plan,
    names: Sequence[str],
    ranges: Mapping[str, tuple[int, int]],
    box: Mapping[str, float],
) -> list[Markup]:
    """Draw one bar per range, its height and opacity in proportion to the largest of all cores."""
    width = box["width"] / len(names)
    bars = []
    for number, name in enumerate(names):
        start, stop = ranges.get(name, (0, 0))
        spans = (work.ranges[name] for work in plan.cores if name in work.ranges)
        share = (stop - start) / max(1, *(last - first for first, last in spans))
        filled = box["height"] * share
        bars.append(
            element(
                "rect",
                x=box["x"] + number * width,
                y=box["y"] + box["height"] - filled,
                width=width,
                height=filled,
                fill_opacity=FULL * share,
                class_=f"load c{number % COLOURS}",
            )
        )
    return bars


MOST_BINS = 200
MOST_RUNS = 400


def order_strip_data(output: str, mask: OrderMask) -> dict[str, Any]:
    """Count flags in at most ``MOST_BINS`` equal bins.

    - ``output``: name of the output.
    - ``mask``: rows, columns or elements that depend on the order of atomic additions.
    """
    flags = np.ravel(mask.mask)
    edges = np.unique(np.linspace(0, flags.size, MOST_BINS + 1).astype(np.int64))
    sums = np.concatenate([[0], np.cumsum(flags, dtype=np.int64)])
    return {
        "output": output,
        "axis": mask.axis,
        "bins": [
            {
                "start": int(start),
                "stop": int(stop),
                "size": int(stop - start),
                "order_dependent": int(sums[stop] - sums[start]),
            }
            for start, stop in pairwise(edges)
        ],
        "runs": _runs(flags),
    }


def _runs(flags: np.ndarray) -> list[dict[str, int]]:
    """Return the runs of set flags; none if too many to be distinguished, or if all are set."""
    steps = np.diff(np.concatenate([[0], flags.astype(np.int8), [0]]))
    starts, stops = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
    if len(starts) > MOST_RUNS or flags.all():
        return []
    return [
        {"start": int(start), "stop": int(stop)} for start, stop in zip(starts, stops, strict=True)
    ]


def order_strips(result: Result) -> list[dict[str, Any]]:
    """Return the strips of a run, one per output with a known mask."""
    return [
        order_strip_data(output, mask)
        for output, mask in result.order_dependent.items()
        if mask.mask.size
    ]


# Work over time, as ``assets/gantt.js`` draws it in a page

ROW, BAR, LEFT, AXIS = 26, 18, 74, 24
MARKS = 10
"""Largest number of times on the axis."""
PIPE_COLOURS = {"MTE2": "c0", "V": "c1", "MTE3": "c2", "MTE1": "c4", "M": "c1", "FIXP": "c2"}
Event = tuple[float, float, str]
"""Start and duration in microseconds, and name; empty where it is not drawn."""


def lanes(data: Mapping[str, Any]) -> Markup:
    """Draw the launches of a call and the pipes of its slowest core.

    ``data`` is from :func:`npu_sim.timelines.tracks.tracks`.
    """
    launches = [(launch["start_us"], launch["us"], launch["kernel"]) for launch in data["launches"]]
    pipes = (
        (
            pipe["pipe"],
            PIPE_COLOURS.get(pipe["pipe"], "c7"),
            [(event["start_us"], event["us"], "") for event in pipe["events"]],
        )
        for pipe in data["pipes"]
    )
    rows: list[tuple[str, str, list[Event]]] = [(say("launches"), "c5", launches), *pipes]
    end = max((start + us for _, _, events in rows for start, us, _ in events), default=0) or 1.0
    scale, height = (WIDTH - LEFT) / end, len(rows) * ROW + AXIS
    parts = []
    for at in _ticks(end):
        x = LEFT + at * scale
        parts += [
            element("line", x1=x, x2=x, y1=0, y2=height - AXIS + 4, class_="grid"),
            svg.caption(f"{at:g} us", height - 5, x, "end" if x > WIDTH - 30 else "middle"),
        ]
    for position, (label, colour, events) in enumerate(rows):
        y = position * ROW + 4
        parts.append(svg.caption(label, y + 13))
        for start, us, name in events:
            x, width = LEFT + start * scale, max(us * scale, 0.6)
            parts.append(svg.bar(x, y, width, colour, name, height=BAR))
            if name and len(name) * svg.CHARACTER_WIDTH < width:
                parts.append(element("text", text=name, x=x + 5, y=y + 13, class_="on"))
    label = say(
        "{title} on {soc}: at least {time}",
        title=data["title"],
        soc=data["soc"],
        time=covered_time(data["bound_us"], data["coverage"]),
    )
    return svg.picture(height, parts, label)


def _ticks(end: float) -> list[float]:
    """Return round times from 0 to the end, at most ``MARKS`` steps."""
    power = 10.0 ** floor(log10(end / MARKS))
    step = next(step * power for step in (1, 2, 5, 10) if step * power >= end / MARKS)
    return [number * step for number in range(int(end / step) + 1)]


# The pictures of an answer by name


def plan_pictures(plan: Plan) -> Pictures:
    """Return the pictures of a plan."""
    work = tracks_of(plan)
    pictures: dict[str, Callable[[], str]] = {}
    if plan.cores:
        pictures["cores"] = partial(core_map, plan)
    if plan.memories:
        pictures["memory"] = partial(memory_map, plan.memories)
    pictures |= workspace_pictures(plan.workspace)
    if work is not None:
        pictures["timeline"] = partial(lanes, work)
    return pictures


def workspace_pictures(workspace: Workspace) -> Pictures:
    """Return the picture of a workspace."""
    draw = partial(workspace_map, workspace.parts, workspace.total_bytes)
    return {"workspace": draw} if workspace.parts else {}


def result_pictures(result: Result) -> Pictures:
    """Return the pictures of a run: those of its plan, and which parts of outputs can differ."""
    return {
        **plan_pictures(result.plan),
        **{strip["output"]: partial(order_strip, strip) for strip in order_strips(result)},
    }

"""Maps as inline SVG: which core takes what, what lies in an on-chip memory, what the workspace is made of.

Shapes take their colours from the page's style sheet by class, so they follow light and dark. What a shape is, with its bytes,
is in its ``<title>``: what the browser shows when the pointer rests on it, and what screen readers read.
"""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise

from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Memory, Plan
from npu_sim.plans.workspace_model import WorkspacePart

WIDTH = 1000
COLOURS = 8
"""Fill classes ``c0`` .. ``c7`` of the style sheet."""
BAR_HEIGHT = 44
CELL = 60
CELLS_IN_A_ROW = 16
LEGEND_HEIGHT = 20
MOST_CELLS = 512
"""More cores than this are only drawn as a strip."""
CHARACTER_WIDTH = 7.2
LETTER_ROOM = 5
COUNTED = ("blocks", "tiles")
"""Endings of ranges that count what a core does, such as ``gradInput blocks``."""


def element(name: str, title: str = "", text: str = "", **attributes: object) -> str:
    """Return an SVG element; underscores in attribute names become hyphens, ``class_`` is ``class``."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"' for key, value in attributes.items())
    inner = (f"<title>{escape(title)}</title>" if title else "") + escape(text)
    return f"<{name}{written}>{inner}</{name}>"


def picture(height: float, parts: Iterable[str], label: str) -> str:
    """Wrap shapes into a picture as wide as the page."""
    return f'<svg class="map" viewBox="0 0 {WIDTH} {_number(height)}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'


def _number(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _segment(x: float, width: float, y: float, colour: str, title: str, label: str) -> str:
    shape = element("rect", title, x=x, y=y, width=max(width, 0.5), height=BAR_HEIGHT, class_=colour)
    if len(label) * CHARACTER_WIDTH + LETTER_ROOM > width:
        return shape
    text = element(
        "text", text=label, x=x + width / 2, y=y + BAR_HEIGHT / 2, class_="on", text_anchor="middle", dominant_baseline="central"
    )
    return shape + text


# Cores


def core_map(plan: Plan) -> str:
    """Draw the cores of a plan: strips of who takes which range, then every core with its share of the work."""
    names = _range_names(plan)
    shares = [name for name in names if _is_partition(plan, name)]
    loads = shares + [name for name in names if name not in shares and name.endswith(COUNTED)] or names[:1]
    parts: list[str] = []
    y = 0.0
    for number, name in enumerate(shares):
        parts += _core_strip(plan, name, y, number)
        y += BAR_HEIGHT + 30
    if plan.cores_available <= MOST_CELLS:
        for core in range(plan.cores_available):
            parts.append(_core_cell(plan, loads, core, y))
        y += -(-plan.cores_available // CELLS_IN_A_ROW) * CELL
        if len(loads) > 1:
            parts += _legend(loads, y)
            y += LEGEND_HEIGHT
    return picture(y + 2, parts, f"{plan.block_dim} of {plan.cores_available} {plan.core_kind} work")


def _range_names(plan: Plan) -> list[str]:
    return list(dict.fromkeys(name for work in plan.cores for name in work.ranges))


def _legend(names: Sequence[str], y: float) -> list[str]:
    parts, x = [], 0.0
    for number, name in enumerate(names):
        parts.append(element("rect", x=x, y=y + 4, width=12, height=12, class_=f"c{number % COLOURS}"))
        parts.append(element("text", text=name, x=x + 18, y=y + 14, class_="caption"))
        x += 18 + len(name) * CHARACTER_WIDTH + 24
    return parts


def _is_partition(plan: Plan, name: str) -> bool:
    """Whether a range is split over cores, each taking a part of its own."""
    ranges = sorted(work.ranges[name] for work in plan.cores if name in work.ranges)
    return all(later[0] >= earlier[1] for earlier, later in pairwise(ranges))


def _core_strip(plan: Plan, name: str, y: float, number: int) -> list[str]:
    shares = [(work.core, *work.ranges[name]) for work in plan.cores if name in work.ranges]
    low, high = min(start for _, start, _ in shares), max(stop for _, _, stop in shares)
    scale = WIDTH / max(high - low, 1)
    parts = [element("text", text=f"{name} {low}..{high}", x=0, y=y + 12, class_="caption")]
    for core, start, stop in shares:
        colour = f"c{number % COLOURS}" + (" odd" if core % 2 else "")
        title = f"core {core}: {name} {start}..{stop} ({stop - start})"
        parts.append(_segment((start - low) * scale, (stop - start) * scale, y + 20, colour, title, str(core)))
    return parts


def _core_cell(plan: Plan, names: Sequence[str], core: int, top: float) -> str:
    x = core % CELLS_IN_A_ROW * (WIDTH / CELLS_IN_A_ROW)
    y = top + core // CELLS_IN_A_ROW * CELL
    side, height = WIDTH / CELLS_IN_A_ROW - 6, CELL - 6
    work = next((one for one in plan.cores if one.core == core), None)
    if work is None:
        title, bars, state = f"core {core}: idle", "", "cell idle"
    else:
        title = f"core {core}: " + ", ".join(f"{name} {start}..{stop} ({stop - start})" for name, (start, stop) in work.ranges.items())
        bars = "".join(_cell_bar(plan, name, number, len(names), work.ranges, x, y, side, height) for number, name in enumerate(names))
        state = "cell"
    frame = element("rect", title, x=x, y=y, width=side, height=height, rx=4, class_=state)
    label = element("text", text=str(core), x=x + 5, y=y + 14, class_="corner")
    return f"<g>{element('title', text=title)}{bars}{frame}{label}</g>"


def _largest(plan: Plan, name: str) -> int:
    return max(stop - start for work in plan.cores for one, (start, stop) in work.ranges.items() if one == name)


def _cell_bar(
    plan: Plan, name: str, number: int, count: int, ranges: dict[str, tuple[int, int]], x: float, y: float, side: float, height: float
) -> str:
    start, stop = ranges.get(name, (0, 0))
    share = (stop - start) / max(_largest(plan, name), 1)
    width = side / count
    colour = f"load c{number % COLOURS}" + ("" if share == 1 else " less")
    return element("rect", x=x + number * width, y=y + height * (1 - share), width=width, height=height * share, class_=colour)


# On-chip memories


def memory_map(memories: Sequence[Memory]) -> str:
    """Draw on-chip memories to scale, one bar each; what does not fit reaches beyond the mark of the capacity."""
    parts: list[str] = []
    y = 0.0
    for memory in memories:
        parts += _memory_bar(memory, y)
        y += BAR_HEIGHT + 36
    return picture(max(y - 8, 1), parts, "on-chip memory to scale")


def memory_title(memory: Memory) -> str:
    """Return name and phase of a memory."""
    name = {"UB": "Unified Buffer"}.get(memory.name, memory.name)
    return f"{name}, {memory.phase}" if memory.phase else name


def _memory_bar(memory: Memory, y: float) -> list[str]:
    scale = WIDTH / max(memory.capacity_bytes, memory.used_bytes, 1)
    evidence = "" if memory.evidence is Evidence.EXACT else f" ({memory.evidence.value})"
    caption = f"{memory_title(memory)}: {memory.used_bytes} of {memory.capacity_bytes} bytes{evidence}"
    parts = [element("text", text=caption, x=0, y=y + 12, class_="caption")]
    x = 0.0
    for number, allocation in enumerate(memory.allocations):
        width = allocation.bytes * scale
        note = f", {allocation.note}" if allocation.note else ""
        title = f"{allocation.name}: {allocation.bytes} bytes{note}"
        parts.append(_segment(x, width, y + 20, f"c{number % COLOURS}", title, allocation.name))
        x += width
    if memory.free_bytes > 0:
        parts.append(_segment(x, memory.free_bytes * scale, y + 20, "free", f"free: {memory.free_bytes} bytes", "free"))
    elif memory.free_bytes < 0:
        edge = memory.capacity_bytes * scale
        title = f"does not fit: {memory.used_bytes} of {memory.capacity_bytes} bytes"
        parts.append(element("line", title, x1=edge, x2=edge, y1=y + 14, y2=y + 26 + BAR_HEIGHT, class_="over"))
    return parts


# Workspace


def workspace_map(parts: Sequence[WorkspacePart], total: int) -> str:
    """Draw the workspace as a stacked bar; when one part hides the others, a second bar shows those enlarged."""
    known = [part for part in parts if part.evidence is not Evidence.UNKNOWN]
    drawn = _workspace_bar(known, parts, 0, f"{total} bytes")
    height = BAR_HEIGHT + 28.0
    largest = max(known, key=lambda part: part.bytes, default=None)
    rest = [part for part in known if part is not largest]
    if largest is not None and len(rest) > 1 and sum(part.bytes for part in rest) < largest.bytes / 8:
        drawn += _workspace_bar(rest, parts, height + 8, f"without {largest.name}, enlarged")
        height += BAR_HEIGHT + 36
    unknown = [part for part in parts if part.evidence is Evidence.UNKNOWN]
    for number, part in enumerate(unknown):
        title = f"{part.name}: size unknown" + (f", {part.note}" if part.note else "")
        drawn.append(_segment(number * 260, 250, height + 8, "unknown", title, f"{part.name}: unknown"))
    return picture(height + (BAR_HEIGHT + 12 if unknown else 0), drawn, f"workspace of {total} bytes")


def _workspace_bar(shown: Sequence[WorkspacePart], parts: Sequence[WorkspacePart], y: float, caption: str) -> list[str]:
    scale = WIDTH / max(sum(part.bytes for part in shown), 1)
    drawn = [element("text", text=caption, x=0, y=y + 12, class_="caption")]
    x = 0.0
    for part in shown:
        colour = f"c{parts.index(part) % COLOURS}" + ("" if part.evidence is Evidence.EXACT else " model")
        title = f"{part.name}: {part.bytes} bytes, {part.kind}, {part.evidence.value}" + (f", {part.note}" if part.note else "")
        drawn.append(_segment(x, part.bytes * scale, y + 20, colour, title, part.name))
        x += part.bytes * scale
    return drawn


# Order dependence

LEAST_OPACITY = 0.35
"""Of a bin in which anything depends on timing: one row of forty has to be seen as well."""


def order_strip(strip: "dict[str, object]") -> str:
    """Draw a strip over an output (:func:`npu_sim.show.reports.order.order_strip_data`): the stronger, the more depends on timing."""
    bins = strip["bins"]
    assert isinstance(bins, list)
    total = max((one["stop"] for one in bins), default=1)
    parts = [element("text", text=f"{strip['output']}, by {strip['axis']}", x=0, y=12, class_="caption")]
    for one in bins:
        size = one["stop"] - one["start"]
        share = max(one["order_dependent"] / max(size, 1), LEAST_OPACITY) if one["order_dependent"] else 0
        x, width = one["start"] * WIDTH / total, size * WIDTH / total
        title = f"{strip['axis']}s {one['start']}..{one['stop']}: {one['order_dependent']} of {size} depend on timing"
        parts.append(element("rect", x=x, y=20, width=width, height=BAR_HEIGHT, class_="fixed"))
        parts.append(element("rect", title, x=x, y=20, width=width, height=BAR_HEIGHT, class_="timing", fill_opacity=share))
    return picture(BAR_HEIGHT + 22, parts, f"order dependence of {strip['output']}")

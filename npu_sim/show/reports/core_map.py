"""Which core takes what: strips of the ranges, and every core with its share of the work."""

from collections.abc import Sequence
from itertools import pairwise

from npu_sim.language import say
from npu_sim.plans.model import Plan
from npu_sim.show.reports.svg import BAR_HEIGHT, COLOURS, WIDTH, element, legend, picture

CELL = 60
CELLS_IN_A_ROW = 16
MOST_CELLS = 512
"""More cores than this are only drawn as a strip."""
COUNTED = ("blocks", "tiles")
"""Endings of ranges that count what a core does, such as ``gradInput blocks``."""
FULL = 0.85
"""Opacity of the largest share; others have theirs in proportion."""
UPRIGHT = ((7.6, "on"), (6.0, "on small"))
"""Width of a digit and class of the numbers in a strip, the larger first."""
TURNED = 11
"""Width that a number needs which stands on its side; narrower parts of a strip have none, and the
strip says so."""


def core_map(plan: Plan) -> str:
    """Draw the cores of a plan: strips of who takes which range, then every core with its share of the work."""
    names = list(dict.fromkeys(name for work in plan.cores for name in work.ranges))
    shares = [name for name in names if _is_partition(plan, name)]
    loads = (
        shares + [name for name in names if name not in shares and name.endswith(COUNTED)]
        or names[:1]
    )
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
    """Whether a range is split over cores, each taking a part of its own."""
    ranges = sorted(work.ranges[name] for work in plan.cores if name in work.ranges)
    return all(later[0] >= earlier[1] for earlier, later in pairwise(ranges))


def _core_strip(plan: Plan, name: str, y: float, number: int) -> list[str]:
    shares = [(work.core, *work.ranges[name]) for work in plan.cores if name in work.ranges]
    low, high = min(start for _, start, _ in shares), max(stop for _, _, stop in shares)
    scale = WIDTH / max(high - low, 1)
    narrowest = (
        min((stop - start) * scale for _, start, stop in shares if stop > start)
        if high > low
        else 0
    )
    digits = len(str(max(core for core, *_ in shares)))
    kind = next(
        (kind for width, kind in UPRIGHT if digits * width <= narrowest),
        "on turned" if narrowest >= TURNED else "",
    )
    parts = [element("text", text=f"{name} {low}..{high}", x=0, y=y + 12, class_="caption")]
    for core, start, stop in shares:
        colour = f"c{number % COLOURS}" + (" odd" if core % 2 else "")
        x, width = (start - low) * scale, (stop - start) * scale
        title = say(
            "core {core}: {name} {start}..{stop} ({stop2})",
            core=core,
            name=name,
            start=start,
            stop=stop,
            stop2=stop - start,
        )
        parts.append(
            element(
                "rect",
                title,
                x=x,
                y=y + 20,
                width=max(width, 0.5),
                height=BAR_HEIGHT,
                class_=colour,
            )
        )
        if kind and stop > start:
            parts.append(_number_of(core, x + width / 2, y + 20 + BAR_HEIGHT / 2, kind))
    return parts


def _number_of(core: int, x: float, y: float, kind: str) -> str:
    turned = {"transform": f"rotate(-90 {x:.2f} {y:.2f})"} if kind == "on turned" else {}
    return element(
        "text",
        text=str(core),
        x=x,
        y=y,
        class_=kind,
        text_anchor="middle",
        dominant_baseline="central",
        **turned,
    )


def _core_cell(plan: Plan, names: Sequence[str], core: int, top: float) -> str:
    """Draw a core; a click on one that works chooses it where the page steps through cores (``assets/steps.js``)."""
    x = core % CELLS_IN_A_ROW * (WIDTH / CELLS_IN_A_ROW)
    y = top + core // CELLS_IN_A_ROW * CELL
    side, height = WIDTH / CELLS_IN_A_ROW - 6, CELL - 6
    work = next((one for one in plan.cores if one.core == core), None)
    if work is None:
        title, bars, state, chosen = say("core {core}: idle", core=core), "", "cell idle", ""
    else:
        title = say("core {core}: ", core=core) + ", ".join(
            f"{name} {start}..{stop} ({stop - start})"
            for name, (start, stop) in work.ranges.items()
        )
        bars = "".join(
            _cell_bar(plan, name, number, len(names), work.ranges, x, y, side, height)
            for number, name in enumerate(names)
        )
        state, chosen = "cell", f' data-cell="{core}"'
    frame = element("rect", title, x=x, y=y, width=side, height=height, rx=4, class_=state)
    label = element("text", text=str(core), x=x + 5, y=y + 14, class_="corner")
    return f"<g{chosen}>{element('title', text=title)}{bars}{frame}{label}</g>"


def _largest(plan: Plan, name: str) -> int:
    return max(
        stop - start
        for work in plan.cores
        for one, (start, stop) in work.ranges.items()
        if one == name
    )


def _cell_bar(
    plan: Plan,
    name: str,
    number: int,
    count: int,
    ranges: dict[str, tuple[int, int]],
    x: float,
    y: float,
    side: float,
    height: float,
) -> str:
    """Fill a core by its share of the largest; the colour has the same scale as the height."""
    start, stop = ranges.get(name, (0, 0))
    share = (stop - start) / max(_largest(plan, name), 1)
    width, filled, colour = side / count, height * share, f"load c{number % COLOURS}"
    place = x + number * width
    return element(
        "rect",
        x=place,
        y=y + height - filled,
        width=width,
        height=filled,
        fill_opacity=FULL * share,
        class_=colour,
    )

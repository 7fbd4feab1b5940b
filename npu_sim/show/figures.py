"""One picture of an answer as a file: SVG, or PNG with the optional library resvg_py.

The pictures are those of the reports, in the colours of their light mode.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from npu_sim.files.writing import write_atomically
from npu_sim.framework.execution import Result
from npu_sim.language import Text
from npu_sim.operators.timelines import work_over_time
from npu_sim.plans.answers import required
from npu_sim.plans.model import Plan, Workspace
from npu_sim.questions.limits import LimitTable
from npu_sim.show.reports.comparisons import range_picture
from npu_sim.show.reports.html import asset
from npu_sim.show.reports.pictures import (
    core_map,
    lanes,
    memory_map,
    order_strip,
    order_strips,
    workspace_map,
)
from npu_sim.status import UsageError, closest

PADDING = 8
"""Free space around a picture: marks may extend beyond their bars."""
PNG_SCALE = 2
"""Pixels of a PNG per unit of the SVG."""
FONTS = "Noto Sans, DejaVu Sans, Noto Sans CJK SC, sans-serif"
SVG, PNG = ".svg", ".png"
Pictures = Mapping[str, Callable[[], str]]
"""Functions that draw the pictures of an answer, by name."""


@dataclass(frozen=True)
class Figure:
    """A picture of an answer, from ``answer.figure(name)``; notebooks show it.

    A plan has ``cores``, ``memory``, ``workspace`` and ``timeline``; so have answers with a plan. A
    run also has one for every output that can differ between runs, by its name. Limits of one
    argument have ``limits``.
    """

    name: str
    """Name of the picture."""
    svg: str
    """The picture as an SVG document."""

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file, whole or not at all: SVG or PNG by the ending.

        Raises UsageError for another ending, for PNG without resvg_py, and for a file that cannot
        be written.
        """
        file = Path(path)
        require_ending(file)
        data = self.svg.encode() if file.suffix.lower() == SVG else _png(self.svg)
        write_atomically(file, lambda opened: opened.write(data), "figure")
        return file


def require_ending(file: Path) -> None:
    """Raise UsageError when the ending of a file is neither ``.svg`` nor ``.png``."""
    if file.suffix.lower() not in (SVG, PNG):
        message = Text("figure = {file}: the ending is neither .svg nor .png", file=file)
        raise UsageError("figure", message, "cores.svg")


def named_figure(answer: Any, pictures: Pictures, name: str) -> Figure:
    """Return a picture of an answer by its name.

    Raises UsageError with the names of all pictures for an unknown one.
    """
    if name not in pictures:
        kind = type(answer).__name__
        message = Text("figure = {name}: {kind} has no such picture", name=repr(name), kind=kind)
        hint = "it has none"
        if pictures:
            near = closest(name, pictures)
            hint = Text("pictures: {names}{near}", names=", ".join(pictures), near=near)
        raise UsageError("figure", message, hint)
    return Figure(name, standalone(pictures[name]()))


def pictures_of_plan(answer: Any) -> Pictures:
    """Return the pictures of an answer that has a plan; none without one."""
    return {} if answer.plan is None else plan_pictures(answer.plan)


def plan_pictures(plan: Plan) -> Pictures:
    """Return the pictures of a plan."""
    pictures: dict[str, Callable[[], str]] = dict(workspace_pictures(plan.workspace))
    if plan.memories:
        pictures = {"memory": partial(memory_map, plan.memories), **pictures}
    if plan.cores:
        pictures = {"cores": partial(core_map, plan), **pictures}
    work = work_over_time(plan)
    if work is not None:
        pictures["timeline"] = partial(lanes, work)
    return pictures


def workspace_pictures(workspace: Workspace) -> Pictures:
    """Return the picture of a workspace."""
    draw = partial(workspace_map, workspace.parts, workspace.total_bytes)
    return {"workspace": draw} if workspace.parts else {}


def result_pictures(result: Result) -> Pictures:
    """Return the pictures of a run: those of its plan, and which parts of outputs can differ."""
    strips = {strip["output"]: partial(order_strip, strip) for strip in order_strips(result)}
    return {**plan_pictures(result.plan), **strips}


def limits_pictures(table: LimitTable) -> Pictures:
    """Return the picture of legal values."""
    drawn = None if table.along else range_picture(table)
    return {} if drawn is None else {"limits": lambda: drawn.markup}


def standalone(markup: str) -> str:
    """Return a picture of a report as a document of its own, with its styles."""
    style = asset("report.css")
    colours = dict(re.findall(r"--(\w+): ([^;]+);", style.partition("}")[0]))
    rules = "".join(re.findall(r"\bsvg\s[^{}]*{[^{}]*}", style))
    rules = re.sub(r"var\(--(\w+)\)", lambda found: colours[found[1]], rules)
    sizes, _, content = markup.partition('viewBox="0 0 ')[2].partition('"')
    content = content.removesuffix("</svg>")
    width, height = (float(size) + 2 * PADDING for size in sizes.split())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="{-PADDING} {-PADDING} {width:g} {height:g}" font-size="12" '
        f'font-family="{FONTS}"><style>{rules}</style><g{content}</g></svg>\n'
    )


def _png(svg: str) -> bytes:
    """Return an SVG document as PNG with a white background."""
    return bytes(
        required("resvg_py").svg_to_bytes(svg_string=svg, background="white", zoom=PNG_SCALE)
    )

"""What the page shows of a refused call: what would run, and how far from it the call is."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from npu_sim.cores import Profile
from npu_sim.explorer.answers import section_answer
from npu_sim.explorer.state import Call, State, call_of
from npu_sim.framework.axes import Number
from npu_sim.framework.fixed_calls import fixed_call
from npu_sim.framework.operator import Operator
from npu_sim.framework.target import require_limits
from npu_sim.language import translated
from npu_sim.operators import plan
from npu_sim.plans.model import Plan
from npu_sim.questions.nearest_calls import NearestCall, nearest_calls
from npu_sim.registry import load_operator
from npu_sim.show.reports.document import Picture, Section
from npu_sim.show.reports.pictures import memory_map
from npu_sim.show.reports.svg import BAR_HEIGHT, WIDTH, element, picture
from npu_sim.status import NpuSimError

MOST_CHANGES = 8


def nearest_answer(state: State, products: Mapping[str, Profile]) -> dict[str, Any]:
    """Return the changes that make a refused call run, the nearest first, and pictures of what it is beyond.

    Parameters
    ----------
    state
        State of one pane, whose call is refused.
    products
        Products that can be chosen.
    """
    try:
        call = call_of(state, products)
    except NpuSimError as error:
        return {"changes": _mended(state, error), "sections": []}
    found = _found(call)
    changes = [
        {"key": one.axis.name, "value": _text(one.value), "path": translated(one.plan.path)}
        for one in found[:MOST_CHANGES]
    ]
    sections = [
        section for one in found if isinstance(one.axis, Number) for section in _pictures(one)
    ]
    return {
        "changes": changes or _other_products(call, products),
        "sections": [section_answer(one) for one in sections[:MOST_CHANGES]],
    }


def _mended(state: State, error: NpuSimError) -> list[dict[str, str]]:
    """Return the default in the place of a value that is none."""
    try:
        operator: Operator = load_operator(state.get("operator", ""))
        axis = operator.axis(error.argument)
    except NpuSimError:
        return []
    return [{"key": axis.name, "value": _text(axis.default), "path": ""}]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _found(call: Call) -> list[NearestCall]:
    try:
        fixed = fixed_call(load_operator(call.operator), call.arguments, call.deterministic)
        return nearest_calls(fixed, call.profile, require_limits(call.limits))
    except NpuSimError:  # tensors that no sizes explain: nothing can be varied
        return []


def _other_products(call: Call, products: Mapping[str, Profile]) -> list[dict[str, str]]:
    found = []
    for name, profile in products.items():
        made = _planned(call, profile)
        if made is not None:
            found.append({"key": "product", "value": name, "path": translated(made.path)})
    return found


def _planned(call: Call, profile: Profile) -> Plan | None:
    try:
        return plan(
            call.operator, **{**call.options, "product": profile.with_release(call.profile.release)}
        )
    except NpuSimError:
        return None


def _pictures(one: NearestCall) -> list[Section]:
    accepted = ", ".join(
        str(first) if first == last else f"{first} to {last}" for first, last in one.ranges[:3]
    )
    caption = f"{one.axis.name} = {one.now} is asked; accepted: {accepted}"
    shown = (
        [Section(f"What {one.axis.name} may be", (Picture(reach_map(one), caption),))]
        if int(one.value) >= 0 <= int(one.now)
        else []
    )
    if one.plan.memories:
        title = f"On-chip memory of one core at {one.axis.name} = {one.value}"
        shown.append(Section(title, (Picture(memory_map(one.plan.memories)),)))
    return shown


def reach_map(one: NearestCall) -> Markup:
    """Draw the legal values of a number from 0 on, and a mark at the value that is asked."""
    now, value = int(one.now), int(one.value)
    end = max(now, value) * 1.1 + 1
    parts = [element("rect", x=0, y=20, width=WIDTH, height=BAR_HEIGHT, class_="free")]
    for first, last in one.ranges:
        if first <= end:
            x = first * WIDTH / end
            parts.append(
                element(
                    "rect",
                    x=x,
                    y=20,
                    width=(min(last + 1, end) - first) * WIDTH / end,
                    height=BAR_HEIGHT,
                    class_="c0 legal",
                )
            )
    edge = now * WIDTH / end
    parts.append(element("line", x1=edge, x2=edge, y1=14, y2=26 + BAR_HEIGHT, class_="over"))
    anchor = "end" if edge > WIDTH / 2 else "start"
    parts.append(
        element(
            "text",
            text=f"{one.axis.name} = {now}",
            x=edge,
            y=10,
            class_="caption",
            text_anchor=anchor,
        )
    )
    parts.append(element("text", text="0", x=0, y=BAR_HEIGHT + 40, class_="caption"))
    parts.append(
        element(
            "text",
            text=str(value),
            x=value * WIDTH / end,
            y=BAR_HEIGHT + 40,
            class_="caption",
            text_anchor="middle",
        )
    )
    return picture(
        BAR_HEIGHT + 46, parts, f"{one.axis.name} = {now}, nearest accepted value {value}"
    )

"""Answer to a refused call: the nearest calls that run, and its distance from them."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from markupsafe import Markup

from npu_sim.cores import Profile
from npu_sim.explorer.answers import section_answer
from npu_sim.explorer.state import Call, State, call_of
from npu_sim.framework.axes import Number
from npu_sim.framework.fixed_calls import fixed_call
from npu_sim.framework.operator import Operator
from npu_sim.language import Text, joined, translated
from npu_sim.operators import plan
from npu_sim.questions.nearest_calls import NearestCall, nearest_calls
from npu_sim.registry import load_operator
from npu_sim.show.reports.document import Picture, Section
from npu_sim.show.reports.pictures import memory_map
from npu_sim.show.reports.svg import BAR_HEIGHT, WIDTH, bar, caption, mark, picture
from npu_sim.status import NpuSimError

MOST_CHANGES = 8
"""Maximum number of changes, and of pictures, that are listed."""


def nearest_answer(state: State, products: Mapping[str, Profile]) -> dict[str, Any]:
    """Return the changes that make a refused call run, nearest first, with pictures.

    - ``state``: state of one pane.
    - ``products``: products that can be chosen.
    """
    try:
        call = call_of(state, products)
    except NpuSimError as error:
        return {"changes": _default_change(state, error), "sections": []}
    nearest = _nearest(call)
    changes = [
        {"key": near.axis.name, "value": _text(near.value), "path": translated(near.plan.path)}
        for near in nearest[:MOST_CHANGES]
    ]
    numbers = (near for near in nearest if isinstance(near.axis, Number))
    sections = [section for near in numbers for section in _pictures(near)]
    return {
        "changes": changes or _other_products(call, products),
        "sections": [section_answer(section) for section in sections[:MOST_CHANGES]],
    }


def _default_change(state: State, error: NpuSimError) -> list[dict[str, str]]:
    """Return the change of an invalid value to its default."""
    try:
        operator: Operator = load_operator(state.get("operator", ""))
        axis = operator.axis(error.argument)
    except NpuSimError:
        return []
    return [{"key": axis.name, "value": _text(axis.default), "path": ""}]


def _text(value: Any) -> str:
    """Return a value as the page writes it: ``true`` for True."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _nearest(call: Call) -> list[NearestCall]:
    try:
        fixed = fixed_call(load_operator(call.operator), call.arguments, call.target.deterministic)
        return nearest_calls(fixed, call.target.profile, call.target.limits)
    except NpuSimError:  # the tensors do not follow from sizes, so no size can be varied
        return []


def _other_products(call: Call, products: Mapping[str, Profile]) -> list[dict[str, str]]:
    """Return the products on which the call runs."""
    changes = []
    for name, profile in products.items():
        device = profile.with_release(call.target.profile.release)
        with suppress(NpuSimError):
            path = plan(call.operator, **{**call.options, "product": device}).path
            changes.append({"key": "product", "value": name, "path": translated(path)})
    return changes


def _pictures(near: NearestCall) -> list[Section]:
    ranges = (
        str(first) if first == last else Text("{first} to {last}", first=first, last=last)
        for first, last in near.ranges[:3]
    )
    accepted = joined(ranges, ", ")
    now = Text(
        "now {name} = {now}; accepted: {accepted}", near.axis, now=near.now, accepted=accepted
    )
    shown = []
    if min(int(near.value), int(near.now)) >= 0:
        title = Text("Legal values of {name}", near.axis)
        shown.append(Section(title, (Picture(legal_values_map(near), now),)))
    if near.plan.memories:
        title = Text("On-chip memory of one core at {name} = {value}", near.axis, value=near.value)
        shown.append(Section(title, (Picture(memory_map(near.plan.memories)),)))
    return shown


def legal_values_map(near: NearestCall) -> Markup:
    """Draw the legal values of a number from 0 on, and a mark at the given value."""
    now, value = int(near.now), int(near.value)
    end = max(now, value) * 1.1 + 1
    parts = [bar(0, 20, WIDTH, "free")]
    for first, last in near.ranges:
        if first <= end:
            width = (min(last + 1, end) - first) * WIDTH / end
            parts.append(bar(first * WIDTH / end, 20, width, "c0 legal"))
    edge = now * WIDTH / end
    anchor, y = "end" if edge > WIDTH / 2 else "start", BAR_HEIGHT + 40
    parts += [
        mark(edge, 14),
        caption(f"{near.axis.name} = {now}", 10, edge, anchor),
        caption("0", y),
        caption(str(value), y, value * WIDTH / end, "middle"),
    ]
    label = Text("{name} = {now}, nearest accepted value {value}", near.axis, now=now, value=value)
    return picture(BAR_HEIGHT + 46, parts, label)

"""Arguments, axes and refusals of RotaryPositionEmbedding and its gradient.

Source: specification pages ``rotary_position_embedding`` and ``rotary_position_embedding_grad``.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

from npu_sim.framework.vocabulary import (
    FLOAT_DTYPES,
    AclnnError,
    Attribute,
    Axis,
    Inspection,
    Number,
    Sizes,
    Status,
    TensorSpec,
    Text,
    Word,
    checks,
    shape_text,
)
from npu_sim.tiling import rotary_position_embedding as tiler

MOST_DOCUMENTED = 1000
"""B and N are below this in half, B*N in interleave (page, "Contract" 6)."""


def x_axes(arguments: Mapping[str, Any]) -> str:
    """Return the axes of x: four, or three if a tensor of the call has three."""
    return "x1 x2 dim" if _has_three(arguments) else "x0 x1 x2 dim"


def cos_axes(arguments: Mapping[str, Any]) -> str:
    """Return the axes of cos and sin."""
    return "cos1 cos2 dim" if _has_three(arguments) else "cos0 cos1 cos2 dim"


def _has_three(arguments: Mapping[str, Any]) -> bool:
    given = (arguments.get(name) for name in ("x", "dy", "cos", "sin"))
    ranks = [spec.rank for spec in given if isinstance(spec, TensorSpec)]
    return ranks[:1] == [3]


def first_axis(arguments: Mapping[str, Any]) -> int:
    """Return the axis of samples: the first."""
    return 0


def bind_axes(call: Inspection) -> None:
    """Set the sizes from the shapes as the planner reads them, whatever their ranks.

    All axes of an empty tensor are 0. No other axis is: the ranks are refused later.
    """
    shape, cos = call.specs[call.operator.inputs[0].name].shape, call.specs["cos"].shape
    axes, cos_axes = (
        tuple(axis or 1 for axis in read) if prod(given) else (0, 0, 0)
        for given, read in zip((shape, cos), tiler.axes_of(shape, cos), strict=True)
    )
    names = ("x0", "x1", "x2", "cos0", "cos1", "cos2")
    sizes = dict(zip(names, (*axes, *cos_axes), strict=True))
    mode = tiler.as_32_bits(int(call.arguments.mode))
    call.sizes = Sizes({**sizes, "dim": max((*shape[-1:], *cos[-1:]), default=1), "mode": mode})


SHAPE_RULES: Mapping[str, tuple[str, str]] = {
    "mode": ("mode = {mode} is out of range", "mode 0 (half) or 1 (interleave)"),
    "broadcast": (
        "cos {cos} does not fit {name} {x}",
        "each axis of cos but the last: 1, or that of {name}",
    ),
    "rank_of_cos": (
        "cos {cos} does not fit {name} {x}",
        "{rank} axes, the last {dim}; each other axis 1 or that of {name}",
    ),
    "rank": (
        "{name} is {x}, cos is {cos}, sin is {sin}: all have four axes, or all have three",
        "four axes, such as (B, S, N, D)",
    ),
    "d_limit": ("D = {dim} is beyond what half takes", "D below 896"),
    "d_odd": ("D = {dim} is odd", "an even D"),
    "cos_sin_differ": ("cos is {cos}, sin is {sin}: they have the same shape", "sin: {cos}"),
    "d_differ": (
        "cos has {cos_dim} columns, {name} {dim}: cos and sin have D columns in both modes",
        "cos and sin with {dim} columns",
    ),
    "x_differs": ("x does not have the shape {x} of dy", "x: {x}"),
}
"""Message and hint of what the planner refuses before it plans."""


def refuse_shape(call: Inspection, rule: str, first: str, status: Status) -> AclnnError:
    """Return the refusal of shapes or mode by the name of its rule."""
    x, cos, sin = (call.specs[name].shape for name in (first, "cos", "sin"))
    is_other_rank = rule == "broadcast" and len(x) != len(cos)
    message, hint = SHAPE_RULES["rank_of_cos" if is_other_rank else rule]
    blamed = {"mode": "mode", "cos_sin_differ": "sin", "x_differs": "x"}.get(
        rule, first if rule in ("d_limit", "d_odd") else "cos"
    )
    return AclnnError(
        status,
        blamed,
        message,
        hint,
        name=first,
        x=shape_text(x),
        cos=shape_text(cos),
        sin=shape_text(sin),
        dim=(0, *x)[-1],
        cos_dim=(0, *cos)[-1],
        rank=len(x),
        mode=int(call.arguments.mode),
    )


CONTIGUOUS_OUTPUTS = checks.ContiguousOutputs(
    lambda output: Text(
        "{name} is not contiguous: documents do not allow it, and from release 9.0 on it stays "
        "unwritten (result_not_written)",
        name=output.name,
    )
)
"""Page, "Contract" 7."""
MODES = {"half": 0, "interleave": 1}
"""Modes by their names in torch_npu."""
MODE_ATTRIBUTE = Attribute("mode", int, "0: half, 1: interleave", default=0, words=tuple(MODES))


def axes_named(tensor: str) -> tuple[Axis, ...]:
    """Return the axes of the operator or its gradient, whose first tensor is ``tensor``."""
    return (
        Word("dtype", "dtype of all tensors", FLOAT_DTYPES, "bfloat16"),
        Number("mode", "0: half, 1: interleave", 0, high=3),
        Number("x0", Text("first axis of {name}", name=tensor), 4096, unit="row", read="1"),
        Number("x1", Text("second axis of {name}", name=tensor), 1, unit="row"),
        Number("x2", Text("third axis of {name}", name=tensor), 16, unit="row"),
        Number("cos0", "first axis of cos and sin", 4096, unit="row", read="1"),
        Number("cos1", "second axis of cos and sin", 1, unit="row"),
        Number("cos2", "third axis of cos and sin", 1, unit="row"),
        Number("dim", "columns D", 128, unit="column", aliases=("columns", "D")),
    )

"""The shapes of a RmsNormGrad call, and what may be wrong with them.

Source: specification page ``rms_norm_grad``, section "Contract" 3; the checks that the product's raw planner makes too.
"""

from math import prod
from typing import NamedTuple

from npu_sim.numbers.shapes import shape_text

Shape = tuple[int, ...]

MAX_RANK = 8
"""Highest rank of any tensor (product document, "shape支持1-8维度")."""


class Shapes(NamedTuple):
    """Shapes of all six tensors."""

    dy: Shape
    x: Shape
    rstd: Shape
    gamma: Shape
    dx: Shape
    dgamma: Shape

    @property
    def leading(self) -> Shape:
        """Axes of x that gamma does not have."""
        return self.x[: len(self.x) - len(self.gamma)]

    @property
    def rows(self) -> int:
        """Rows of x after folding."""
        return prod(self.leading)

    @property
    def columns(self) -> int:
        """Columns of x after folding."""
        return prod(self.gamma)


class Fault(NamedTuple):
    """A shape that breaks the contract: the argument, what is wrong, and what would be right."""

    argument: str
    message: str
    hint: str


def shape_fault(shapes: Shapes) -> Fault | None:
    """Return the first shape that breaks the contract; None when all are right."""
    return (
        _rank_fault(shapes)
        or _equality_fault(shapes)
        or _rstd_fault(shapes)
        or _empty_fault(shapes)
    )


def _rank_fault(shapes: Shapes) -> Fault | None:
    for name in ("x", "gamma"):
        rank = len(getattr(shapes, name))
        if not 1 <= rank <= MAX_RANK:
            return Fault(name, f"{name} has rank {rank}", f"rank 1 to {MAX_RANK}")
    if len(shapes.gamma) > len(shapes.x):
        message = f"gamma has rank {len(shapes.gamma)}, more than x, which has rank {len(shapes.x)}"
        return Fault(
            "gamma",
            message,
            f"gamma has the last axes of x, {shape_text(shapes.x)}: at most {len(shapes.x)}",
        )
    return None


def _equality_fault(shapes: Shapes) -> Fault | None:
    for name, like in (("x", "dy"), ("dx", "dy"), ("dgamma", "gamma")):
        given, right = getattr(shapes, name), getattr(shapes, like)
        if given != right:
            message = f"{name} is {shape_text(given)}, {like} is {shape_text(right)}: they must have the same shape"
            return Fault(name, message, f"{name}: {shape_text(right)}")
    right = shapes.x[-len(shapes.gamma) :]
    if shapes.gamma != right:
        message = f"gamma is {shape_text(shapes.gamma)}, but x is {shape_text(shapes.x)}: gamma must be its last axes"
        return Fault("gamma", message, f"gamma: {shape_text(right)}")
    return None


def _rstd_fault(shapes: Shapes) -> Fault | None:
    leading, rstd = shapes.leading, shapes.rstd
    common = min(len(leading), len(rstd))
    if rstd[:common] == leading[:common] and prod(rstd) == prod(leading):
        return None
    message = (
        f"rstd is {shape_text(rstd)}, but x without the axes of gamma is {shape_text(leading)}"
    )
    return Fault("rstd", message, f"rstd: {shape_text(leading)}, axes of size 1 may follow")


def _empty_fault(shapes: Shapes) -> Fault | None:
    if 0 not in shapes.dy:
        return None
    return Fault(
        "dy",
        f"dy is {shape_text(shapes.dy)}: empty tensors are not supported",
        "every axis at least 1",
    )

"""Arguments, axes and checks of SwiGlu and SwiGluGrad.

Source: specification pages ``swi_glu`` and ``swi_glu_grad``, "Contract".
"""

from collections.abc import Mapping
from typing import Any

from npu_sim.framework.vocabulary import (
    FLOAT_DTYPES,
    INVALID,
    TILING_FAILURE,
    AclnnError,
    Attribute,
    Axis,
    Derived,
    Inspection,
    MessageAndHint,
    Number,
    Text,
    Word,
    align,
    checks,
    joined,
    system_workspace,
)
from npu_sim.tiling import swi_glu as tiler
from npu_sim.tiling.common import MAX_RANK

LAST = -1
"""Default of dim."""


def whole(arguments: Mapping[str, Any]) -> str:
    """Return the axes of x: rows, then the axis that is split, then axes within it."""
    return _axes(arguments, "2*")


def half(arguments: Mapping[str, Any]) -> str:
    """Return the axes of a tensor whose axis ``dim`` is half as long as that of x."""
    return _axes(arguments, "")


def _axes(arguments: Mapping[str, Any], times: str) -> str:
    dim = arguments.get("dim", LAST)
    is_axis = type(dim) is int and -MAX_RANK <= dim < MAX_RANK
    if not is_axis or dim == LAST:
        return f"row* {times}col"
    if dim < 0:
        return f"row* {times}split inner{{{-dim - 1}}}"
    return f"row{{{dim}}} {times}split inner*"


def sample_axis(arguments: Mapping[str, Any]) -> int | None:
    """Return the axis of samples: the first, unless it is split."""
    return None if arguments["dim"] in (0, -arguments["x"].rank) else 0


def check_dim(call: Inspection) -> None:
    """Check that dim is an axis of x (page, "Contract" 3); rank 0 is refused by the next check."""
    dim, rank = int(call.arguments.dim), call.specs["x"].rank
    if rank and not -rank <= dim < rank:
        raise AclnnError(
            INVALID,
            "dim",
            "dim = {dim} is no axis of x, which has {rank}; by the public sources a device returns "
            "561002, as the planner is the first to look at dim",
            "{low} <= dim <= {high}",
            dim=dim,
            rank=rank,
            low=-rank,
            high=rank - 1,
        )


def check_even(call: Inspection) -> None:
    """Check that the axis can be halved (page, "Contract" 5 and "Warnings")."""
    x, dim = call.specs["x"], int(call.arguments.dim)
    if x.shape[dim] % 2 == 0:
        return
    message: str = Text("x {x} has an odd axis dim = {dim}", x=x, dim=dim)
    behind = x.shape[dim % x.rank :]
    if any(size % 2 == 0 for size in behind):
        planned = Text(
            "the planner of A2 and A3 takes it, as the axes from dim on have an even product; it "
            "splits rows within the axis, and writes behind the end of out (odd_split_axis)"
        )
        message = joined((message, planned), ": ")
    raise AclnnError(
        TILING_FAILURE, "x", message, "an even size, such as {size}", size=x.shape[dim] + 1
    )


def sizes_message(call: Inspection) -> MessageAndHint:
    """Return message and hint for sizes that the Atlas inference series does not take."""
    size, step = call.specs["x"].itemsize, tiler.INFERENCE_ROW_BYTES
    message = Text(
        "half a row of x has {col} elements of {size} bytes, in {row} rows; {title} takes no empty "
        "x, and only multiples of {step} bytes",
        col=call.size("col"),
        row=call.size("row"),
        size=size,
        title=call.profile.product.title,
        step=step,
    )
    nearest = align(max(call.size("col") * size, 1), step) // size
    return message, Text(
        "{nearest} elements, or any multiple of {least}", nearest=nearest, least=step // size
    )


DENSE_OUTPUT = checks.ContiguousOutputs(
    lambda output: Text(
        "{name} is not contiguous; the product does not look at its strides, and writes it densely "
        "from its first element on",
        name=output.name,
    )
)
"""Page, "Contract"."""
DIM = Attribute("dim", int, "axis of x that is split into halves", LAST)
AXES: tuple[Axis, ...] = (
    Word("dtype", "dtype of all tensors", FLOAT_DTYPES, "bfloat16"),
    Number(
        "col",
        "columns: half the product of the axes of x from dim on",
        3072,
        unit="column",
        aliases=("columns", "cols"),
        read="split * inner",
    ),
    Number("row", "rows: product of the axes before dim", 4096, unit="row", aliases=("rows",)),
)
DERIVED = (Derived("split", "col"), Derived("inner", "max(col // max(split, 1), 1)"))
"""Half of the axis dim, and the product of the axes behind it, where dim is not the last axis."""
ASSUMED = (system_workspace("swi_glu, Tiling"),)

"""RotaryPositionEmbedding: x*cos + rot(x)*sin.

Source: product document aclnnRotaryPositionEmbedding; specification page
``rotary_position_embedding``. The shapes of the gradient are here too.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    FLOAT_DTYPES,
    INNER_NULL_POINTER,
    NPU_ARCH_ATLAS_INFERENCE,
    SYSTEM_WORKSPACE_BYTES,
    TILING_FAILURE,
    AclnnError,
    Argument,
    Assumed,
    Attribute,
    Axis,
    Device,
    Evidence,
    Inspection,
    Number,
    Operator,
    Output,
    Sizes,
    Status,
    Tensor,
    TensorSpec,
    Text,
    Word,
    ceil_div,
    checks,
    shape_text,
)
from npu_sim.status import NotModelledError
from npu_sim.tiling import rotary_position_embedding as tiler
from npu_sim.tiling.common import Shape

MOST_DOCUMENTED = 1000
"""B and N are below this in half, B*N in interleave (page, "Contract" 6)."""
NO_BLOCKS, DOCUMENTED = len(tiler.REFUSALS), len(tiler.REFUSALS) + 1
"""Codes of refusals that are not the planner's: nothing would be computed, a documented limit."""
MODE, BROADCAST, D_LIMIT, D_ODD = map(
    tiler.REFUSALS.index, ("mode", "broadcast", "d_limit", "d_odd")
)


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


def contract(row: Any, device: Device) -> int:
    """Return the code of what the product refuses of sizes and mode; 0 for nothing."""
    is_documented, is_half = row.limits == 0, row.mode != tiler.INTERLEAVE
    if row.mode < 0 or row.mode >= tiler.MODES or (is_documented and row.mode > tiler.INTERLEAVE):
        return MODE
    if row.cos0 not in (1, row.x0) or row.cos1 not in (1, row.x1) or row.cos2 not in (1, row.x2):
        return BROADCAST
    if row.dim >= tiler.MOST_COLUMNS and (
        is_documented or (is_half and row.dim > tiler.MOST_COLUMNS)
    ):
        return D_LIMIT
    if row.dim % 2 != 0:
        return D_ODD
    found = tiler.refusal(row, device)
    if found != 0:
        return found
    if is_half:
        layout = tiler.half_layout(row)
        if layout.lines == 0:
            return NO_BLOCKS
        if is_documented and max(layout.first, layout.second) >= MOST_DOCUMENTED:
            return DOCUMENTED
        return 0
    heads = tiler.heads_of(row)
    is_large = heads.batches * heads.heads >= MOST_DOCUMENTED
    return DOCUMENTED if is_documented and is_large else 0


def accepts_as_step(row: Any, device: Device, rules: Any) -> bool:
    """Return whether a call of several steps passes; true at releases of a single kernel."""
    return rules.inner_step == 0 or contract(row, device) == 0


def accepts_alone(row: Any, device: Device, rules: Any) -> bool:
    """Return whether a call of a single kernel passes; true at releases of several steps."""
    return rules.inner_step != 0 or contract(row, device) == 0


def refused_status(call: Inspection) -> Status:
    """Return the status of a refusal below the aclnn call (page, "Contract")."""
    return INNER_NULL_POINTER if call.rules.inner_step else TILING_FAILURE


def bind_axes(call: Inspection, first: str = "x") -> None:
    """Set the sizes from the shapes as the planner reads them, whatever their ranks."""
    shape, cos = call.specs[first].shape, call.specs["cos"].shape
    axes, cos_axes = tiler.axes_of(shape, cos)
    if prod(shape) == 0:
        axes = (0, 0, 0)
    names = ("x0", "x1", "x2", "cos0", "cos1", "cos2")
    sizes = dict(zip(names, (*axes, *cos_axes), strict=True))
    mode = tiler.as_32_bits(int(call.arguments.mode))
    call.sizes = Sizes({**sizes, "dim": (*shape, 0)[len(shape) - 1] if shape else 0, "mode": mode})


SHAPE_RULES: Mapping[str, tuple[str, str]] = {
    "mode": ("mode = {mode} is out of range", "mode 0 (half) or 1 (interleave)"),
    "broadcast": (
        "cos is {cos}, {name} is {x}: each axis of cos but the last is 1 or that of {name}",
        "1, or the size of {name}",
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
    message, hint = SHAPE_RULES[rule]
    x, cos, sin = (call.specs[name].shape for name in (first, "cos", "sin"))
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
        mode=int(call.arguments.mode),
    )


def check_inference(call: Inspection) -> None:
    """Refuse the Atlas inference series, which has the operator from 9.0 on, is not modelled."""
    is_inference = call.profile.npu_arch == NPU_ARCH_ATLAS_INFERENCE
    if is_inference and call.rules.inner_step:
        raise NotModelledError(
            "product",
            "{title} has the operator from release 9.0 on; npu_sim does not model it there yet",
            "choose another product",
            title=call.profile.product.title,
        )


def check_shapes(call: Inspection) -> None:
    """Check mode and shapes in the order of the planner (page, "Contract" 4 and 5)."""
    shapes: list[Shape] = [call.specs[name].shape for name in ("x", "cos", "sin")]
    rule = tiler.shape_refusal(shapes[0], shapes[1], shapes[2], int(call.arguments.mode))
    if not rule and call.limits == "documented" and call.size("mode") > tiler.INTERLEAVE:
        rule = "mode"
    if rule:
        raise refuse_shape(call, rule, "x", refused_status(call))


def check_dtypes(call: Inspection) -> None:
    """Check that all tensors have one floating-point dtype of the product."""
    dtype, allowed = call.specs["x"].dtype, call.profile.product.dtypes
    for name, spec in call.specs.items():
        if spec.dtype != dtype or dtype not in allowed:
            raise AclnnError(
                refused_status(call),
                name,
                "{name} is {dtype}, x is {expected}: all tensors have one dtype",
                "one of: {allowed}",
                name=name,
                dtype=spec.dtype,
                expected=dtype,
                allowed=", ".join(allowed),
            )


def refusal_message(call: Inspection) -> tuple[str, str]:
    """Return message and hint of what the planner refuses of sizes."""
    row, code = call.row, contract(call.row, call.device)
    cos, x = call.specs["cos"], call.specs["x"]
    if code < len(tiler.REFUSALS) and (rule := tiler.REFUSALS[code]) in SHAPE_RULES:
        error = refuse_shape(call, rule, "x", TILING_FAILURE)
        return error.message, error.hint
    if code in (tiler.BNSD_ALIGNED, tiler.BNSD_UNALIGNED):
        return bnsd_message(row, code, call.device)
    if code == tiler.LAYOUT:
        return Text("the planner has no plan for cos {cos} with x {x}", cos=cos, x=x), Text(
            "expand cos to the shape of x, or repeat it along other axes, as (1, S, 1, D) for x "
            "(B, S, N, D)"
        )
    if code == tiler.UB:
        return Text("D = {dim} does not fit the Unified Buffer", dim=row.dim), "a smaller D"
    if code == NO_BLOCKS:
        return Text(
            "cos {cos} has one row for x {x}: the product plans no core, and computes nothing "
            "(no_blocks)",
            cos=cos,
            x=x,
        ), Text("expand cos along one axis")
    return Text(
        "x {x} with cos {cos} has 1000 or more batches or heads, a documented limit", x=x, cos=cos
    ), Text("{hardware} allows more", hardware=Argument("limits", "hardware"))


def smallest_positions(row: Any, code: int, device: Device) -> int:
    """Return the smallest S with which a call in BNSD passes."""
    rows = int(row.x0 * row.x1)
    if code == tiler.BNSD_ALIGNED:
        return ceil_div(rows, tiler.BNSD_ROWS)
    return (2 * rows - 1) * device.vector_cores + 1


def bnsd_message(row: Any, code: int, device: Device) -> tuple[str, str]:
    """Return message and hint of the refusal "B * N is large or D is not aligned"."""
    fields = {"rows": row.x0 * row.x1, "positions": row.x2, "dim": row.dim}
    if code == tiler.BNSD_ALIGNED:
        message = Text(
            "BNSD with cos (1, 1, S, D): B*N = {rows} exceeds 8*S, S = {positions}; the product "
            'says "B * N is large or D is not aligned" (bnsd_aligned)',
            **fields,
        )
    else:
        message = Text(
            "BNSD with cos (1, 1, S, D): D = {dim} is below 80, half of it is not whole blocks of "
            "32 bytes, and 2*B*N = {twice} exceeds the {lines} rows of a core, S = {positions} on "
            '{cores} cores; the product says "B * N is large or D is not aligned" (bnsd_unaligned)',
            **fields,
            twice=2 * row.x0 * row.x1,
            lines=ceil_div(row.x2, device.vector_cores),
            cores=device.vector_cores,
        )
    return message, Text(
        "what runs: S of at least {least}; cos expanded to (B, 1, S, D); one call for every batch; "
        "or x as (B, S, N, D) with cos (1, S, 1, D)",
        least=smallest_positions(row, code, device),
    )


CONTIGUOUS_OUTPUTS = checks.ContiguousOutputs(
    lambda output: Text(
        "{name} is not contiguous: documents do not allow it, and from release 9.0 on it stays "
        "unwritten (result_not_written)",
        name=output.name,
    )
)
"""Page, "Contract" 7."""
MODE_ATTRIBUTE = Attribute("mode", int, "0: half, 1: interleave", default=0)


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


def assumed(page: str) -> tuple[Assumed, ...]:
    """Return what the planner assumes of a chip."""
    source = Text("specification page {page}, Tiling", page=page)
    return (Assumed("system_workspace_bytes", SYSTEM_WORKSPACE_BYTES, source),)


def fits(accepts: Callable[..., bool], status: Status) -> checks.Fits:
    """Return the check of sizes with one status."""
    return checks.Fits(accepts, "cos", refusal_message, status)


OPERATOR = Operator(
    name="rotary_position_embedding",
    title="RotaryPositionEmbedding",
    summary="Rotate pairs of columns by the angles of cos and sin, as the product does.",
    arguments=(
        Tensor("x", x_axes, "input, (x0, x1, x2, D) or (T, N, D)", "dtype", samples=first_axis),
        Tensor("cos", cos_axes, "cosines, D columns, other axes 1 or those of x", "dtype"),
        Tensor("sin", cos_axes, "sines, like cos", "dtype"),
        MODE_ATTRIBUTE,
        Output(
            "out", x_axes, "x*cos + rot(x)*sin, like x", "dtype", samples=first_axis, result="y"
        ),
    ),
    axes=axes_named("x"),
    checks=(
        checks.Given(),
        check_inference,
        checks.Supported(),
        checks.Attributes("mode"),
        bind_axes,
        checks.NothingToDo("x0 * x1 * x2 * dim == 0"),
        checks.Formats(checks.PLAIN_FORMATS),
        CONTIGUOUS_OUTPUTS,
        check_shapes,
        check_dtypes,
        checks.Like("out", "x", TILING_FAILURE),
        fits(accepts_as_step, INNER_NULL_POINTER),
        fits(accepts_alone, TILING_FAILURE),
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile,
    assumed=assumed("rotary_position_embedding"),
    evidence=Evidence.EXACT,
    families_not_modelled=(ASCEND_950,),
    package=__package__,
)

"""RotaryPositionEmbedding: x*cos + rot(x)*sin.

Source: product document aclnnRotaryPositionEmbedding; specification page
``rotary_position_embedding``.
"""

from collections.abc import Callable
from typing import Any

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    INNER_NULL_POINTER,
    NPU_ARCH_ATLAS_INFERENCE,
    TILING_FAILURE,
    AclnnError,
    Argument,
    Derived,
    Device,
    Evidence,
    Inspection,
    MessageAndHint,
    Operator,
    Output,
    Status,
    Tensor,
    Text,
    ceil_div,
    checks,
    system_workspace,
)
from npu_sim.operators.shared.rotations.declaration import (
    CONTIGUOUS_OUTPUTS,
    MODE_ATTRIBUTE,
    MOST_DOCUMENTED,
    SHAPE_RULES,
    axes_named,
    bind_axes,
    cos_axes,
    first_axis,
    refuse_shape,
    x_axes,
)
from npu_sim.tiling import rotary_position_embedding as tiler
from npu_sim.tiling.common import Shape

NO_BLOCKS, DOCUMENTED = len(tiler.REFUSALS), len(tiler.REFUSALS) + 1
"""Codes of refusals that are not the planner's: nothing would be computed, a documented limit."""
MODE, BROADCAST, D_LIMIT, D_ODD = map(
    tiler.REFUSALS.index, ("mode", "broadcast", "d_limit", "d_odd")
)


def contract(row: Any, device: Device) -> int:
    """Return the code of what the product refuses of sizes and mode; 0 for nothing."""
    is_documented, is_half = row.limits == 0, row.mode != tiler.INTERLEAVE
    if row.mode < 0 or row.mode >= tiler.MODES or (is_documented and row.mode > tiler.INTERLEAVE):
        return MODE
    if not tiler.is_repeated(row):
        return BROADCAST
    if row.dim >= tiler.MOST_COLUMNS and (
        is_documented or (is_half and row.dim > tiler.MOST_COLUMNS)
    ):
        return D_LIMIT
    if row.dim % 2 != 0 and (is_documented or is_half):
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
    # Of three axes (T, N, D), the document limits N alone.
    groups = row.x2 if row.x_rank == 3 else heads.batches * heads.heads
    return DOCUMENTED if is_documented and groups >= MOST_DOCUMENTED else 0


def accepts_as_step(row: Any, device: Device, rules: Any) -> bool:
    """Return whether a call of several steps passes; true at releases of a single kernel."""
    return rules.inner_step == 0 or contract(row, device) == 0


def accepts_alone(row: Any, device: Device, rules: Any) -> bool:
    """Return whether a call of a single kernel passes; true at releases of several steps."""
    return rules.inner_step != 0 or contract(row, device) == 0


def refused_status(call: Inspection) -> Status:
    """Return the status of a refusal below the aclnn call (page, "Contract")."""
    return INNER_NULL_POINTER if call.rules.inner_step else TILING_FAILURE


def check_shapes(call: Inspection) -> None:
    """Check mode and shapes in the order of the planner (page, "Contract" 4 and 5)."""
    shapes: list[Shape] = [call.specs[name].shape for name in ("x", "cos", "sin")]
    rule = tiler.shape_refusal(shapes[0], shapes[1], shapes[2], int(call.arguments.mode))
    if not rule and call.limits == "documented" and call.size("mode") > tiler.INTERLEAVE:
        rule = "mode"
    if rule:
        raise refuse_shape(call, rule, "x", refused_status(call))


def check_out(call: Inspection) -> None:
    """Check that out has the shape of x."""
    checks.Like("out", "x", refused_status(call))(call)


def check_dtypes(call: Inspection) -> None:
    """Check that all tensors have one floating-point dtype of the product."""
    dtype, allowed = call.specs["x"].dtype, call.profile.product.dtypes
    if dtype not in allowed:
        raise AclnnError(
            refused_status(call),
            "x",
            "{name} is {dtype}, which {where} does not support",
            "supported: {allowed}",
            name="x",
            dtype=dtype,
            where=call.operator.title,
            allowed=", ".join(allowed),
        )
    for name, spec in call.specs.items():
        if spec.dtype != dtype:
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


def refusal_message(call: Inspection) -> MessageAndHint:
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


def bnsd_message(row: Any, code: int, device: Device) -> MessageAndHint:
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
    derived=(Derived("x_rank", "4", lambda specs: specs["x"].rank),),
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.Attributes("mode"),
        bind_axes,
        checks.NothingToDo("x0 * x1 * x2 * dim == 0"),
        checks.Formats(checks.PLAIN_FORMATS),
        CONTIGUOUS_OUTPUTS,
        check_shapes,
        check_dtypes,
        check_out,
        fits(accepts_as_step, INNER_NULL_POINTER),
        fits(accepts_alone, TILING_FAILURE),
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile,
    assumed=(system_workspace("rotary_position_embedding, Tiling"),),
    evidence=Evidence.EXACT,
    families_not_modelled=(ASCEND_950,),
    not_modelled_since={NPU_ARCH_ATLAS_INFERENCE: "9.0"},
    package=__package__,
)

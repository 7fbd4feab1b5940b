"""RotaryPositionEmbeddingGrad: the gradients of RotaryPositionEmbedding.

Source: product document aclnnRotaryPositionEmbeddingGrad; specification page
``rotary_position_embedding_grad``.
"""

from typing import Any

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    TILING_FAILURE,
    AclnnError,
    Argument,
    Device,
    Evidence,
    Inspection,
    MessageAndHint,
    Operator,
    Output,
    Switch,
    Tensor,
    Text,
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
from npu_sim.tiling import rotary_position_embedding_grad as tiler
from npu_sim.tiling.rotary_position_embedding import INTERLEAVE, MOST_COLUMNS, is_repeated

MOST_WITH_X = 1024
"""Documented limit of B*N of half with x (page, "Contract" 5)."""
DOCUMENTED, PARTLY_EMPTY = len(tiler.REFUSALS), len(tiler.REFUSALS) + 1
"""Codes of refusals that are not the planner's: a documented limit, only some outputs empty."""
MODE, BROADCAST, D_LIMIT, D_ODD = map(
    tiler.REFUSALS.index, ("mode", "broadcast", "d_limit", "d_odd")
)


def exceeds_documents(row: Any) -> bool:
    """Return whether half has more batches or heads than documented."""
    if row.mode == INTERLEAVE:
        return False
    layout = tiler.half_layout(row)
    is_many = layout.batches >= MOST_DOCUMENTED or layout.heads >= MOST_DOCUMENTED
    return is_many or (row.has_x != 0 and layout.batches * layout.heads > MOST_WITH_X)


def overflows(row: Any, device: Device) -> bool:
    """Return whether not even one head fits the buffers of interleave (page, "Interleave")."""
    if row.mode != INTERLEAVE:
        return False
    tiling = tiler.interleaved_of(row, device).interleaved
    groups = tiling.head_number + tiling.group_number
    if groups == 0 and tiling.front_number == 0:
        return True
    limit = 2448 if tiling.layout == 1 else 2336
    return groups == 1 and row.dtype != 0 and row.dim > limit


def contract(row: Any, device: Device) -> int:
    """Return the code of what the product refuses of sizes and mode; 0 for nothing."""
    is_documented = row.limits == 0
    if row.x0 * row.x1 * row.x2 == 0 or row.cos0 * row.cos1 * row.cos2 == 0:
        return PARTLY_EMPTY
    if row.mode < 0 or row.mode > INTERLEAVE:
        return MODE
    if not is_repeated(row):
        return BROADCAST
    is_wide = is_documented or (row.mode != INTERLEAVE and row.dim > MOST_COLUMNS)
    if is_wide and row.dim >= MOST_COLUMNS:
        return D_LIMIT
    if row.dim % 2 != 0:
        return D_ODD
    found = tiler.refusal(row, device)
    if found != 0:
        return found
    if overflows(row, device):
        return tiler.UB
    return DOCUMENTED if is_documented and exceeds_documents(row) else 0


def accepts(row: Any, device: Device, rules: Any) -> bool:
    """Return whether a call passes."""
    return contract(row, device) == 0


def check_shapes(call: Inspection) -> None:
    """Check mode and shapes in the order of the planner (page, "Contract" 4)."""
    dy, cos, sin = (call.specs[name].shape for name in ("dy", "cos", "sin"))
    x = call.specs["x"].shape if "x" in call.specs else None
    rule = tiler.shape_refusal(dy, cos, sin, x, int(call.arguments.mode))
    if rule:
        raise refuse_shape(call, rule, "dy", TILING_FAILURE)


def refusal_message(call: Inspection) -> MessageAndHint:
    """Return message and hint of what the product refuses of sizes."""
    row, code = call.row, contract(call.row, call.device)
    dy, cos = call.specs["dy"], call.specs["cos"]
    if code == PARTLY_EMPTY:
        return Text(
            "dx is empty for dy {dy}, dcos and dsin are not for cos {cos}: what the product does "
            "is not described",
            dy=dy,
            cos=cos,
        ), Text("cos and sin of {dy}", dy=dy)
    if code < DOCUMENTED and (rule := tiler.REFUSALS[code]) in SHAPE_RULES:
        error: AclnnError = refuse_shape(call, rule, "dy", TILING_FAILURE)
        return error.message, error.hint
    if code == tiler.LAYOUT:
        return Text(
            "the planner has no layout for cos {cos} with dy {dy}; RotaryPositionEmbedding may "
            "take them",
            cos=cos,
            dy=dy,
        ), Text(
            "forms that run: cos (1, S, 1, D) for dy (B, S, N, D), (1, 1, S, D) for (B, N, S, D), "
            "(S, 1, 1, D) or (S, B, 1, D) for (S, B, N, D)"
        )
    layout = tiler.layout_of(row)
    fields = {"batches": layout.batches, "heads": layout.heads, "dim": row.dim}
    if code == tiler.BN_LIMIT:
        message = "interleave with B*N = {batches} * {heads}: the product takes less than 1000"
        return Text(message, **fields), Text("fewer batches a call")
    if code == tiler.UB:
        message = "D = {dim} does not fit the Unified Buffer: the kernel would exceed its buffers"
        return Text(message, **fields), Text("a smaller D")
    return Text(
        "half with B = {batches}, N = {heads}: documents allow B and N below 1000, and with x B*N "
        "of at most 1024",
        **fields,
    ), Text("{hardware} allows more", hardware=Argument("limits", "hardware"))


OPERATOR = Operator(
    name="rotary_position_embedding_grad",
    title="RotaryPositionEmbeddingGrad",
    summary="Compute the gradients of RotaryPositionEmbedding as the product does.",
    arguments=(
        Tensor(
            "dy",
            x_axes,
            "gradient of the result, (x0, x1, x2, D) or (T, N, D)",
            "dtype",
            samples=first_axis,
        ),
        Tensor("cos", cos_axes, "cosines, other axes than D 1 or those of dy", "dtype"),
        Tensor("sin", cos_axes, "sines, like cos", "dtype"),
        Tensor(
            "x",
            x_axes,
            "input of the forward operator; without it dcos and dsin are not computed",
            "dtype",
            document="xOptional",
            optional=True,
            samples=first_axis,
        ),
        MODE_ATTRIBUTE,
        Output(
            "dx", x_axes, "gradient of x, like dy", "dtype", document="dxOut", samples=first_axis
        ),
        Output(
            "dcos", cos_axes, "gradient of cos, with x", "dtype", document="dcosOut", given_with="x"
        ),
        Output(
            "dsin", cos_axes, "gradient of sin, with x", "dtype", document="dsinOut", given_with="x"
        ),
    ),
    axes=(*axes_named("dy"), Switch("has_x", "whether x is given", tensor="x")),
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.Attributes("mode"),
        checks.Dtypes("dy", checks.product_dtypes),
        checks.SameDtype("cos sin x dx dcos dsin", "dy"),
        checks.Formats(checks.PLAIN_FORMATS),
        bind_axes,
        checks.NothingToDo("(x0 * x1 * x2 == 0 and cos0 * cos1 * cos2 == 0) or dim == 0"),
        CONTIGUOUS_OUTPUTS,
        check_shapes,
        checks.Like("dx", "dy", TILING_FAILURE),
        checks.Like("dcos dsin", "cos", TILING_FAILURE),
        checks.Fits(accepts, "cos", refusal_message),
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile,
    assumed=(system_workspace("rotary_position_embedding_grad, Tiling"),),
    evidence=Evidence.EXACT,
    families_not_modelled=(ASCEND_950,),
    package=__package__,
)

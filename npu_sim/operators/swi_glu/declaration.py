"""SwiGlu: silu of one half of x times the other half.

Source: product document aclnnSwiGlu; specification page ``swi_glu``.
"""

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    NPU_ARCH_ATLAS_INFERENCE,
    TILING_FAILURE,
    Evidence,
    Inspection,
    Operator,
    Output,
    Tensor,
    checks,
)
from npu_sim.operators.shared.gated_halves.declaration import (
    ASSUMED,
    AXES,
    DENSE_OUTPUT,
    DERIVED,
    DIM,
    check_dim,
    check_even,
    half,
    sample_axis,
    sizes_message,
    whole,
)
from npu_sim.tiling import swi_glu as tiler


def check_strided(call: Inspection) -> None:
    """Refuse a strided x on the Atlas inference series up to release 8.5."""
    is_inference = call.profile.npu_arch == NPU_ARCH_ATLAS_INFERENCE
    if is_inference and call.rules.inference_copies_strided == 0:
        checks.refuse_strided(call)


OPERATOR = Operator(
    name="swi_glu",
    title="SwiGlu",
    summary="Multiply silu of one half of x with the other half, as the product does.",
    arguments=(
        Tensor(
            "x",
            whole,
            "input, (..., 2*n, ...): both halves along axis dim",
            "dtype",
            samples=sample_axis,
        ),
        DIM,
        Output(
            "out",
            half,
            "silu(first half) * second half, (..., n, ...)",
            "dtype",
            samples=sample_axis,
            result="y",
        ),
    ),
    axes=AXES,
    derived=DERIVED,
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("x", checks.product_dtypes),
        checks.SameDtype("out", "x"),
        checks.Formats(checks.PLAIN_FORMATS),
        checks.Attributes("dim"),
        check_dim,
        checks.Ranks("x", 1, status=TILING_FAILURE),
        check_even,
        checks.Shapes("x out", TILING_FAILURE),
        DENSE_OUTPUT,
        checks.Fits(tiler.inference_takes, "x", sizes_message),
        checks.NothingToDo("row * col == 0"),
        check_strided,
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile,
    assumed=ASSUMED,
    evidence=Evidence.EXACT,
    families=(ASCEND_950,),
    package=__package__,
)

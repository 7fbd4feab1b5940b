"""SwiGluGrad: the gradient of SwiGlu.

Source: product document aclnnSwiGluGrad; specification page ``swi_glu_grad``.
"""

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    TILING_FAILURE,
    Evidence,
    Inspection,
    Operator,
    Output,
    Tensor,
    checks,
)
from npu_sim.operators.swi_glu import declaration as forward
from npu_sim.tiling import swi_glu, swi_glu_grad


def check_strided(call: Inspection) -> None:
    """Refuse strided inputs up to release 8.5 (page, "Contract")."""
    if call.rules.copies_strided == 0:
        forward.refuse_strided(call)


OPERATOR = Operator(
    name="swi_glu_grad",
    title="SwiGluGrad",
    summary="Compute the gradient of SwiGlu as the product does.",
    arguments=(
        Tensor(
            "y_grad",
            forward.half,
            "gradient of the result of SwiGlu, (..., n, ...)",
            "dtype",
            samples=forward.sample_axis,
        ),
        Tensor(
            "x",
            forward.whole,
            "input of SwiGlu, (..., 2*n, ...): both halves along axis dim",
            "dtype",
            samples=forward.sample_axis,
        ),
        forward.DIM,
        Output(
            "out",
            forward.whole,
            "gradient of x, (..., 2*n, ...)",
            "dtype",
            samples=forward.sample_axis,
            result="x_grad",
        ),
    ),
    axes=forward.AXES,
    derived=forward.DERIVED,
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("y_grad", checks.product_dtypes),
        checks.SameDtype("x out", "y_grad"),
        checks.Formats(checks.PLAIN_FORMATS),
        checks.Attributes("dim"),
        forward.check_dim,
        checks.Ranks("x", 1, status=TILING_FAILURE),
        forward.check_even,
        checks.Shapes("x y_grad out", TILING_FAILURE),
        forward.DENSE_OUTPUT,
        checks.Holds("row * col >= 1", "x"),
        checks.Fits(swi_glu.inference_takes, "x", forward.sizes_message),
        check_strided,
    ),
    tiling=swi_glu.Tiling,
    tile=swi_glu_grad.tile,
    assumed=forward.ASSUMED,
    evidence=Evidence.EXACT,
    families=(ASCEND_950,),
    package=__package__,
)

"""SwiGluGrad: the gradient of SwiGlu.

Source: product document aclnnSwiGluGrad; specification page ``swi_glu_grad``.
"""

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    TILING_FAILURE,
    Evidence,
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
from npu_sim.tiling import swi_glu, swi_glu_grad

OPERATOR = Operator(
    name="swi_glu_grad",
    title="SwiGluGrad",
    summary="Compute the gradient of SwiGlu as the product does.",
    arguments=(
        Tensor(
            "y_grad",
            half,
            "gradient of the result of SwiGlu, (..., n, ...)",
            "dtype",
            samples=sample_axis,
        ),
        Tensor(
            "x",
            whole,
            "input of SwiGlu, (..., 2*n, ...): both halves along axis dim",
            "dtype",
            samples=sample_axis,
        ),
        DIM,
        Output(
            "out",
            whole,
            "gradient of x, (..., 2*n, ...)",
            "dtype",
            samples=sample_axis,
            result="x_grad",
        ),
    ),
    axes=AXES,
    derived=DERIVED,
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("y_grad", checks.product_dtypes),
        checks.SameDtype("x out", "y_grad"),
        checks.Formats(checks.PLAIN_FORMATS),
        checks.Attributes("dim"),
        check_dim,
        checks.Ranks("x", 1, status=TILING_FAILURE),
        check_even,
        checks.Shapes("x y_grad out", TILING_FAILURE),
        DENSE_OUTPUT,
        checks.Holds("row * col >= 1", "x", documented=True),
        checks.NothingToDo("row * col == 0"),
        checks.Fits(swi_glu.inference_takes, "x", sizes_message),
        checks.CopiesStrided("copies_strided"),
    ),
    tiling=swi_glu.Tiling,
    tile=swi_glu_grad.tile,
    assumed=ASSUMED,
    evidence=Evidence.EXACT,
    families=(ASCEND_950,),
    package=__package__,
)

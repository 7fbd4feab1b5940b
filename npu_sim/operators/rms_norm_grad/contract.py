"""Contract of RmsNormGrad of all products: dtypes and shapes.

Source: product document aclnnRmsNormGrad; specification page ``rms_norm_grad``.
"""

from collections.abc import Sequence

from npu_sim.cores import NPU_ARCH_A2_A3, NPU_ARCH_ASCEND_950, Profile
from npu_sim.framework.case import Inspection
from npu_sim.framework.patterns import Sizes
from npu_sim.status import TILING_FAILURE, AclnnError
from npu_sim.tiling import rms_norm_grad as tiler

DTYPE_ROWS = (
    ("float16", "float16", "float32", "float32", "float16", "float32"),
    ("bfloat16", "bfloat16", "float32", "float32", "bfloat16", "float32"),
    ("float16", "float16", "float32", "float16", "float16", "float32"),
    ("float32", "float32", "float32", "float32", "float32", "float32"),
    ("bfloat16", "bfloat16", "float32", "bfloat16", "bfloat16", "float32"),
)
"""dtypes of (dy, x, rstd, gamma, dx, dgamma) supported by A2 and A3 ("各产品支持数据类型说明")."""
MIXED_PRODUCTS = (NPU_ARCH_A2_A3, NPU_ARCH_ASCEND_950)
"""Architectures on which gamma may differ from x."""


def dtype_rows(profile: Profile) -> Sequence[Sequence[str]]:
    """Return the supported dtype combinations."""
    mixed = profile.npu_arch in MIXED_PRODUCTS
    return [
        row
        for row in DTYPE_ROWS
        if row[0] in profile.product.dtypes and (mixed or row[3] == row[0])
    ]


def check_shapes(call: Inspection, takes_no_rows: bool = False) -> None:
    """Check the shapes in the order of the product's planner and set the sizes."""
    given = {name: call.specs[name].shape for name in ("dy", "x", "rstd", "gamma")}
    implied = {"dx": given["dy"], "dgamma": given["gamma"]}  # of outputs that are not given
    shapes = tiler.Shapes(
        **given,
        **{
            name: call.specs[name].shape if name in call.specs else implied[name]
            for name in implied
        },
    )
    error = tiler.shape_error(shapes, takes_no_rows)
    if error is not None:
        raise AclnnError(TILING_FAILURE, *error)
    call.sizes = Sizes(
        {"row": shapes.rows, "col": shapes.columns}, {"row": shapes.leading, "col": shapes.gamma}
    )

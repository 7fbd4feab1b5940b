"""CrossEntropyLoss on Ascend 950: labels of int32 too, own planner and kernels.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``cross_entropy_loss_950``.
"""

from npu_sim.framework.operator import Differences
from npu_sim.framework.vocabulary import SYSTEM_WORKSPACE_BYTES, TILING_FAILURE, Assumed, checks
from npu_sim.operators.cross_entropy_loss.declaration import (
    FIRST_CHECKS,
    OPERATOR,
    check_smoothing,
    check_zloss,
)
from npu_sim.operators.shared.labelled_rows.declaration import (
    IGNORE_INDEX,
    TARGET_DTYPE,
    check_reduction,
    with_int32_labels,
)
from npu_sim.tiling.ascend_950 import cross_entropy_loss as tiler

DIFFERENCES = Differences(
    arguments=with_int32_labels(OPERATOR.arguments),
    axes=(*OPERATOR.axes, TARGET_DTYPE, IGNORE_INDEX),
    checks=(
        *FIRST_CHECKS,
        checks.Holds("C >= 1 or N == 0", "input"),
        checks.Shapes("target weight loss log_prob", TILING_FAILURE),
        check_reduction,
        check_smoothing,
        check_zloss,
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile,
    assumed=(
        Assumed(
            "system_workspace_bytes",
            SYSTEM_WORKSPACE_BYTES,
            "specification page cross_entropy_loss_950, Tiling",
        ),
    ),
    absent=("instructions",),
)

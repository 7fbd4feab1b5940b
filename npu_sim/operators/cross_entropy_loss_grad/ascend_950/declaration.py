"""Contract of CrossEntropyLossGrad on Ascend 950.

Source: specification page ``cross_entropy_loss_grad_950``.
"""

from npu_sim.framework.vocabulary import FLOAT_DTYPES, INVALID, TILING_FAILURE, checks
from npu_sim.operators.cross_entropy_loss_grad import declaration
from npu_sim.operators.shared.labelled_rows.declaration import (
    TARGET_DTYPE,
    check_reduction,
    float_dtypes,
    with_int32_labels,
)

ARGUMENTS = with_int32_labels(declaration.OPERATOR.arguments)
AXES = (*declaration.OPERATOR.axes, TARGET_DTYPE)
CHECKS = (
    checks.Given(),
    checks.Supported(),
    checks.Dtypes("grad_loss log_prob", float_dtypes),
    checks.Dtypes("target"),
    checks.Dtypes("weight"),
    checks.Dtypes("grad_zloss lse_for_zloss", FLOAT_DTYPES),
    checks.Dtypes("out", float_dtypes),
    checks.SameDtype("out", "log_prob"),
    checks.Formats(checks.ND),
    declaration.check_unsupported,
    checks.Attributes("ignore_index"),
    check_reduction,
    checks.Ranks("log_prob", 2, 2, TILING_FAILURE),
    checks.Shapes("log_prob", TILING_FAILURE),
    checks.Shapes("target weight grad_loss out", TILING_FAILURE),
    checks.SameDtype("grad_loss", "log_prob", TILING_FAILURE),
    checks.Holds("ignore_index < C or C == 0", "ignore_index", declaration.label_message, INVALID),
)

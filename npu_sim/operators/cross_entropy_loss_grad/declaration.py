"""CrossEntropyLossGrad: the gradient of the cross-entropy loss with respect to its logits.

Source: product document aclnnCrossEntropyLossGrad; specification page ``cross_entropy_loss_grad``.
"""

from npu_sim.framework import checks
from npu_sim.framework.axes import FLOAT_DTYPES
from npu_sim.framework.case import Inspection
from npu_sim.framework.operator import Operator
from npu_sim.operators.cross_entropy_loss_grad import contract
from npu_sim.operators.cross_entropy_loss_grad.plan import beyond_buffer, beyond_documented
from npu_sim.plans.answers import Evidence
from npu_sim.registry import ASCEND_950
from npu_sim.status import INVALID, TILING_FAILURE
from npu_sim.tiling import cross_entropy_loss_grad as tiler


def check_options(call: Inspection) -> None:
    """Check the reduction and refuse options that the product does not support yet; 161002."""
    contract.check_reduction(call, INVALID)
    contract.check_unsupported(call)


OPERATOR = Operator(
    name="cross_entropy_loss_grad",
    title="CrossEntropyLossGrad",
    summary=(
        "Compute the gradient of the cross-entropy loss with respect to its logits as the product "
        "does."
    ),
    arguments=contract.ARGUMENTS,
    axes=contract.AXES,
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("grad_loss log_prob", contract.float_dtypes),
        checks.Dtypes("target", ("int64",)),
        checks.Dtypes("weight", ("float32",)),
        checks.Dtypes("grad_zloss lse_for_zloss", FLOAT_DTYPES),
        checks.Dtypes("out", contract.float_dtypes),
        checks.SameDtype("grad_loss out", "log_prob"),
        checks.Formats(checks.ND),
        check_options,
        checks.Attributes("ignore_index"),
        checks.Ranks("log_prob", 2, 2, TILING_FAILURE),
        checks.Shapes("log_prob", TILING_FAILURE),
        checks.Holds("C >= 1", "log_prob"),
        checks.Shapes("target weight grad_loss out", TILING_FAILURE),
        checks.Holds("ignore_index < C", "ignore_index", contract.label_message, INVALID),
        checks.NothingToDo("N == 0"),
        checks.Holds("N < rows_below", "log_prob", beyond_documented, documented=True),
        checks.Fits(tiler.fits, "log_prob", beyond_buffer),
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile,
    evidence=Evidence.EXACT,
    empty="empty: no rows, nothing runs",
    families=(ASCEND_950,),
    package=__package__,
)

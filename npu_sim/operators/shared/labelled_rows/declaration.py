"""Contract of rows of classes with labels: dtypes and reductions.

Source: specification pages ``cross_entropy_loss`` and ``cross_entropy_loss_grad``.
"""

from collections.abc import Sequence

from npu_sim.framework.vocabulary import (
    FLOAT_DTYPES,
    TILING_FAILURE,
    AclnnError,
    Inspection,
    Profile,
    Status,
    shown,
    tip,
)
from npu_sim.tiling.cross_entropy_loss_grad import REDUCTIONS


def float_dtypes(profile: Profile) -> Sequence[str]:
    """Return the dtypes of logits and log-probabilities on a product."""
    return [dtype for dtype in FLOAT_DTYPES if dtype in profile.product.dtypes]


def check_reduction(call: Inspection, status: Status = TILING_FAILURE) -> None:
    """Refuse an unknown reduction."""
    reduction = call.arguments.reduction
    if reduction not in REDUCTIONS:
        raise AclnnError(
            status,
            "reduction",
            "reduction = {reduction} is not a reduction",
            "{tip}reduction: {reductions}",
            reduction=shown(reduction),
            reductions=", ".join(REDUCTIONS),
            tip=tip(reduction, REDUCTIONS),
        )

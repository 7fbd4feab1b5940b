"""Contract of RmsNormGrad on Ascend 950.

Source: specification page ``rms_norm_grad_950``.
"""

from functools import partial

from npu_sim.framework.vocabulary import TILING_FAILURE, Inspection, MessageAndHint, Text, checks
from npu_sim.operators.rms_norm_grad import declaration

MOST_ROWS = 2**31 - 1
"""More rows overflow fields of 32 bits (page, "Contract differences")."""


def _rows_message(call: Inspection) -> MessageAndHint:
    return Text(
        "row = {size}: fields of 32 bits overflow, what the product does then is not described",
        size=call.size("row"),
    ), f"row <= {MOST_ROWS}"


CHECKS = (
    checks.Given(),
    checks.Supported(),
    checks.Contiguous(),
    checks.DtypeTable("dy x rstd gamma dx dgamma", declaration.dtype_rows),
    checks.Formats(checks.PLAIN_FORMATS, status=TILING_FAILURE),
    partial(declaration.check_shapes, takes_no_rows=True),
    checks.Ranks("rstd", 0, status=TILING_FAILURE),
    checks.Holds("col >= 1", "gamma"),
    checks.Holds(f"row <= {MOST_ROWS}", "x", _rows_message),
)

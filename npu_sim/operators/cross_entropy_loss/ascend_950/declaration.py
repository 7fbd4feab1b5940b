"""Contract of CrossEntropyLoss on Ascend 950.

Source: specification page ``cross_entropy_loss_950``.
"""

from collections.abc import Callable
from typing import Any

from npu_sim.framework.vocabulary import INT64_MAX, TILING_FAILURE, Number, Tensor, Word, checks
from npu_sim.operators.cross_entropy_loss import declaration
from npu_sim.operators.shared.labelled_rows.declaration import check_reduction
from npu_sim.tiling.ascend_950 import cross_entropy_loss as tiler

TARGET = Tensor(
    "target",
    "N",
    "label of every row, (N,), int64 or int32",
    "target_dtype",
    samples=0,
    addresses=True,
)


ARGUMENTS = tuple(
    TARGET if argument.name == "target" else argument for argument in declaration.OPERATOR.arguments
)
AXES = (
    *declaration.OPERATOR.axes,
    Word("target_dtype", "dtype of target", tiler.TARGET_DTYPES, "int64"),
    Number(
        "ignore_index",
        "ignore_index",
        -100,
        low=-INT64_MAX - 1,
        high=INT64_MAX,
        aliases=("ignoreIndex",),
    ),
)
CHECKS: tuple[Callable[[Any], None], ...] = (
    *declaration.first_checks(tiler.TARGET_DTYPES),
    checks.Holds("C >= 1 or N == 0", "input"),
    checks.Shapes("target weight loss log_prob", TILING_FAILURE),
    check_reduction,
    declaration.check_smoothing,
    declaration.check_zloss,
)

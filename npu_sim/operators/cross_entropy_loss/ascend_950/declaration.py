"""Contract of CrossEntropyLoss on Ascend 950.

Source: specification page ``cross_entropy_loss_950``.
"""

from npu_sim.framework.vocabulary import INT64_MAX, TILING_FAILURE, Number, Tensor, Word, checks
from npu_sim.operators.cross_entropy_loss import declaration
from npu_sim.operators.shared.labelled_rows.declaration import check_reduction, float_dtypes
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
CHECKS = (
    checks.Given(),
    checks.Supported(),
    checks.Dtypes("input loss log_prob zloss lse_for_zloss", float_dtypes),
    checks.Dtypes("target", tiler.TARGET_DTYPES),
    checks.Dtypes("weight", ("float32",)),
    checks.SameDtype("loss log_prob zloss lse_for_zloss", "input"),
    checks.Formats(checks.ND),
    checks.Attributes("ignore_index return_zloss"),
    checks.Ranks("input", 2, 2, TILING_FAILURE),
    checks.Shapes("input", TILING_FAILURE),
    checks.NothingToDo("N == 0 and reduction == 0"),
    checks.Holds("C >= 1 or N == 0", "input"),
    checks.Shapes("target weight loss log_prob", TILING_FAILURE),
    check_reduction,
    declaration.check_smoothing,
    declaration.check_zloss,
)

"""Contract of rows of classes with labels: their arguments and axes, dtypes and reductions.

Source: specification pages ``cross_entropy_loss`` and ``cross_entropy_loss_grad``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from npu_sim.framework.vocabulary import (
    FLOAT_DTYPES,
    INT64_MAX,
    TILING_FAILURE,
    AclnnError,
    Attribute,
    Inspection,
    Number,
    Profile,
    Status,
    Switch,
    Tensor,
    Text,
    Verbatim,
    Word,
    shown,
    tip,
)
from npu_sim.tiling.cross_entropy_loss_grad import REDUCTIONS, TARGET_DTYPES

LABELS = (
    Tensor("target", "N", "label of every row, (N,), int64", "int64", samples=0, addresses=True),
    Tensor(
        "weight",
        "C",
        "weight of every label, (C,), fp32",
        "float32",
        document="weightOptional",
        optional=True,
    ),
    Attribute("reduction", str, "reduction of the losses of the rows: none, mean or sum", "mean"),
)
"""Arguments of labels."""
LABEL_AXES = (
    Word("reduction", "reduction", REDUCTIONS, "mean"),
    Switch("weighted", "whether weight is given", aliases=("weight_given",), tensor="weight"),
)
"""What varies with them."""
IGNORE_INDEX = Number(
    "ignore_index",
    "ignore_index",
    -100,
    low=-INT64_MAX - 1,
    high=INT64_MAX,
    aliases=("ignoreIndex",),
)
TARGET_DTYPE = Word("target_dtype", "dtype of target", TARGET_DTYPES, "int64")


def sizes(logits: str) -> tuple[Number, Number]:
    """Return the axes of sizes, those of the tensor ``logits``."""
    return (
        Number(
            "C",
            Text("classes, last axis of {tensor}", tensor=Verbatim(logits)),
            32000,
            unit="column",
            aliases=("classes", "col", "columns"),
        ),
        Number(
            "N",
            Text("rows, first axis of {tensor}", tensor=Verbatim(logits)),
            4096,
            unit="row",
            aliases=("row", "rows"),
        ),
    )


def with_int32_labels(arguments: Iterable[Tensor | Attribute]) -> tuple[Tensor | Attribute, ...]:
    """Return arguments as Ascend 950 has them: labels of int32 too."""
    text = "label of every row, (N,), int64 or int32"
    target = replace(LABELS[0], help=text, dtype="target_dtype")
    return tuple(target if argument is LABELS[0] else argument for argument in arguments)


def float_dtypes(profile: Profile) -> Sequence[str]:
    """Return the dtypes of logits and log-probabilities on a product."""
    return [dtype for dtype in FLOAT_DTYPES if dtype in profile.product.dtypes]


def outside_unit_interval(status: Status, smoothing: float, hint: str) -> AclnnError:
    """Return the error of a label_smoothing outside 0..1; the hint may contain its name."""
    return AclnnError(
        status,
        "label_smoothing",
        "{name} = {number} is out of range",
        hint,
        name="label_smoothing",
        number=f"{smoothing:g}",
    )


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

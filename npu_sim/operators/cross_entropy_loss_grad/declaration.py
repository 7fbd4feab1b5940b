"""CrossEntropyLossGrad: the gradient of the cross-entropy loss with respect to its logits.

Source: product document aclnnCrossEntropyLossGrad; specification page ``cross_entropy_loss_grad``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    FLOAT_DTYPES,
    INT64_MAX,
    INVALID,
    TILING_FAILURE,
    AclnnError,
    Attribute,
    Evidence,
    Inspection,
    Number,
    Operator,
    Output,
    Profile,
    Status,
    Switch,
    Tensor,
    TensorSpec,
    Text,
    Word,
    checks,
    closest,
    shown,
)
from npu_sim.operators.cross_entropy_loss_grad.plan import beyond_buffer, beyond_documented
from npu_sim.tiling import cross_entropy_loss_grad as tiler


def float_dtypes(profile: Profile) -> Sequence[str]:
    """Return the dtypes that the product takes for log_prob."""
    return [dtype for dtype in FLOAT_DTYPES if dtype in profile.product.dtypes]


def loss_axes(arguments: Mapping[str, Any]) -> str:
    """Return the axes of grad_loss: one element per row without reduction, else a scalar.

    torch_npu's losses have shape (1,) with mean and sum; the product takes both (page, before
    "Tiling").
    """
    if arguments["reduction"] == "none":
        return "N"
    loss = arguments.get("grad_loss")
    return "1N*" if isinstance(loss, TensorSpec) and loss.shape == (1,) else ""


def check_reduction(call: Inspection, status: Status) -> None:
    """Refuse an unknown reduction with ``status``."""
    reduction = call.arguments.reduction
    if reduction not in tiler.REDUCTIONS:
        raise AclnnError(
            status,
            "reduction",
            Text("reduction = {reduction} is not a reduction", reduction=shown(reduction)),
            Text(
                "reduction: {reductions}{hint}",
                reductions=", ".join(tiler.REDUCTIONS),
                hint=closest(reduction, tiler.REDUCTIONS),
            ),
        )


def check_unsupported(call: Inspection) -> None:
    """Refuse options that the product does not support yet; 161002."""
    arguments = call.arguments
    for name in ("label_smoothing", "lse_square_scale_for_zloss"):
        number = checks.require_float(name, arguments[name])
        if name == "label_smoothing" and not 0 <= number <= 1:
            message = Text("{name} = {number} is outside [0, 1]", name=name, number=f"{number:g}")
            raise AclnnError(
                INVALID, name, message, Text("{name} = 0: others are not supported yet", name=name)
            )
        if number != 0:
            message = Text(
                "{name} = {number} is not supported yet", name=name, number=f"{number:g}"
            )
            raise AclnnError(INVALID, name, message, f"{name} = 0")
    for name in ("grad_zloss", "lse_for_zloss"):
        if arguments[name] is not None:
            raise AclnnError(
                INVALID,
                name,
                Text("{name} is not supported yet", name=name),
                Text("leave {name} out", name=name),
            )


def label_message(call: Inspection) -> tuple[str, str]:
    """Return message and hint for an ignore_index that is not a label."""
    columns = call.size("C")
    return (
        Text(
            "ignore_index = {ignore_index} must be below C = {columns}",
            ignore_index=call.size("ignore_index"),
            columns=columns,
        ),
        Text("ignore_index <= {last_column}; negative for none", last_column=columns - 1),
    )


def check_options(call: Inspection) -> None:
    """Check the reduction and refuse options that the product does not support yet; 161002."""
    check_reduction(call, INVALID)
    check_unsupported(call)


OPERATOR = Operator(
    name="cross_entropy_loss_grad",
    title="CrossEntropyLossGrad",
    summary=(
        "Compute the gradient of the cross-entropy loss with respect to its logits as the product "
        "does."
    ),
    arguments=(
        Tensor(
            "grad_loss",
            loss_axes,
            "gradient of the loss: a scalar or (1,) for mean and sum, (N,) for none",
            "dtype",
            samples=0,
        ),
        Tensor("log_prob", "N C", "log-softmax of the forward pass, (N, C)", "dtype", samples=0),
        Tensor(
            "target", "N", "label of every row, (N,), int64", "int64", samples=0, addresses=True
        ),
        Tensor(
            "weight",
            "C",
            "weight of every label, (C,), fp32",
            "float32",
            document="weightOptional",
            optional=True,
        ),
        Attribute(
            "reduction", str, "reduction of the losses of the rows: none, mean or sum", "mean"
        ),
        Attribute(
            "ignore_index",
            int,
            "label whose rows get no gradient, below C; on Ascend 950 a negative one masks nothing",
            -100,
        ),
        Attribute("label_smoothing", float, "not supported yet: 0", 0.0),
        Attribute("lse_square_scale_for_zloss", float, "not supported yet: 0", 0.0),
        Tensor(
            "grad_zloss",
            "",
            "not supported yet: leave it out",
            "float32",
            document="gradZlossOptional",
            optional=True,
        ),
        Tensor(
            "lse_for_zloss",
            "N",
            "not supported yet: leave it out",
            "float32",
            document="lseForZlossOptional",
            optional=True,
        ),
        Output(
            "out",
            "N C",
            "gradient of the logits, (N, C)",
            "dtype",
            document="xGradOut",
            samples=0,
            result="x_grad",
        ),
    ),
    axes=(
        Word("dtype", "dtype of log_prob and grad_loss", FLOAT_DTYPES, "float32"),
        Word("reduction", "reduction", tiler.REDUCTIONS, "mean"),
        Switch("weighted", "whether weight is given", aliases=("weight_given",), tensor="weight"),
        Number(
            "ignore_index",
            "ignore_index",
            -100,
            low=-INT64_MAX - 1,
            high=INT64_MAX,
            aliases=("ignoreIndex",),
        ),
        Number(
            "C",
            "classes, last axis of log_prob",
            32000,
            unit="column",
            aliases=("classes", "col", "columns"),
        ),
        Number("N", "rows, first axis of log_prob", 4096, unit="row", aliases=("row", "rows")),
    ),
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("grad_loss log_prob", float_dtypes),
        checks.Dtypes("target", ("int64",)),
        checks.Dtypes("weight", ("float32",)),
        checks.Dtypes("grad_zloss lse_for_zloss", FLOAT_DTYPES),
        checks.Dtypes("out", float_dtypes),
        checks.SameDtype("grad_loss out", "log_prob"),
        checks.Formats(checks.ND),
        check_options,
        checks.Attributes("ignore_index"),
        checks.Ranks("log_prob", 2, 2, TILING_FAILURE),
        checks.Shapes("log_prob", TILING_FAILURE),
        checks.Holds("C >= 1", "log_prob"),
        checks.Shapes("target weight grad_loss out", TILING_FAILURE),
        checks.Holds("ignore_index < C", "ignore_index", label_message, INVALID),
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

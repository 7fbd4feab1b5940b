"""CrossEntropyLoss: log-softmax and negative log-likelihood in one kernel.

Source: product document aclnnCrossEntropyLoss; specification page ``cross_entropy_loss``.
"""

from collections.abc import Mapping
from typing import Any

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    FLOAT_DTYPES,
    TILING_FAILURE,
    AclnnError,
    Argument,
    Attribute,
    Evidence,
    Inspection,
    MessageAndHint,
    Operator,
    Output,
    Switch,
    Tensor,
    Text,
    Word,
    checks,
    shape_text,
    to_fp32,
)
from npu_sim.operators.shared.labelled_rows.declaration import (
    LABEL_AXES,
    LABELS,
    check_reduction,
    float_dtypes,
    outside_unit_interval,
    sizes,
)
from npu_sim.tiling import cross_entropy_loss as tiler


def loss_axes(arguments: Mapping[str, Any]) -> str:
    """Return the axes of the loss: (N,) without reduction, else (1,), or () where so given."""
    if arguments["reduction"] == "none":
        return "N"
    return "" if getattr(arguments.get("loss"), "shape", None) == () else "1N"


def check_smoothing(call: Inspection) -> None:
    """Refuse label smoothing outside 0..1 in fp32; nan passes (page, "Contract" 4)."""
    number = to_fp32(checks.require_float("label_smoothing", call.arguments.label_smoothing))
    checks.require_float("lse_square_scale_for_zloss", call.arguments.lse_square_scale_for_zloss)
    if number < 0 or number > 1:
        raise outside_unit_interval(TILING_FAILURE, float(number), "0 <= {name} <= 1")


def check_zloss(call: Inspection) -> None:
    """Refuse a zloss or lse_for_zloss that is neither empty nor of its shape."""
    shapes = {"zloss": call.specs["loss"].shape, "lse_for_zloss": (call.size("N"),)}
    for name, spec in call.given("zloss lse_for_zloss"):
        if spec.shape not in (shapes[name], (0,)):
            raise AclnnError(
                TILING_FAILURE,
                name,
                "{name} is {spec}",
                "{name}: {wanted}, or no elements",
                name=name,
                spec=spec,
                wanted=shape_text(shapes[name]),
            )


def too_many_cores(call: Inspection) -> MessageAndHint:
    """Return message and hint for more cores than one instruction adds up."""
    most = tiler.CORE_SUM_FLOATS
    return Text(
        "reduction = {reduction}: {cores} vector cores leave their sums in rows of {most} numbers",
        reduction=call.arguments.reduction,
        cores=call.device.vector_cores,
        most=most,
    ), Text("at most {most} vector cores, or reduction = none", most=most)


def beyond_documented(call: Inspection) -> MessageAndHint:
    """Return message and hint for more rows than documented."""
    most = call.rules.rows_at_most
    return Text(
        "input has N = {n} rows; the document of torch_npu allows {most}",
        n=call.size("N"),
        most=most,
    ), Text(
        "N <= {most}; hardware limit: N <= {largest}: {hardware}",
        most=most,
        largest=tiler.largest_rows(call.row, call.device, call.rules),
        hardware=Argument("limits", "hardware"),
    )


def beyond_buffer(call: Inspection) -> MessageAndHint:
    """Return message and hint for rows whose buffers leave no room for columns."""
    case = call.case()
    ub_bytes, core_rows = case.device.ub_bytes, case.tiling.front_rows
    reserved = tiler.reserved_bytes(core_rows)
    return Text(
        "input has N = {n} rows, {core_rows} on a core, whose buffers take {reserved} of "
        "{ub_bytes} bytes of the Unified Buffer: no block of columns fits beside them, and the "
        "kernel would {effect}",
        n=case.row.N,
        core_rows=core_rows,
        reserved=reserved,
        ub_bytes=ub_bytes,
        effect=Text("read beyond the buffer") if reserved > ub_bytes else Text("compute no column"),
    ), Text(
        "nearest legal value: N = {rows}",
        rows=tiler.largest_rows(case.row, case.device, case.rules),
    )


FIRST_CHECKS = (
    checks.Given(),
    checks.Supported(),
    checks.Dtypes("input loss log_prob zloss lse_for_zloss", float_dtypes),
    checks.Dtypes("target"),
    checks.Dtypes("weight"),
    checks.SameDtype("loss log_prob zloss lse_for_zloss", "input"),
    checks.Formats(checks.ND),
    checks.Attributes("ignore_index return_zloss"),
    checks.Ranks("input", 2, 2, TILING_FAILURE),
    checks.Shapes("input", TILING_FAILURE),
    checks.NothingToDo("N == 0 and reduction == 0"),
)
"""Checks up to that of calls without rows."""

OPERATOR = Operator(
    name="cross_entropy_loss",
    title="CrossEntropyLoss",
    summary="Compute cross-entropy loss and log-probabilities as the product does.",
    arguments=(
        Tensor("input", "N C", "logits, (N, C)", "dtype", samples=0),
        *LABELS,
        Attribute("ignore_index", int, "label whose rows are masked", -100),
        Attribute("label_smoothing", float, "share of the loss spread over all classes", 0.0),
        Attribute("lse_square_scale_for_zloss", float, "without effect", 0.0),
        Attribute("return_zloss", bool, "without effect", False),
        Tensor(
            "zloss",
            "zloss_elements*",
            "not written: like loss, or without elements",
            "dtype",
            document="zlossOut",
            optional=True,
            required_in_c=True,
        ),
        Tensor(
            "lse_for_zloss",
            "lse_for_zloss_elements*",
            "not written: (N,), or without elements",
            "dtype",
            document="lseForZlossOut",
            optional=True,
            required_in_c=True,
        ),
        Output(
            "loss",
            loss_axes,
            "loss: (1,), or (N,) for none",
            "dtype",
            document="lossOut",
            samples=lambda arguments: 0 if arguments["reduction"] == "none" else None,
        ),
        Output(
            "log_prob",
            "N C",
            "logarithm of the probability of every class, (N, C)",
            "dtype",
            document="logProbOut",
            samples=0,
        ),
    ),
    c_order=(
        "input",
        "target",
        "weight",
        "reduction",
        "ignore_index",
        "label_smoothing",
        "lse_square_scale_for_zloss",
        "return_zloss",
        "loss",
        "log_prob",
        "zloss",
        "lse_for_zloss",
    ),
    axes=(
        Word("dtype", "dtype of input, loss and log_prob", FLOAT_DTYPES, "float32"),
        *LABEL_AXES,
        Switch(
            "label_smoothing",
            "whether label_smoothing is above 0",
            is_on=lambda number: bool(to_fp32(number) > 0),  # nan is not
        ),
        *sizes("input"),
    ),
    checks=(
        *FIRST_CHECKS,
        checks.Holds("N >= 1", "input"),
        check_reduction,
        check_smoothing,
        checks.Holds("C >= 1", "input"),
        checks.Shapes("target weight loss log_prob", TILING_FAILURE),
        check_zloss,
        checks.CopiesStrided("takes_strided"),
        checks.Fits(tiler.adds_cores, "reduction", too_many_cores),
        checks.Holds("N <= rows_at_most", "input", beyond_documented, documented=True),
        checks.Fits(tiler.fits, "input", beyond_buffer),
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile,
    evidence=Evidence.EXACT,
    empty="empty: no rows, nothing runs",
    families=(ASCEND_950,),
    package=__package__,
)

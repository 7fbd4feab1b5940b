"""CrossEntropyLossGrad: the gradient of the cross-entropy loss with respect to its logits.

Source: product document aclnnCrossEntropyLossGrad; specification page ``cross_entropy_loss_grad``.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    FLOAT_DTYPES,
    INVALID,
    SHORT_NAMES,
    TILING_FAILURE,
    AclnnError,
    Argument,
    Attribute,
    Case,
    Evidence,
    Inspection,
    MessageAndHint,
    Operator,
    Output,
    Tensor,
    TensorSpec,
    Text,
    Word,
    checks,
    joined,
)
from npu_sim.operators.shared.labelled_rows.declaration import (
    IGNORE_INDEX,
    LABEL_AXES,
    LABELS,
    check_reduction,
    float_dtypes,
    outside_unit_interval,
    sizes,
)
from npu_sim.tiling import cross_entropy_loss_grad as tiler


def loss_axes(arguments: Mapping[str, Any]) -> str:
    """Return the axes of grad_loss: one element per row without reduction, else a scalar.

    torch_npu's losses have shape (1,) with mean and sum; the product takes both (page, before
    "Tiling").
    """
    if arguments["reduction"] == "none":
        return "N"
    loss = arguments.get("grad_loss")
    return "1N*" if isinstance(loss, TensorSpec) and loss.shape == (1,) else ""


def check_unsupported(call: Inspection) -> None:
    """Refuse options that the product does not support yet; 161002."""
    arguments = call.arguments
    for name in ("label_smoothing", "lse_square_scale_for_zloss"):
        number = checks.require_float(name, arguments[name])
        if name == "label_smoothing" and not 0 <= number <= 1:
            hint = "{name} = 0: others are not supported yet"
            raise outside_unit_interval(INVALID, number, hint)
        if number != 0:
            raise AclnnError(
                INVALID,
                name,
                "{name} = {number} is not supported yet",
                "{name} = 0",
                name=name,
                number=f"{number:g}",
            )
    for name in ("grad_zloss", "lse_for_zloss"):
        if arguments[name] is not None:
            raise AclnnError(
                INVALID, name, "{name} is not supported yet", "leave {name} out", name=name
            )


def label_message(call: Inspection) -> MessageAndHint:
    """Return message and hint for an ignore_index that is not a label."""
    columns = call.size("C")
    return (
        Text(
            "ignore_index = {ignore_index} is not a column: C = {columns}",
            ignore_index=call.size("ignore_index"),
            columns=columns,
        ),
        Text("ignore_index <= {last_column}; negative for none", last_column=columns - 1),
    )


def beyond_documented(call: Inspection) -> MessageAndHint:
    """Return message and hint for more rows than documented, with the number that fits."""
    case = call.case()
    rows_below, largest = case.rules.rows_below, _largest_rows(case)
    hardware = Text(
        "hardware limit: N <= {largest} ({which}, C = {c}, {vector_cores} cores): {hardware}",
        largest=largest,
        which=Text(
            "{dtype}, {reduction}, {weight}",
            dtype=SHORT_NAMES[case.specs["log_prob"].dtype],
            reduction=case.arguments.reduction,
            weight="weight" if case.row.weighted else "no weight",
        ),
        c=case.row.C,
        vector_cores=case.device.vector_cores,
        hardware=Argument("limits", "hardware"),
    )
    return Text(
        "log_prob has N = {n} rows; the product document allows fewer than {rows_below}",
        n=case.row.N,
        rows_below=rows_below,
    ), _hint(case, min(rows_below - 1, largest), hardware)


def beyond_buffer(call: Inspection) -> MessageAndHint:
    """Return message and hint for rows whose buffers exceed the Unified Buffer."""
    case = call.case()
    return Text(
        "log_prob has N = {n} rows, which the Unified Buffer of {title} does not hold: {reason}",
        n=case.row.N,
        title=case.profile.title,
        reason=_reason(case),
    ), _hint(case, _largest_rows(case))


def _largest_rows(case: Case) -> int:
    return tiler.largest_rows(case.row, case.device, case.rules)


def _hint(case: Case, nearest: int, *more: str) -> str:
    legal = Text(
        "nearest legal value: {rows}{column}",
        rows=f"N = {nearest}" if nearest else "none at this C",
        column=_column_text(case),
    )
    arithmetic = Text("arithmetic: {arithmetic}", arithmetic=_arithmetic(case))
    exceeded = Text(
        "exceeded: {breaks}",
        breaks=Text(
            "N > {largest_rows}: the row does not fit beside the row buffers; N > {before_wrap}: "
            "they alone exceed the Unified Buffer, the product's unsigned arithmetic wraps "
            "around and accepts any row",
            largest_rows=_largest_rows(case),
            before_wrap=tiler.largest_rows(case.row, case.device, case.rules, columns=0),
        ),
    )
    return joined((legal, *more, arithmetic, exceeded), "\n")


def _column_text(case: Case) -> str:
    """Return the widest row that fits these row buffers; it is shorter than a block of columns."""
    if case.tiling.wraps == 1 or tiler.fits(case.row, case.device, case.rules):
        return ""
    columns = tiler.largest_short_row(case.row, case.device, case.rules)
    return Text(", or C = {columns}", columns=columns) if 0 < columns < case.row.C else ""


def _reason(case: Case) -> str:
    """Return the condition that fails (page, "The limit")."""
    tiling, ub_bytes = case.tiling, case.device.ub_bytes
    if tiling.wraps == 1:
        return Text(
            "the row buffers alone need {row_buffer_bytes} of {ub_bytes} bytes",
            row_buffer_bytes=sum(tiling.buffers),
            ub_bytes=ub_bytes,
        )
    if tiling.align_columns == 0 and tiling.column_budget < case.row.C:
        return Text(
            "{fitting}, and a whole row has C = {c}",
            fitting=Text(
                "beside the row buffers fit {column_budget} columns, fewer than a block of {unit}",
                column_budget=tiling.column_budget,
                unit=tiler.unit_columns(case.row.dtype),
            ),
            c=case.row.C,
        )
    return Text(
        "all buffers need {used_bytes} of {ub_bytes} bytes",
        used_bytes=tiler.used_bytes(tiling, case.row.dtype),
        ub_bytes=ub_bytes,
    )


def _arithmetic(case: Case) -> str:
    """Return the sizes of the row buffers and the columns that fit into the rest."""
    tiling, device = case.tiling, case.device
    used = sum(tiling.buffers)
    text = Text(
        "{cores}: {buffers} = {used} of {ub_bytes} bytes",
        cores=Text(
            "ceil({n}, {vector_cores}) = {front_rows} rows a core",
            n=case.row.N,
            vector_cores=device.vector_cores,
            front_rows=tiling.front_rows,
        ),
        buffers=" + ".join(
            f"{name} {size}" for name, size in tiling.buffers._asdict().items() if size
        ),
        used=used,
        ub_bytes=device.ub_bytes,
    )
    if tiling.wraps == 1:
        return text
    return Text(
        "{text}, {rest}",
        text=text,
        rest=Text(
            "{free_bytes} left // {bytes_per_column} = {column_budget} columns",
            free_bytes=device.ub_bytes - used,
            bytes_per_column=tiler.bytes_per_column(case.row.dtype),
            column_budget=tiling.column_budget,
        ),
    )


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
        *LABELS,
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
        *LABEL_AXES,
        IGNORE_INDEX,
        *sizes("log_prob"),
    ),
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("grad_loss log_prob", float_dtypes),
        checks.Dtypes("target"),
        checks.Dtypes("weight"),
        checks.Dtypes("grad_zloss lse_for_zloss", FLOAT_DTYPES),
        checks.Dtypes("out", float_dtypes),
        checks.SameDtype("grad_loss out", "log_prob"),
        checks.Formats(checks.ND),
        partial(check_reduction, status=INVALID),
        check_unsupported,
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

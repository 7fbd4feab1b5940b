"""RmsNormGrad: the gradients of RMS normalisation.

Source: product document aclnnRmsNormGrad; specification page ``rms_norm_grad``.
"""

from collections.abc import Sequence
from typing import Any

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    NPU_ARCH_ATLAS_INFERENCE,
    NPU_ARCH_ATLAS_TRAIN,
    TILING_FAILURE,
    AclnnError,
    Assumed,
    Case,
    Evidence,
    Inspection,
    MessageAndHint,
    Operator,
    Output,
    Profile,
    Sizes,
    Tensor,
    Text,
    Verbatim,
    checks,
    system_workspace,
)
from npu_sim.operators.shared.normalised_rows import declaration as normalised_rows
from npu_sim.tiling import rms_norm_grad as tiler

DTYPE_ROWS = (
    ("float16", "float16", "float32", "float32", "float16", "float32"),
    ("bfloat16", "bfloat16", "float32", "float32", "bfloat16", "float32"),
    ("float16", "float16", "float32", "float16", "float16", "float32"),
    ("float32", "float32", "float32", "float32", "float32", "float32"),
    ("bfloat16", "bfloat16", "float32", "bfloat16", "bfloat16", "float32"),
)
"""dtypes of (dy, x, rstd, gamma, dx, dgamma) supported by A2 and A3 ("各产品支持数据类型说明")."""
PLAIN_PRODUCTS = (NPU_ARCH_ATLAS_INFERENCE, NPU_ARCH_ATLAS_TRAIN)
"""Architectures on which gamma has the dtype of x."""


def dtype_rows(profile: Profile) -> Sequence[Sequence[str]]:
    """Return the supported dtype combinations."""
    return [
        row
        for row in DTYPE_ROWS
        if row[0] in profile.product.dtypes
        and (row[3] == row[0] or profile.npu_arch not in PLAIN_PRODUCTS)
    ]


def check_shapes(call: Inspection, takes_no_rows: bool = False) -> None:
    """Check the shapes in the order of the product's planner and set the sizes."""
    given = {name: spec.shape for name, spec in call.specs.items()}
    implied = {"dx": given["dy"], "dgamma": given["gamma"]}  # of outputs that are not given
    shapes = tiler.Shapes(**(implied | given))
    error = tiler.shape_error(shapes, takes_no_rows)
    if error is not None:
        raise AclnnError(TILING_FAILURE, *error)
    call.sizes = Sizes(
        {"row": shapes.rows, "col": shapes.columns}, {"row": shapes.leading, "col": shapes.gamma}
    )


SIZE_LIMIT = 2**32
"""The product computes rows and columns in 32 bits; the contract rejects sizes that would wrap."""


def _wrap_message(name: str) -> Any:
    def message_of(call: Inspection) -> MessageAndHint:
        size = call.size(name)
        return Text(
            "{name} = {size}: the product computes it in 32 bits, where it would become "
            "{wrapped_size}",
            name=Verbatim(name),
            size=size,
            wrapped_size=size % SIZE_LIMIT,
        ), f"{name} <= {SIZE_LIMIT - 1}"

    return message_of


def _width_message(call: Inspection) -> MessageAndHint:
    columns, step = call.size("col"), tiler.ASCEND_910_COLUMNS
    below = columns // step * step
    return Text(
        "col = {columns} is not a multiple of {step}, which Ascend 910 chips need",
        columns=columns,
        step=step,
    ), Text(
        "nearest: {nearest}",
        nearest=Text("{below} or {next_value}", below=below, next_value=below + step)
        if below
        else f"{step}",
    )


def if_asked(case: Case) -> str:
    """Return the limit of split N if the planner queried the size of the Unified Buffer.

    A model: for the size that the product assumes it gives the product's own limit.
    """
    return Text(
        "split N up to {widest_whole_row} columns",
        widest_whole_row=tiler.widest_whole_row(case.tiling, case.device.ub_bytes),
    )


LAST_AXIS_BYTES, LAST_AXIS = normalised_rows.last_axis("x dy gamma")


OPERATOR = Operator(
    name="rms_norm_grad",
    title="RmsNormGrad",
    summary="Compute the gradients of RMS normalisation as the product does.",
    arguments=(
        Tensor("dy", "row* col+", "gradient of the normalised output, like x", "dtype", samples=0),
        Tensor(
            "x",
            "row* col+",
            "input of the forward operator, (rows ..., columns ...)",
            "dtype",
            samples=0,
        ),
        Tensor(
            "rstd",
            "row* 1col*",
            "1/sqrt(mean(x^2)+eps) of every row, fp32, (rows ...)",
            "float32",
            samples=0,
        ),
        Tensor("gamma", "col+", "scale of every column, (columns ...)", "gamma_dtype"),
        Output("dx", "row* col+", "gradient of x, like dy", "dtype", document="dxOut", samples=0),
        Output(
            "dgamma",
            "col+",
            "gradient of gamma, fp32, like gamma",
            "float32",
            document="dgammaOut",
            parts="column",
        ),
    ),
    axes=normalised_rows.axes("dy, x and dx"),
    derived=(LAST_AXIS_BYTES,),
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.Contiguous(),
        checks.DtypeTable("dy x rstd gamma dx dgamma", dtype_rows),
        checks.Formats(checks.PLAIN_FORMATS, status=TILING_FAILURE),
        check_shapes,
        checks.Ranks("rstd", 0, status=TILING_FAILURE),
        checks.Holds("row >= 1 and col >= 1", "dy"),
        checks.Holds(f"row < {SIZE_LIMIT}", "x", _wrap_message("row")),
        checks.Holds(f"col < {SIZE_LIMIT}", "gamma", _wrap_message("col")),
        LAST_AXIS,
        checks.Fits(tiler.accepts_row, "gamma", _width_message),
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile,
    used_bytes=tiler.used_bytes,
    assumed=(
        Assumed(
            "ub_bytes", tiler.ASSUMED_UB_BYTES, "specification page rms_norm_grad, key 1", if_asked
        ),
        system_workspace("rms_norm_grad, Workspace"),
    ),
    evidence=Evidence.EXACT,
    families=(ASCEND_950,),
    package=__package__,
)

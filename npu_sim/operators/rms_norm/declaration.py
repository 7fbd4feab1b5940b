"""RmsNorm: RMS normalisation. Its rstd is an input of RmsNormGrad.

Source: product document aclnnRmsNorm; specification page ``rms_norm``.
"""

from collections.abc import Sequence

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    NPU_ARCH_ATLAS_INFERENCE,
    NPU_ARCH_ATLAS_TRAIN,
    TILING_FAILURE,
    AclnnError,
    Attribute,
    Derived,
    Evidence,
    Inspection,
    Operator,
    Output,
    Profile,
    Tensor,
    bound_sizes,
    checks,
    shape_text,
    system_workspace,
    to_fp32,
)
from npu_sim.operators.shared.normalised_rows import declaration as normalised_rows
from npu_sim.tiling import rms_norm as tiler

MIXED_ROWS = (
    ("float16", "float32", "float16", "float32"),
    ("bfloat16", "float32", "bfloat16", "float32"),
)
PLAIN_ROWS = (
    ("float16", "float16", "float16", "float32"),
    ("bfloat16", "bfloat16", "bfloat16", "float32"),
    ("float32", "float32", "float32", "float32"),
)
"""dtypes of (x, gamma, y, rstd) (page, "Contract" 2)."""
PLAIN_PRODUCTS = (NPU_ARCH_ATLAS_INFERENCE, NPU_ARCH_ATLAS_TRAIN)
"""Architectures without mixed rows."""


def dtype_rows(profile: Profile) -> Sequence[Sequence[str]]:
    """Return the dtype combinations that a product supports."""
    rows = PLAIN_ROWS if profile.npu_arch in PLAIN_PRODUCTS else (*MIXED_ROWS, *PLAIN_ROWS)
    return [row for row in rows if row[0] in profile.product.dtypes]


def check_gamma(call: Inspection) -> None:
    """Check that gamma has the last axes of x and set the sizes (page, "Contract" 3)."""
    x, gamma = call.specs["x"], call.specs["gamma"]
    if gamma.rank > x.rank or gamma.shape != x.shape[x.rank - gamma.rank :]:
        raise AclnnError(
            TILING_FAILURE,
            "gamma",
            "gamma is {given}, but x is {x}: gamma must be its last axes",
            "gamma: {wanted}",
            given=shape_text(gamma.shape),
            x=shape_text(x.shape),
            wanted=shape_text(x.shape[max(x.rank - gamma.rank, 0) :]),
        )
    call.sizes = bound_sizes(call.operator, call.arguments)


def check_epsilon(call: Inspection) -> None:
    """Check that epsilon >= 0 after rounding to fp32; inf and nan pass (page, "Contract" 6)."""
    if to_fp32(call.arguments.epsilon) < 0:
        raise AclnnError(
            TILING_FAILURE,
            "epsilon",
            "epsilon = {epsilon} is below 0",
            "epsilon >= 0",
            epsilon=call.arguments.epsilon,
        )


LAST_AXIS_BYTES, LAST_AXIS = normalised_rows.last_axis("x gamma")


OPERATOR = Operator(
    name="rms_norm",
    title="RmsNorm",
    summary="Normalise rows by their root mean square as the product does.",
    arguments=(
        Tensor("x", "row* col+", "input, (rows ..., columns ...)", "dtype", samples=0),
        Tensor("gamma", "col+", "scale of every column, (columns ...)", "gamma_dtype"),
        Attribute("epsilon", float, "what is added to the mean square", default=1e-6),
        Output(
            "y", "row* col+", "x normalised and scaled, like x", "dtype", document="yOut", samples=0
        ),
        Output(
            "rstd",
            "row* 1col?",
            "1/sqrt(mean(x^2)+epsilon) of every row, fp32",
            "float32",
            document="rstdOut",
            samples=0,
        ),
    ),
    axes=normalised_rows.axes("x and y"),
    derived=(
        Derived("x_rank", "2", lambda specs: specs["x"].rank),
        Derived("gamma_rank", "1", lambda specs: specs["gamma"].rank),
        Derived("first_axis", "row", lambda specs: specs["x"].shape[0]),
        Derived("second_axis", "col", lambda specs: (*specs["x"].shape, 1)[1]),
        LAST_AXIS_BYTES,
    ),
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.DtypeTable("x gamma y rstd", dtype_rows),
        checks.Formats(checks.PLAIN_FORMATS, status=TILING_FAILURE),
        checks.Ranks("x gamma", 1, status=TILING_FAILURE),
        check_gamma,
        checks.Like("y", "x", TILING_FAILURE),
        checks.Shapes("rstd", TILING_FAILURE),
        checks.NothingToDo("row == 0"),
        checks.Holds("col >= 1", "gamma"),
        LAST_AXIS,
        checks.Attributes("epsilon"),
        check_epsilon,
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile,
    used_bytes=tiler.used_bytes,
    assumed=(system_workspace("rms_norm, Workspace"),),
    evidence=Evidence.EXACT,
    empty="empty: no rows, nothing runs",
    families=(ASCEND_950,),
    package=__package__,
)

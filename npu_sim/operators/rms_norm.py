"""RmsNorm: RMS normalisation, the forward operator whose rstd RmsNormGrad takes.

Source: public product document aclnnRmsNorm; specification page ``rms_norm``.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.cores import NPU_ARCH_A2_A3, Profile
from npu_sim.numbers.formats import shape_text
from npu_sim.numbers.values import normal
from npu_sim.operators import normalised_rows
from npu_sim.operators.contract.arguments import Attribute, Output, Tensor
from npu_sim.operators.contract.assumptions import Assumed
from npu_sim.operators.contract.axes import Derived
from npu_sim.operators.contract.case import Case, Inspection
from npu_sim.operators.contract.checks import Attributes, Given, Holds, NothingToDo, Supported
from npu_sim.operators.contract.inputs import unsupported_values
from npu_sim.operators.contract.operator import Operator
from npu_sim.operators.contract.tensor_checks import PLAIN_FORMATS, DtypeTable, Formats, Like, Ranks, Shapes
from npu_sim.operators.rms_norm_plan import describe
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Caveat
from npu_sim.status import TILING_FAILURE, AclnnError
from npu_sim.tiling import rms_norm as tiler
from npu_sim.tiling import rms_norm_conditions as conditions
from npu_sim.tiling.normalised_rows import SYSTEM_WORKSPACE_BYTES
from npu_sim.tiling.rms_norm_buffers import used_bytes

if TYPE_CHECKING:
    from npu_sim.kernels.rms_norm import Split
    from npu_sim.operators.contract.execution import Run

LARGEST_SQUARED = 1.8446743e19
"""Larger magnitudes have no finite square in fp32 (page, "Special values")."""
MIXED_ROWS = (("float16", "float32", "float16", "float32"), ("bfloat16", "float32", "bfloat16", "float32"))
PLAIN_ROWS = (
    ("float16", "float16", "float16", "float32"),
    ("bfloat16", "bfloat16", "bfloat16", "float32"),
    ("float32", "float32", "float32", "float32"),
)
"""dtypes of (x, gamma, y, rstd) (page, "Contract" 2); the mixed ones are for A2 and A3."""


def dtype_rows(profile: Profile) -> Sequence[Sequence[str]]:
    """Return the dtype combinations that a product takes."""
    rows = (*MIXED_ROWS, *PLAIN_ROWS) if profile.npu_arch == NPU_ARCH_A2_A3 else PLAIN_ROWS
    return [row for row in rows if row[0] in profile.product.dtypes]


def check_gamma(call: Inspection) -> None:
    """Gamma has the last axes of x (page, "Contract" 3); the sizes of the call follow from both."""
    x, gamma = call.specs["x"], call.specs["gamma"]
    if gamma.rank > x.rank or gamma.shape != x.shape[x.rank - gamma.rank :]:
        wanted = shape_text(x.shape[max(x.rank - gamma.rank, 0) :])
        message = f"gamma is {shape_text(gamma.shape)}, but x is {shape_text(x.shape)}: gamma must be its last axes"
        raise AclnnError(TILING_FAILURE, "gamma", message, f"gamma: {wanted}")
    call.sizes = call.operator.bound(call.arguments)


def check_epsilon(call: Inspection) -> None:
    """Epsilon, rounded to fp32, is not below 0; inf and nan pass (page, "Contract" 6)."""
    if tiler.rounded_epsilon(call.arguments.epsilon) < 0:
        raise AclnnError(TILING_FAILURE, "epsilon", f"epsilon = {call.arguments.epsilon} is below 0", "epsilon >= 0")


def split_of(case: Case) -> "Split":
    """Return how a row is summed, as the kernel takes it."""
    from npu_sim.kernels import rms_norm as kernels

    key = case.tiling.tiling_key
    path = {conditions.KEY_MERGE_N: kernels.LANES, conditions.KEY_SPLIT_D: kernels.PIECES}.get(key, kernels.HALVING)
    return kernels.Split(path, case.tiling.ub_factor if path == kernels.PIECES else case.row.col)


def compute(run: "Run") -> None:
    """Compute y and rstd."""
    case = run.case
    with run.watch.stage("load"):
        from npu_sim.kernels.rms_norm import rms_norm
    with run.watch.stage("check"):
        run.caveats = unsupported_values(run.tensors) if case.profile.saturates else ()
    with run.watch.stage("compute"):
        shape, rstd = (case.row.row, case.row.col), run.written("rstd").reshape(-1)
        x, gamma = run.stored("x").reshape(shape), run.stored("gamma").reshape(-1)
        rms_norm(x, gamma, case.once(split_of), tiler.rounded_epsilon(case.arguments.epsilon), run.written("y").reshape(shape), rstd)
    run.caveats += _overflowing_rows(run.tensors["x"].reshape(shape), rstd)


def _overflowing_rows(x: np.ndarray, rstd: np.ndarray) -> tuple[Caveat, ...]:
    """Warn of rows whose sum is inf although a finite input is: only there rstd is 0, so that no other row is looked at."""
    if rstd.all():
        return ()
    rows = np.flatnonzero(rstd == 0)
    sizes = np.abs(x[rows].astype(np.float32))
    found = int(np.count_nonzero((np.isfinite(sizes) & (sizes > LARGEST_SQUARED)).any(axis=1)))
    if not found:
        return ()
    message = f"{found} rows have a finite element above {LARGEST_SQUARED:g}, whose square is inf: their rstd is 0"
    return (Caveat(code="squares_overflow", argument="x", message=message),)


def formula(arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]) -> dict[str, np.ndarray]:
    """Compute y and rstd as their formulas say (page, "Formula")."""
    x, gamma = tensors["x"], tensors["gamma"].astype(precision).reshape(-1)
    rows = x.reshape(-1, gamma.size)
    y, rstd = np.empty(rows.shape, precision), np.empty(len(rows), precision)
    step = max(1, normalised_rows.BLOCK_ELEMENTS // gamma.size)
    for begin in range(0, len(rows), step):
        block = rows[begin : begin + step].astype(precision)
        rstd[begin : begin + step] = 1 / np.sqrt(np.mean(block * block, axis=1) + precision.type(arguments.epsilon))
        y[begin : begin + step] = block * rstd[begin : begin + step, None] * gamma
    leading = x.shape[: x.ndim - tensors["gamma"].ndim]
    return {"y": y.reshape(x.shape), "rstd": rstd.reshape(leading + (1,) * tensors["gamma"].ndim)}


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return inputs as a trained network has them: activations of order 1, scales near 1."""
    random = np.random.default_rng(seed)
    gamma = normalised_rows.draw_gamma(random, arguments.gamma)
    return {"x": normal(random, arguments.x), "gamma": gamma}


LAST_AXIS_BYTES, LAST_AXIS = normalised_rows.last_axis("x gamma")

OPERATOR = Operator(
    name="rms_norm",
    title="RmsNorm",
    summary="Normalise rows by their root mean square as the product does.",
    arguments=(
        Tensor("x", "row* col+", "input, (rows ..., columns ...)", "dtype", samples=0),
        Tensor("gamma", "col+", "scale of every column, (columns ...)", "gamma_dtype"),
        Attribute("epsilon", float, "what is added to the mean square", default=1e-6),
        Output("y", "row* col+", "x normalised and scaled, like x", "dtype", document="yOut", samples=0),
        Output("rstd", "row* 1col?", "1/sqrt(mean(x^2)+epsilon) of every row, fp32", "float32", document="rstdOut", samples=0),
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
        Given(),
        Supported(),
        DtypeTable("x gamma y rstd", dtype_rows),
        Formats(PLAIN_FORMATS, status=TILING_FAILURE),
        Ranks("x gamma", 1, status=TILING_FAILURE),
        check_gamma,
        Like("y", "x", TILING_FAILURE),
        Shapes("rstd", TILING_FAILURE),
        NothingToDo("row == 0"),
        Holds("col >= 1", "gamma"),
        LAST_AXIS,
        Attributes("epsilon"),
        check_epsilon,
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile_row,
    used_bytes=used_bytes,
    assumed=(Assumed("system_workspace_bytes", SYSTEM_WORKSPACE_BYTES, "specification page rms_norm, Workspace"),),
    describe=describe,
    compute=compute,
    formula=formula,
    data=data,
    program="npu_sim.timelines.rms_norm:program",
    steps="npu_sim.timelines.rms_norm_steps:steps",
    instructions="npu_sim.timelines.rms_norm_instructions:instructions",
    claims="npu_sim.operators.rms_norm_study:claims",
    terms="npu_sim.operators.rms_norm_study:terms",
    evidence=Evidence.EXACT,
    empty="empty: no rows, nothing runs",
)

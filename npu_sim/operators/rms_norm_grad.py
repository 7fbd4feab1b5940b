"""RmsNormGrad: the gradients of RMS normalisation.

Source: product document aclnnRmsNormGrad; specification page ``rms_norm_grad``.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.cores import NPU_ARCH_A2_A3, Profile
from npu_sim.numbers.values import normal
from npu_sim.operators import normalised_rows
from npu_sim.operators.contract.arguments import Output, Tensor
from npu_sim.operators.contract.assumptions import Assumed
from npu_sim.operators.contract.case import Case, Inspection
from npu_sim.operators.contract.checks import Fits, Given, Holds, Supported
from npu_sim.operators.contract.inputs import unsupported_values
from npu_sim.operators.contract.operator import Operator
from npu_sim.operators.contract.patterns import Sizes
from npu_sim.operators.contract.tensor_checks import PLAIN_FORMATS, Contiguous, DtypeTable, Formats, Ranks
from npu_sim.operators.rms_norm_grad_plan import describe, if_asked
from npu_sim.plans.answers import Evidence
from npu_sim.status import TILING_FAILURE, AclnnError
from npu_sim.tiling import rms_norm_grad as tiler
from npu_sim.tiling.normalised_rows import SYSTEM_WORKSPACE_BYTES
from npu_sim.tiling.rms_norm_grad_buffers import used_bytes
from npu_sim.tiling.rms_norm_grad_shapes import Shapes, shape_fault

if TYPE_CHECKING:
    from npu_sim.kernels.rms_norm_grad import Split
    from npu_sim.operators.contract.execution import Run

SIZE_LIMIT = 2**32
"""The product computes rows and columns in 32 bits; the contract refuses what would wrap around."""
EPSILON = np.float32(1e-6)
"""What the forward operator adds to the mean square."""

DTYPE_ROWS = (
    ("float16", "float16", "float32", "float32", "float16", "float32"),
    ("bfloat16", "bfloat16", "float32", "float32", "bfloat16", "float32"),
    ("float16", "float16", "float32", "float16", "float16", "float32"),
    ("float32", "float32", "float32", "float32", "float32", "float32"),
    ("bfloat16", "bfloat16", "float32", "bfloat16", "bfloat16", "float32"),
)
"""dtypes of (dy, x, rstd, gamma, dx, dgamma) that A2 and A3 take ("各产品支持数据类型说明")."""


def dtype_rows(profile: Profile) -> Sequence[Sequence[str]]:
    """Return the dtype combinations that a product takes: gamma in another dtype than x on A2 and A3 only."""
    mixed = profile.npu_arch == NPU_ARCH_A2_A3
    return [row for row in DTYPE_ROWS if row[0] in profile.product.dtypes and (mixed or row[3] == row[0])]


def check_shapes(call: Inspection) -> None:
    """Check the shapes as the product's raw planner does, which words them."""
    given = {name: call.specs[name].shape for name in ("dy", "x", "rstd", "gamma")}
    implied = {"dx": given["dy"], "dgamma": given["gamma"]}
    shapes = Shapes(**given, **{name: call.specs[name].shape if name in call.specs else implied[name] for name in implied})
    fault = shape_fault(shapes)
    if fault is not None:
        raise AclnnError(TILING_FAILURE, *fault)
    call.sizes = Sizes({"row": shapes.rows, "col": shapes.columns}, {"row": shapes.leading, "col": shapes.gamma})


def _wraps(name: str) -> Any:
    def words(call: Inspection) -> tuple[str, str]:
        size = call.size(name)
        message = f"{name} = {size}: the product computes it in 32 bits, where it would become {size % SIZE_LIMIT}"
        return message, f"{name} <= {SIZE_LIMIT - 1}"

    return words


def _width_words(call: Inspection) -> tuple[str, str]:
    columns, step = call.size("col"), tiler.ASCEND_910_COLUMNS
    below = columns // step * step
    nearest = f"{below} or {below + step}" if below else f"{step}"
    return f"col = {columns} is not a multiple of {step}, which Ascend 910 chips need", f"nearest: {nearest}"


def split_of(case: Case) -> "Split":
    """Return how the case's rows are split, as the kernel takes it."""
    from npu_sim.kernels import rms_norm_grad as kernels

    tiling = case.tiling
    if tiling.tiling_key == tiler.SPLIT_D:
        path = kernels.PIECES
    else:
        lanes = tiler.takes_lanes(tiling.columns_aligned, case.profile.npu_arch)
        path = kernels.LANES if lanes else kernels.HALVING
    return kernels.Split(path, tiling.block_dim, tiling.block_factor)


def compute(run: "Run") -> None:
    """Compute dx and dgamma.

    In a workspace the dgamma of every core (deterministic) lies there. Reserved and not filled: the system workspace, the words for
    synchronisation, and with chunks the means of every row, which the kernel needs only once.
    """
    case = run.case
    with run.watch.stage("load"):
        from npu_sim.kernels import rms_norm_grad as kernels
    with run.watch.stage("check"):
        run.caveats = unsupported_values(run.tensors) if case.profile.saturates else ()
    with run.watch.stage("compute"):
        shape, split = (case.row.row, case.row.col), case.once(split_of)
        kernels.rms_norm_grad(
            run.stored("dy").reshape(shape),
            run.stored("x").reshape(shape),
            run.stored("rstd").reshape(-1),
            run.stored("gamma").reshape(-1),
            split,
            case.deterministic,
            run.order.code,
            run.order.seed,
            run.written("dx").reshape(shape),
            run.written("dgamma").reshape(-1),
            _vectors(run, split.block_dim),
        )
    run.masks["dgamma"] = partial(np.full, shape[1], not case.deterministic and split.block_dim > 1)


def _vectors(run: "Run", cores: int) -> np.ndarray | None:
    """Return the part of the workspace where cores keep their dgamma apart; None when they do not."""
    name = "dgamma of every core"
    if run.areas is None or name not in run.areas:
        return None
    return run.areas.array(name, (cores, run.areas.bytes_of(name) // cores // 4), "float32")


def formula(arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]) -> dict[str, np.ndarray]:
    """Compute the gradients as their formulas say (page, "Formulas")."""
    shape, gamma = tensors["x"].shape, tensors["gamma"].astype(precision).reshape(-1)
    rows = tensors["x"].size // gamma.size
    dy, x, rstd = tensors["dy"].reshape(rows, -1), tensors["x"].reshape(rows, -1), tensors["rstd"].reshape(rows, 1)
    dx, dgamma = np.empty((rows, gamma.size), precision), np.zeros(gamma.size, precision)
    step = max(1, normalised_rows.BLOCK_ELEMENTS // gamma.size)
    for begin in range(0, rows, step):
        block = slice(begin, begin + step)
        scale, gradient = rstd[block].astype(precision), dy[block].astype(precision)
        normed = x[block].astype(precision) * scale
        dgamma += (gradient * normed).sum(axis=0)
        mean = (gradient * gamma * normed).mean(axis=1, keepdims=True)
        dx[block] = (gradient * gamma - normed * mean) * scale
    return {"dx": dx.reshape(shape), "dgamma": dgamma.reshape(tensors["gamma"].shape)}


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return inputs as a trained network has them: activations and gradients of order 1, scales near 1."""
    random = np.random.default_rng(seed)
    dy, x = (normal(random, spec) for spec in (arguments.dy, arguments.x))
    gamma = normalised_rows.draw_gamma(random, arguments.gamma)
    # The mean square of what is stored, not of what was drawn, as the forward operator computed it.
    squares = np.array([np.mean(np.square(row.astype(np.float32))) for row in x.reshape(arguments.rstd.numel, -1)], np.float32)
    return {
        "dy": dy,
        "x": x,
        "rstd": (1 / np.sqrt(squares + EPSILON)).reshape(arguments.rstd.shape),
        "gamma": gamma,
    }


LAST_AXIS_BYTES, LAST_AXIS = normalised_rows.last_axis("x dy gamma")

OPERATOR = Operator(
    name="rms_norm_grad",
    title="RmsNormGrad",
    summary="Compute the gradients of RMS normalisation as the product does.",
    arguments=(
        Tensor("dy", "row* col+", "gradient of the normalised output, like x", "dtype", samples=0),
        Tensor("x", "row* col+", "input of the forward operator, (rows ..., columns ...)", "dtype", samples=0),
        Tensor("rstd", "row* 1col*", "1/sqrt(mean(x^2)+eps) of every row, fp32, (rows ...)", "float32", samples=0),
        Tensor("gamma", "col+", "scale of every column, (columns ...)", "gamma_dtype"),
        Output("dx", "row* col+", "gradient of x, like dy", "dtype", document="dxOut", samples=0),
        Output("dgamma", "col+", "gradient of gamma, fp32, like gamma", "float32", document="dgammaOut", parts="column"),
    ),
    axes=normalised_rows.axes("dy, x and dx"),
    derived=(LAST_AXIS_BYTES,),
    checks=(
        Given(),
        Supported(),
        Contiguous(),
        DtypeTable("dy x rstd gamma dx dgamma", dtype_rows),
        Formats(PLAIN_FORMATS, status=TILING_FAILURE),
        check_shapes,
        Ranks("rstd", 0, status=TILING_FAILURE),
        Holds("row >= 1 and col >= 1", "dy"),
        Holds(f"row < {SIZE_LIMIT}", "x", _wraps("row")),
        Holds(f"col < {SIZE_LIMIT}", "gamma", _wraps("col")),
        LAST_AXIS,
        Fits(tiler.takes_columns, "gamma", _width_words),
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile_row,
    has_tiling=tiler.has_tiling,
    used_bytes=used_bytes,
    assumed=(
        Assumed("ub_bytes", tiler.ASSUMED_UB_BYTES, "specification page rms_norm_grad, key 1", if_asked),
        Assumed("system_workspace_bytes", SYSTEM_WORKSPACE_BYTES, "specification page rms_norm_grad, Workspace"),
    ),
    describe=describe,
    compute=compute,
    formula=formula,
    data=data,
    program="npu_sim.timelines.rms_norm_grad:program",
    steps="npu_sim.timelines.rms_norm_grad_steps:steps",
    instructions="npu_sim.timelines.rms_norm_grad_instructions:instructions",
    claims="npu_sim.operators.rms_norm_grad_study:claims",
    parts="npu_sim.operators.rms_norm_grad_study:parts",
    terms="npu_sim.operators.rms_norm_grad_study:terms",
    evidence=Evidence.EXACT,
)

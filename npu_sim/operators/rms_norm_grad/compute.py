"""RmsNormGrad: computation in the order of the product, and the formula that studies compare with.

Source: specification page ``rms_norm_grad``.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.framework.case import Case
from npu_sim.framework.results import unsupported_values
from npu_sim.numbers.values import normal
from npu_sim.operators.shared import normalised_rows
from npu_sim.tiling import rms_norm_grad as tiler

if TYPE_CHECKING:
    from npu_sim.framework.execution import Run
    from npu_sim.kernels.rms_norm_grad import Split


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
        shape, split = (case.row.row, case.row.col), split_of(case)
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


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Compute the gradients as their formulas say (page, "Formulas")."""
    shape, gamma = tensors["x"].shape, tensors["gamma"].astype(precision).reshape(-1)
    rows = tensors["x"].size // gamma.size
    dy, x, rstd = (
        tensors["dy"].reshape(rows, -1),
        tensors["x"].reshape(rows, -1),
        tensors["rstd"].reshape(rows, 1),
    )
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


EPSILON = np.float32(1e-6)
"""What the forward operator adds to the mean square."""


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return inputs as a trained network has them: activations and gradients of order 1, scales near 1."""
    random = np.random.default_rng(seed)
    dy, x = (normal(random, spec) for spec in (arguments.dy, arguments.x))
    gamma = normalised_rows.draw_gamma(random, arguments.gamma)
    # The mean square of what is stored, not of what was drawn, as the forward operator computed it.
    squares = np.array(
        [np.mean(np.square(row.astype(np.float32))) for row in x.reshape(arguments.rstd.numel, -1)],
        np.float32,
    )
    return {
        "dy": dy,
        "x": x,
        "rstd": (1 / np.sqrt(squares + EPSILON)).reshape(arguments.rstd.shape),
        "gamma": gamma,
    }

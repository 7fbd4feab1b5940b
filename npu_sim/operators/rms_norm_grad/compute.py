"""RmsNormGrad: computation in the product's order, formula and generated data.

Source: specification page ``rms_norm_grad``.
"""

from functools import partial
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import Arrays, Case, Dtype, Run, unsupported_values
from npu_sim.kernels import rms_norm_grad as kernels
from npu_sim.kernels.shared.arrival_orders import ArrivalOrder
from npu_sim.numbers.values import normal
from npu_sim.operators.shared.normalised_rows.compute import BLOCK_ELEMENTS, draw_gamma
from npu_sim.tiling import rms_norm_grad as tiler


def split_of(case: Case) -> kernels.Split:
    """Return the kernel's argument for the split of rows."""
    tiling = case.tiling
    if tiling.tiling_key == tiler.SPLIT_D:
        path = kernels.PIECES
    else:
        lanes = tiler.uses_lane_sums(tiling.columns_aligned, case.profile.npu_arch)
        path = kernels.LANES if lanes else kernels.HALVING
    return kernels.Split(path, tiling.block_dim, tiling.block_factor)


def compute(run: Run) -> None:
    """Compute dx and dgamma."""
    case = run.case
    with run.watch.stage("check"):
        run.caveats = unsupported_values(run.tensors) if case.profile.saturates else ()
    with run.watch.stage("compute"):
        shape, split = (case.row.row, case.row.col), split_of(case)
        rows = kernels.Rows(
            run.stored("dy").reshape(shape),
            run.stored("x").reshape(shape),
            run.stored("rstd").reshape(-1),
            run.stored("gamma").reshape(-1),
            run.written("dx").reshape(shape),
        )
        dgamma = run.written("dgamma").reshape(-1)
        order = ArrivalOrder(run.order.code, run.order.seed)
        kernels.rms_norm_grad(rows, split, case.deterministic, order, dgamma)
    run.masks["dgamma"] = partial(np.full, shape[1], tiler.depends_on_arrival(case.tiling))


def formula(arguments: Any, tensors: Arrays, precision: Dtype) -> Arrays:
    """Return the gradients by their formulas (page, "Formulas")."""
    shape, gamma = tensors["x"].shape, tensors["gamma"].astype(precision).reshape(-1)
    rows = tensors["x"].size // gamma.size
    dy = tensors["dy"].reshape(rows, -1)
    x = tensors["x"].reshape(rows, -1)
    rstd = tensors["rstd"].reshape(rows, 1)
    dx, dgamma = np.empty((rows, gamma.size), precision), np.zeros(gamma.size, precision)
    step = max(1, BLOCK_ELEMENTS // gamma.size)
    for begin in range(0, rows, step):
        block = slice(begin, begin + step)
        scale, gradient = rstd[block].astype(precision), dy[block].astype(precision)
        normed = x[block].astype(precision) * scale
        dgamma += (gradient * normed).sum(axis=0)
        mean = (gradient * gamma * normed).mean(axis=1, keepdims=True)
        dx[block] = (gradient * gamma - normed * mean) * scale
    return {"dx": dx.reshape(shape), "dgamma": dgamma.reshape(tensors["gamma"].shape)}


EPSILON = np.float32(1e-6)
"""Epsilon of the forward operator."""


def data(arguments: Any, seed: int) -> Arrays:
    """Return inputs as in a trained network: values of order 1, scales near 1."""
    random = np.random.default_rng(seed)
    dy, x = (normal(random, spec) for spec in (arguments.dy, arguments.x))
    gamma = draw_gamma(random, arguments.gamma)
    # The mean square of the rounded values, as in the forward operator.
    rows = x.reshape(arguments.rstd.numel, arguments.gamma.numel)
    squares = np.array([np.mean(np.square(row.astype(np.float32))) for row in rows], np.float32)
    return {
        "dy": dy,
        "x": x,
        "rstd": (1 / np.sqrt(squares + EPSILON)).reshape(arguments.rstd.shape),
        "gamma": gamma,
    }

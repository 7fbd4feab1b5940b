"""RmsNorm: computation, formula and generated data.

Source: specification page ``rms_norm``.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import Arrays, Case, Dtype, Run, to_fp32, unsupported_values
from npu_sim.kernels.rms_norm import rms_norm
from npu_sim.kernels.shared.square_sums import HALVING, LANES, PIECES, Split
from npu_sim.numbers.values import normal
from npu_sim.operators.shared.normalised_rows.compute import (
    draw_gamma,
    normalised_rows,
    overflowing_rows,
)
from npu_sim.tiling import rms_norm as tiler


def split_of(case: Case) -> Split:
    """Return the kernel's argument for the summation of a row."""
    paths = {tiler.KEY_MERGE_N: LANES, tiler.KEY_SPLIT_D: PIECES}
    path = paths.get(case.tiling.tiling_key, HALVING)
    return Split(path, case.tiling.ub_factor if path == PIECES else case.row.col)


def compute(run: Run) -> None:
    """Compute y and rstd."""
    compute_rows(run, split_of)


def compute_rows(run: Run, split_of_case: Callable[[Case], Split]) -> None:
    """Compute y and rstd, with the kernel's argument for the summation of a row."""
    case = run.case
    with run.watch.stage("check"):
        run.caveats = unsupported_values(run.tensors) if case.profile.saturates else ()
    with run.watch.stage("compute"):
        shape, rstd = (case.row.row, case.row.col), run.written("rstd").reshape(-1)
        x, gamma = run.stored("x").reshape(shape), run.stored("gamma").reshape(-1)
        rms_norm(
            x,
            gamma,
            split_of_case(case),
            to_fp32(case.arguments.epsilon),
            run.written("y").reshape(shape),
            rstd,
        )
    run.caveats += overflowing_rows(run.tensors["x"].reshape(shape), rstd)


def formula(arguments: Any, tensors: Arrays, precision: Dtype) -> Arrays:
    """Return y and rstd by their formulas (page, "Formula")."""
    x, gamma = tensors["x"], tensors["gamma"]
    rows = x.reshape(-1, gamma.size)
    y, rstd = normalised_rows(rows, gamma.reshape(-1), arguments.epsilon, precision)
    leading = x.shape[: x.ndim - gamma.ndim]
    return {"y": y.reshape(x.shape), "rstd": rstd.reshape(leading + (1,) * gamma.ndim)}


def data(arguments: Any, seed: int) -> Arrays:
    """Return inputs as in a trained network: activations of order 1, scales near 1."""
    random = np.random.default_rng(seed)
    gamma = draw_gamma(random, arguments.gamma)
    return {"x": normal(random, arguments.x), "gamma": gamma}

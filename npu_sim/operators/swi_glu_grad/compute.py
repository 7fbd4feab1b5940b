"""SwiGluGrad: computation, formula and generated data.

Source: specification page ``swi_glu_grad``.
"""

from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import Arrays, Dtype, Run
from npu_sim.kernels.swi_glu_grad import swi_glu_grad
from npu_sim.numbers.values import normal
from npu_sim.operators.shared.gated_halves.compute import (
    OVERFLOWS_BELOW,
    data_caveats,
    halves_of,
    sigmoid,
)

ROOT = np.float32(-1.2784645)
"""Where the derivative of silu is 0 (page, "Kernel")."""


def compute(run: Run, *, flushes: bool = False, grad_first: bool = False) -> None:
    """Compute out; ``flushes`` and ``grad_first`` are as in :mod:`npu_sim.kernels.swi_glu`."""
    rows, columns = run.case.row.row, run.case.row.col
    with run.watch.stage("compute"):
        whole, half = (rows, 2 * columns), (rows, columns)
        x, y_grad = run.stored("x").reshape(whole), run.stored("y_grad").reshape(half)
        counted = OVERFLOWS_BELOW[flushes], ROOT if x.dtype == np.float32 else np.float32(np.nan)
        counts = swi_glu_grad(
            x, y_grad, flushes, grad_first, *counted, run.written("x_grad").reshape(whole)
        )
    run.caveats = data_caveats(run, counts)


def formula(arguments: Any, tensors: Arrays, precision: Dtype) -> Arrays:
    """Return out by its formula (page, "Formula")."""
    a, b = halves_of(arguments, tensors["x"], precision)
    grad, s = tensors["y_grad"].astype(precision), sigmoid(a)
    halves = (grad * (s + s * (1 - s) * a) * b, grad * s * a)
    return {"x_grad": np.concatenate(halves, axis=int(arguments.dim))}


def data(arguments: Any, seed: int) -> Arrays:
    """Return activations and gradients of order 1."""
    random = np.random.default_rng(seed)
    return {"x": normal(random, arguments.x), "y_grad": normal(random, arguments.y_grad)}

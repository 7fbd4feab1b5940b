"""SwiGlu: computation, formula and generated data.

Source: specification page ``swi_glu``.
"""

from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import Arrays, Dtype, Run
from npu_sim.kernels.swi_glu import swi_glu
from npu_sim.numbers.values import normal
from npu_sim.operators.shared.gated_halves.compute import (
    OVERFLOWS_BELOW,
    data_caveats,
    halves_of,
    sigmoid,
)


def compute(run: Run, *, flushes: bool = False) -> None:
    """Compute out; with ``flushes``, the division loses subnormal results."""
    rows, columns = run.case.row.row, run.case.row.col
    with run.watch.stage("compute"):
        x = run.stored("x").reshape(rows, 2 * columns)
        out = run.written("y").reshape(rows, columns)
        counts = swi_glu(x, flushes, OVERFLOWS_BELOW[flushes], out)
    run.caveats = data_caveats(run, counts)


def formula(arguments: Any, tensors: Arrays, precision: Dtype) -> Arrays:
    """Return out by its formula (page, "Formula")."""
    a, b = halves_of(arguments, tensors["x"], precision)
    return {"y": a * sigmoid(a) * b}


def data(arguments: Any, seed: int) -> Arrays:
    """Return activations of order 1."""
    return {"x": normal(np.random.default_rng(seed), arguments.x)}

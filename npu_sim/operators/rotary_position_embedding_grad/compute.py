"""RotaryPositionEmbeddingGrad: computation, formula and generated data.

Source: specification page ``rotary_position_embedding_grad``.
"""

from functools import partial
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import Arrays, Case, Dtype, Run
from npu_sim.kernels.rotary_position_embedding_grad import (
    BY_HEAD,
    FROM_FIRST,
    FROM_ZERO,
    Sums,
    sum_products,
)
from npu_sim.kernels.shared.rotation import Tensors, rotate
from npu_sim.numbers.values import normal
from npu_sim.operators.rotary_position_embedding_grad.plan import (
    INTERLEAVED,
    OVERWRITTEN,
    can_be_overwritten,
    is_large,
    reuses_buffer,
)
from npu_sim.operators.shared.rotations.compute import angles, four_axes, rotated
from npu_sim.tiling.rotary_position_embedding import INTERLEAVE


def compute(run: Run) -> None:
    """Compute dx, and with x dcos and dsin."""
    interleaves = run.case.row.mode == INTERLEAVE
    with run.watch.stage("compute"):
        dy, cos, sin = (four_axes(run.stored(name)) for name in ("dy", "cos", "sin"))
        rotate(Tensors(dy, cos, sin, run.written("dx").reshape(-1)), interleaves, turns_back=True)
        if run.case.row.has_x:
            dcos, dsin = (four_axes(run.written(name)) for name in ("dcos", "dsin"))
            sums = Sums(dy, four_axes(run.stored("x")), dcos, dsin)
            sum_products(sums, interleaves, order_of(run.case))
    if reuses_buffer(run.case):
        for name in ("dcos", "dsin"):
            run.masks[name] = partial(can_be_overwritten, run.case)
            run.races[name] = OVERWRITTEN


def order_of(case: Case) -> int:
    """Return the order of the sums (page, "Kernel and order of the sums")."""
    layout = INTERLEAVED[case.tiling.interleaved.layout]
    if case.row.mode != INTERLEAVE or is_large(case.tiling) or layout == "BNSD":
        return FROM_ZERO
    return FROM_FIRST if layout == "SBND" else BY_HEAD


def formula(arguments: Any, tensors: Arrays, precision: Dtype) -> Arrays:
    """Return the gradients by their formula (page, "Formula")."""
    wide = {name: array.astype(precision) for name, array in tensors.items() if array is not None}
    dy, cos, sin, mode = wide["dy"], wide["cos"], wide["sin"], int(arguments.mode)
    results = {"dx": dy * cos - rotated(dy * sin, mode)}
    if "x" in wide:
        axes = tuple(np.flatnonzero(np.array(cos.shape) != np.array(dy.shape)).tolist())
        products = {"dcos": wide["x"] * dy, "dsin": rotated(wide["x"], mode) * dy}
        for name, product in products.items():
            results[name] = product.sum(axis=axes, keepdims=True)
    return results


def data(arguments: Any, seed: int) -> Arrays:
    """Return gradients and activations of order 1, and cos and sin of growing angles."""
    random = np.random.default_rng(seed)
    given = {"dy": normal(random, arguments.dy), **angles(arguments.cos)}
    return given if arguments.x is None else {**given, "x": normal(random, arguments.x)}

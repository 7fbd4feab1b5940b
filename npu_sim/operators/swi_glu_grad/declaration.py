"""SwiGluGrad: the gradient of SwiGlu.

Source: product document aclnnSwiGluGrad; specification page ``swi_glu_grad``.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    TILING_FAILURE,
    Case,
    Description,
    Evidence,
    Inspection,
    Operator,
    Output,
    Run,
    Tensor,
    checks,
)
from npu_sim.numbers.values import normal
from npu_sim.operators.swi_glu import declaration as forward
from npu_sim.operators.swi_glu.compute import OVERFLOWS_BELOW, data_caveats, halves_of, sigmoid
from npu_sim.operators.swi_glu.plan import describe_tiles, one_buffer_with
from npu_sim.tiling import swi_glu, swi_glu_grad

ONE_BUFFER = one_buffer_with(swi_glu_grad.tile)
ROOT = np.float32(-1.2784645)
"""Where the derivative of silu is 0 (page, "Kernel")."""


def check_strided(call: Inspection) -> None:
    """Refuse strided inputs up to release 8.5 (page, "Contract")."""
    if call.rules.copies_strided == 0:
        forward.refuse_strided(call)


OPERATOR = Operator(
    name="swi_glu_grad",
    title="SwiGluGrad",
    summary="Compute the gradient of SwiGlu as the product does.",
    arguments=(
        Tensor(
            "y_grad",
            forward.half,
            "gradient of the result of SwiGlu, (..., n, ...)",
            "dtype",
            samples=forward.sample_axis,
        ),
        Tensor(
            "x",
            forward.whole,
            "input of SwiGlu, (..., 2*n, ...): both halves along axis dim",
            "dtype",
            samples=forward.sample_axis,
        ),
        forward.DIM,
        Output(
            "out",
            forward.whole,
            "gradient of x, (..., 2*n, ...)",
            "dtype",
            samples=forward.sample_axis,
            result="x_grad",
        ),
    ),
    axes=forward.AXES,
    derived=forward.DERIVED,
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("y_grad", checks.product_dtypes),
        checks.SameDtype("x out", "y_grad"),
        checks.Formats(checks.PLAIN_FORMATS),
        checks.Attributes("dim"),
        forward.check_dim,
        checks.Ranks("x", 1, status=TILING_FAILURE),
        forward.check_even,
        checks.Shapes("x y_grad out", TILING_FAILURE),
        forward.DENSE_OUTPUT,
        checks.Holds("row * col >= 1", "x"),
        checks.Fits(swi_glu.inference_takes, "x", forward.sizes_message),
        check_strided,
    ),
    tiling=swi_glu.Tiling,
    tile=swi_glu_grad.tile,
    assumed=forward.ASSUMED,
    evidence=Evidence.EXACT,
    families=(ASCEND_950,),
    package=__package__,
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    return describe_tiles(case, swi_glu_grad.BUFFERS, ONE_BUFFER)


def compute(run: Run, *, is_950: bool = False) -> None:
    """Compute out in the order of operations of a product."""
    with run.watch.stage("load"):
        from npu_sim.kernels import swi_glu as kernels
    rows, columns = run.case.row.row, run.case.row.col
    with run.watch.stage("compute"):
        whole, half = (rows, 2 * columns), (rows, columns)
        x, y_grad = run.stored("x").reshape(whole), run.stored("y_grad").reshape(half)
        counted = OVERFLOWS_BELOW[is_950], ROOT if x.dtype == np.float32 else np.float32(np.nan)
        counts = kernels.swi_glu_grad(
            x, y_grad, is_950, *counted, run.written("x_grad").reshape(whole)
        )
    run.caveats = data_caveats(run, counts)


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Return out by its formula (page, "Formula")."""
    a, b = halves_of(arguments, tensors["x"], precision)
    grad, s = tensors["y_grad"].astype(precision), sigmoid(a)
    halves = (grad * (s + s * (1 - s) * a) * b, grad * s * a)
    return {"x_grad": np.concatenate(halves, axis=int(arguments.dim))}


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return activations and gradients of order 1."""
    random = np.random.default_rng(seed)
    return {"x": normal(random, arguments.x), "y_grad": normal(random, arguments.y_grad)}

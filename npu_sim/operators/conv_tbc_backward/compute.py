"""Computing ConvTbcBackward: what its kernels are told of a checked call; loaded with the first run.

Source: specification page ``conv_tbc_backward``, "Execution".
"""

from functools import partial

import numpy as np

from npu_sim.framework.case import Case
from npu_sim.framework.execution import Run
from npu_sim.kernels import conv_tbc_backward as kernels
from npu_sim.kernels.elementwise import narrow_array, widen_array
from npu_sim.numbers.storage import storage_view
from npu_sim.operators.conv_tbc_backward import staging
from npu_sim.operators.conv_tbc_backward.math import (
    computed_in,
    converts_to_fp16,
    elementwise_gradients,
)
from npu_sim.tiling.conv_tbc_backward.grad_weight_deterministic import tail_split
from npu_sim.tiling.conv_tbc_backward.planner import is_split, problem_of
from npu_sim.tiling.conv_tbc_backward.problem import ROUTE_MATMUL, ROUTE_PLANNER


def shares_of(case: Case) -> staging.Reduction:
    """Return how the reduction of gradWeight is shared by cores, as the kernel takes it."""
    batch, out_time, tiling = case.row.B, case.row.To, case.tiling
    if tiling.route == ROUTE_MATMUL:
        # One product summed over the batch: the batch takes the place of time, see `compute`.
        return kernels.Shares(1, 1, batch, batch), kernels.NO_TAIL
    if tiling.route == ROUTE_PLANNER:
        tail = tail_split(tiling.published, problem_of(case.row, case.rules))
        return kernels.Shares(
            batch, batch, out_time, out_time, anew=1
        ), kernels.NO_TAIL if tail is None else kernels.TailTiles(*tail)
    return kernels.Shares(
        batch, tiling.weight_model.single_samples, out_time, tiling.weight_model.single_reduction
    ), kernels.NO_TAIL


def weight_order_mask(case: Case) -> np.ndarray:
    """Return which elements of gradWeight depend on timing: terms of at least two cores reach them.

    Every core that shares a tile adds all of it; where a share of the time axis has no term for a
    tap (it meets only padding), what is added is 0, which changes no sum and does not count.
    """
    row, tiling = case.row, case.tiling.weight_model
    shape = (row.K, row.Cin, row.Cout)
    if not is_split(case.tiling):
        return np.zeros(shape, np.bool_)
    starts = np.arange(tiling.time_blocks)[:, None] * tiling.single_reduction
    stops = np.minimum(starts + tiling.single_reduction, row.To)
    shifts = np.arange(row.K)[None, :] - row.pad
    cores = (np.maximum(starts, -shifts) < np.minimum(stops, row.T - shifts)).sum(
        axis=0
    ) * tiling.sample_blocks
    return np.broadcast_to((cores > 1)[:, None, None], shape).copy()


def bias_order_mask(case: Case) -> np.ndarray:
    """Return which elements of gradBias depend on timing: all of them, or none."""
    return np.full(case.row.Cout, case.tiling.bias_cores > 1)


def roundings(case: Case) -> staging.Roundings:
    """Return how operands, and finished sums of gradInput, are rounded to the compute dtype."""
    if converts_to_fp16(case):
        to_fp16 = kernels.TO_FP16_SATURATED if case.profile.saturates else kernels.TO_FP16
        return to_fp16, to_fp16
    return (kernels.TO_HF32 if computed_in(case) == "hf32" else kernels.EXACT), kernels.EXACT


def compute(run: Run) -> None:
    """Compute the three gradients; with a workspace, every tensor between the kernels in its area."""
    case = run.case
    with run.watch.stage("compute"):
        if run.areas and case.tiling.route != ROUTE_MATMUL:
            staging.compute(run, run.areas, roundings(case), shares_of(case))
        else:
            _compute(run)
    run.masks |= {
        "grad_weight": partial(weight_order_mask, case),
        "grad_bias": partial(bias_order_mask, case),
    }


def _compute(run: Run) -> None:
    grad = run.stored("grad_output")
    _grad_input(run, grad)
    _grad_weight(run, grad)
    kernels.grad_bias(
        grad, run.written("grad_bias"), run.case.tiling.bias_rows, run.order.code, run.order.seed
    )


def _grad_input(run: Run, grad: np.ndarray) -> None:
    row, weight, out = run.case.row, run.stored("weight"), run.written("grad_input")
    operand, result = run.case.once(roundings)
    if "gradInput" in run.case.once(elementwise_gradients):
        # K = T: every time step of the result is that of one tap.
        for tap in range(row.K):
            kernels.multiply_elements(grad.reshape(-1), weight[tap].reshape(-1), operand, out[tap])
        return
    kernels.grad_input(grad, weight, out, row.pad, operand, result)


def _grad_weight(run: Run, grad: np.ndarray) -> None:
    row, case, out = run.case.row, run.case, run.written("grad_weight")
    x, (operand, _) = run.stored("input"), case.once(roundings)
    shares, order = case.once(shares_of), (run.order.code, run.order.seed)
    if case.tiling.route != ROUTE_MATMUL:
        kernels.grad_weight(x, grad, row.pad, 1, operand, out, *shares, *order)
    elif "gradWeight" in case.once(elementwise_gradients):
        kernels.multiply_elements(
            x.reshape(-1), grad.reshape(-1), operand, out.reshape(-1, row.Cout)
        )
    else:
        # Taps lie a whole batch apart when the batch takes the place of time.
        views = x.reshape(row.T * row.B, 1, row.Cin), grad.reshape(row.B, 1, row.Cout)
        # The product leaves in the dtype of its operands; a cast brings it back (page
        # ``workspace``).
        product = np.empty(out.shape, np.float16) if converts_to_fp16(case) else None
        kernels.grad_weight(
            *views,
            0,
            row.B,
            operand,
            out if product is None else storage_view(product),
            *shares,
            *order,
        )
        if product is not None:
            narrow_array(
                widen_array(product),
                run.outputs["grad_weight"].dtype,
                out=run.outputs["grad_weight"],
            )

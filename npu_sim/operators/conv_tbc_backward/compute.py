"""ConvTbcBackward: computation in the order of the product, the formula, and generated data.

Source: specification page ``conv_tbc_backward``, "Execution" and "Formulas". This module is
imported when a call runs: plans need no kernels.
"""

from functools import partial
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    ORDERED_ADDITIONS,
    Array,
    Arrays,
    Case,
    Dtype,
    Run,
    storage_view,
)
from npu_sim.kernels import conv_tbc_backward as kernels
from npu_sim.kernels.shared.arrival_orders import ArrivalOrder
from npu_sim.kernels.shared.elementwise import narrow_array, widen_array
from npu_sim.numbers.values import normal
from npu_sim.operators.conv_tbc_backward.declaration import computed_in
from npu_sim.operators.conv_tbc_backward.plan import converts_to_fp16, elementwise_gradients
from npu_sim.tiling.conv_tbc_backward import problem_of, weight_additions, weight_depends_on_arrival
from npu_sim.tiling.conv_tbc_backward.grad_weight_deterministic import (
    ROUTE_MATMUL,
    ROUTE_PLANNER,
    tail_split,
)

BIAS_SPREAD = 0.02
"""Standard deviation of a generated bias."""


def splits_of(case: Case) -> tuple[kernels.ReductionSplit, kernels.TailTiles]:
    """Return how cores split the reduction of gradWeight, as the kernel takes it."""
    batch, out_time, tiling = case.row.B, case.row.To, case.tiling
    if tiling.route == ROUTE_MATMUL:
        # One product summed over the batch: the batch takes the place of time, see _grad_weight.
        return kernels.ReductionSplit(1, 1, batch, batch), kernels.NO_TAIL
    if tiling.route == ROUTE_PLANNER:
        tail = tail_split(tiling.published, problem_of(case.row, case.rules))
        split = kernels.ReductionSplit(batch, batch, out_time, out_time, restarts=1)
        return split, kernels.NO_TAIL if tail is None else kernels.TailTiles(*tail)
    model = tiling.weight_model
    sizes = batch, model.single_samples, out_time, model.single_reduction
    return kernels.ReductionSplit(*sizes), kernels.NO_TAIL


def roundings(case: Case) -> tuple[int, int]:
    """Return the rounding of operands, and of finished sums of gradInput, to the compute dtype."""
    if converts_to_fp16(case):
        to_fp16 = kernels.TO_FP16_SATURATED if case.profile.saturates else kernels.TO_FP16
        return to_fp16, to_fp16
    return (kernels.TO_HF32 if computed_in(case) == "hf32" else kernels.EXACT), kernels.EXACT


def weight_order_mask(case: Case) -> Array:
    """Return which elements of gradWeight depend on the order of arrival: those of some taps."""
    row, tiling = case.row, case.tiling
    depends = np.zeros(row.K, np.bool_)
    if weight_depends_on_arrival(row, tiling):
        for tap in range(row.K):
            depends[tap] = weight_additions(row, tiling, tap) >= ORDERED_ADDITIONS
    return np.broadcast_to(depends[:, None, None], (row.K, row.Cin, row.Cout)).copy()


def compute(run: Run) -> None:
    """Compute the three gradients."""
    case, order = run.case, ArrivalOrder(run.order.code, run.order.seed)
    with run.watch.stage("compute"):
        grad, rows = run.stored("grad_output"), case.tiling.bias_rows
        _grad_input(run, grad)
        _grad_weight(run, grad, order)
        kernels.grad_bias(grad, run.written("grad_bias"), rows, order)
    run.masks |= {
        "grad_weight": partial(weight_order_mask, case),
        "grad_bias": partial(np.full, case.row.Cout, case.tiling.bias_cores >= ORDERED_ADDITIONS),
    }


def _grad_input(run: Run, grad: Array) -> None:
    row, weight, out = run.case.row, run.stored("weight"), run.written("grad_input")
    operand, result = roundings(run.case)
    if "gradInput" in elementwise_gradients(run.case):
        # K = T: every time step of the result comes from one tap.
        for tap in range(row.K):
            kernels.multiply_elements(grad.reshape(-1), weight[tap].reshape(-1), operand, out[tap])
        return
    kernels.grad_input(grad, weight, out, row.pad, operand, result)


def _grad_weight(run: Run, grad: Array, order: ArrivalOrder) -> None:
    row, case, out = run.case.row, run.case, run.written("grad_weight")
    x, (operand, _) = run.stored("input"), roundings(case)
    reduction = kernels.Reduction(*splits_of(case), order)
    if case.tiling.route != ROUTE_MATMUL:
        kernels.grad_weight(x, grad, row.pad, 1, operand, out, reduction)
        return
    if "gradWeight" in elementwise_gradients(case):
        products = out.reshape(-1, row.Cout)
        kernels.multiply_elements(x.reshape(-1), grad.reshape(-1), operand, products)
        return
    # The batch takes the place of time, so taps lie a whole batch apart.
    views = x.reshape(row.T * row.B, 1, row.Cin), grad.reshape(row.B, 1, row.Cout)
    if not converts_to_fp16(case):
        kernels.grad_weight(*views, 0, row.B, operand, out, reduction)
        return
    # The product has the dtype of its operands; a cast to the output follows (page "workspace").
    product, target = np.empty(out.shape, np.float16), run.outputs["grad_weight"]
    kernels.grad_weight(*views, 0, row.B, operand, storage_view(product), reduction)
    narrow_array(widen_array(product), target.dtype, out=target)


def fill(run: Run) -> None:
    """Write the outputs of a call with an empty input or weight: gradBias is B * To, others 0."""
    for array in run.outputs.values():
        array.fill(0)
    row, bias = run.case.row, run.outputs["grad_bias"]
    terms = np.full(bias.shape, row.B * row.To, np.float32)
    bias[...] = narrow_array(terms, bias.dtype, saturate=run.case.profile.saturates)


def formula(arguments: Any, tensors: Arrays, precision: Dtype) -> Arrays:
    """Return the gradients by their formulas (page, "Formulas"), computed in ``precision``."""
    gradient, x, weight = (
        tensors[name].astype(precision) for name in ("grad_output", "input", "weight")
    )
    out_time, batch, out_channels = gradient.shape
    time, _, in_channels = x.shape
    grad_input, grad_weight = np.zeros(x.shape, precision), np.zeros(weight.shape, precision)
    for tap in range(weight.shape[0]):
        # Output time t meets input time t + tap - pad where both exist.
        shift = tap - arguments.pad
        first, stop = max(0, -shift), min(out_time, time - shift)
        if first >= stop:
            continue
        rows = gradient[first:stop].reshape(-1, out_channels)
        products = (rows @ weight[tap].T).reshape(stop - first, batch, in_channels)
        grad_input[first + shift : stop + shift] += products
        grad_weight[tap] = x[first + shift : stop + shift].reshape(-1, in_channels).T @ rows
    return {
        "grad_input": grad_input,
        "grad_weight": grad_weight,
        "grad_bias": gradient.sum(axis=(0, 1)),
    }


def data(arguments: Any, seed: int) -> Arrays:
    """Return random inputs like those of a speech model.

    Activations have order 1, weights are small, and gradients are those of a loss averaged over
    all output rows.
    """
    random = np.random.default_rng(seed)
    taps, in_channels, _ = arguments.weight.shape
    out_time, batch, _ = arguments.grad_output.shape
    scales = {
        "grad_output": 1.0 / np.sqrt(max(out_time * batch, 1)),
        "input": 1.0,
        "weight": 1.0 / np.sqrt(max(taps * in_channels, 1)),
        "bias": BIAS_SPREAD,
    }
    return {name: normal(random, arguments[name], scale) for name, scale in scales.items()}

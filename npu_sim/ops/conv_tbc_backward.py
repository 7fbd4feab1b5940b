"""ConvTbcBackward: arguments, plan, computation.

Source: product document aclnnConvTbcBackward; specification page ``conv_tbc_backward``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from npu_sim.areas import Areas
from npu_sim.cores import Profile
from npu_sim.formats import TensorSpec
from npu_sim.ops import base
from npu_sim.ops.base import Arguments as BaseArguments
from npu_sim.ops.base import CoreOrder, Limits, Order, OrderMask, Result, Stopwatch, attribute, output_array, tensor
from npu_sim.ops.conv_tbc_backward_checks import NAME, TITLE, check, check_tiling
from npu_sim.plan_model import Caveat, OutputOrder, Plan
from npu_sim.planning.conv_tbc_backward import Case, plan_fields, tail_split
from npu_sim.tiling.conv_tbc_problem import ROUTE_MATMUL, ROUTE_PLANNER

if TYPE_CHECKING:
    from npu_sim.kernels.conv_tbc_backward_folds import Shares, TailTiles

__all__ = ["NAME", "TITLE", "Arguments", "check", "conv_tbc_backward", "execute", "infer", "make_plan"]


@dataclass(frozen=True, kw_only=True)
class Arguments(BaseArguments):
    """Arguments of the call; outputs default to what the inputs imply."""

    OUTPUTS: ClassVar[tuple[str, ...]] = ("grad_input", "grad_weight", "grad_bias")

    grad_output: TensorSpec | None = tensor("gradient of the output (self of the product document), (To, B, Cout)")
    input: TensorSpec | None = tensor("input of the convolution, (T, B, Cin)")
    weight: TensorSpec | None = tensor("weight, (K, Cin, Cout)")
    bias: TensorSpec | None = tensor("bias, (Cout)")
    pad: int = attribute("zeros at both ends of the time axis; To = T + 2 * pad - K + 1", default=0)
    cube_math_type: int = attribute("0 keep dtype, 1 allow lower precision, 2 use fp16, 3 use hf32", default=0)
    grad_input: TensorSpec | None = tensor("gradient of input, like input", output=True)
    grad_weight: TensorSpec | None = tensor("gradient of weight, like weight", output=True)
    grad_bias: TensorSpec | None = tensor("gradient of bias, like bias", output=True)


def infer(specs: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in grad_output and bias where input, weight and pad imply them: for commands that only plan."""
    filled = dict(specs)
    try:
        x, weight = (one if isinstance(one, TensorSpec) else TensorSpec.parse(one) for one in (specs["input"], specs["weight"]))
    except (KeyError, ValueError, AttributeError):
        return filled
    pad = specs.get("pad", 0)
    if x.rank != 3 or weight.rank != 3 or not isinstance(pad, int):
        return filled
    out_time = x.shape[0] + 2 * pad - weight.shape[0] + 1
    if filled.get("grad_output") is None and out_time >= 0:
        filled["grad_output"] = TensorSpec((out_time, x.shape[1], weight.shape[2]), x.dtype)
    if filled.get("bias") is None:
        filled["bias"] = TensorSpec((weight.shape[2],), x.dtype)
    return filled


def resolve(arguments: Arguments, profile: Profile, deterministic: bool, limits: Limits) -> Case:
    """Check a call, and that a tiling exists for it."""
    case = replace(check(arguments, profile, limits), deterministic=deterministic)
    if not case.is_empty:
        check_tiling(case)
    return case


def make_plan(arguments: Arguments, profile: Profile, deterministic: bool, limits: Limits) -> Plan:
    """Check a call and plan it."""
    return plan_of(resolve(arguments, profile, deterministic, limits), arguments, limits)


def plan_of(case: Case, arguments: Arguments, limits: Limits) -> Plan:
    """Plan a checked call."""
    fields = _empty_fields(case) if case.is_empty else plan_fields(case)
    return base.assemble_plan(NAME, TITLE, arguments, case.profile, fields, deterministic=case.deterministic, limits=limits, on_cube=True)


def _empty_fields(case: Case) -> dict[str, Any]:
    constant = case.batch * case.output_time
    message = (
        f"input or weight is empty: gradBias is the constant B * To = {case.batch} * {case.output_time} = {constant}, not the sum of self"
    )
    fixed = "a constant"
    return {
        **base.empty_fields("empty: no gradient is computed, gradInput and gradWeight are 0"),
        "path_reason": "input or weight has no element",
        "order": tuple(OutputOrder(output=name, deterministic=True, reason=fixed) for name in Arguments.OUTPUTS),
        "caveats": (Caveat(code="grad_bias_constant", argument="input", message=message),),
    }


def shares_of(case: Case) -> "tuple[Shares, TailTiles]":
    """Return how the reduction of gradWeight is shared by cores, as the kernel takes it."""
    from npu_sim.kernels.conv_tbc_backward_folds import NO_TAIL, Shares, TailTiles

    if case.route == ROUTE_MATMUL:
        # One product summed over the batch: the batch takes the place of time, see `_weight_views`.
        return Shares(1, 1, case.batch, case.batch), NO_TAIL
    if case.route == ROUTE_PLANNER:
        tail = tail_split(case)
        whole = Shares(case.batch, case.batch, case.output_time, case.output_time)
        if tail is None:
            return whole, NO_TAIL
        fields = (tail.slot_samples, tail.first, tail.m_edge, tail.n_edge, tail.m_tiles, tail.n_tiles, tail.m_fastest)
        return whole, TailTiles(*fields)
    tiling = case.weight_tiling
    return Shares(case.batch, tiling.single_samples, case.output_time, tiling.single_reduction), NO_TAIL


def _weight_views(case: Case, x: np.ndarray, grad: np.ndarray) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Return input, self, pad and the distance of taps as the gradWeight kernel takes them."""
    if case.route == ROUTE_MATMUL:
        rows = x.shape[0] * x.shape[1]
        return x.reshape(rows, 1, x.shape[2]), grad.reshape(case.batch, 1, grad.shape[2]), 0, case.batch
    return x, grad, case.pad, 1


def weight_order_mask(case: Case) -> np.ndarray:
    """Return which elements of gradWeight depend on timing: terms of at least two cores reach them.

    Every core that shares a tile adds all of it; where a share of the time axis has no term for a tap (it meets only
    padding), what is added is 0, which changes no sum and does not count.
    """
    shape = (case.taps, case.in_channels, case.out_channels)
    if not case.is_split:
        return np.zeros(shape, np.bool_)
    tiling = case.weight_tiling
    starts = np.arange(tiling.time_blocks)[:, None] * tiling.single_reduction
    stops = np.minimum(starts + tiling.single_reduction, case.output_time)
    shifts = np.arange(case.taps)[None, :] - case.pad
    cores = (np.maximum(starts, -shifts) < np.minimum(stops, case.time - shifts)).sum(axis=0) * tiling.sample_blocks
    return np.broadcast_to((cores > 1)[:, None, None], shape).copy()


def roundings(case: Case) -> tuple[int, int]:
    """Return how operands, and finished sums of gradInput, are rounded to the compute dtype."""
    from npu_sim.kernels.conv_tbc_backward_operands import EXACT, TO_FP16, TO_FP16_SATURATED, TO_HF32

    if case.converts_to_fp16:
        to_fp16 = TO_FP16_SATURATED if case.profile.saturates else TO_FP16
        return to_fp16, to_fp16
    return (TO_HF32 if case.compute == "hf32" else EXACT), EXACT


def _compute(case: Case, tensors: Mapping[str, np.ndarray], outputs: dict[str, np.ndarray], order: Order) -> None:
    from npu_sim.dtypes import kernel_input, storage_view
    from npu_sim.kernels import conv_tbc_backward as kernels

    grad, x, weight = (kernel_input(tensors[name]) for name in ("grad_output", "input", "weight"))
    operand, result = roundings(case)
    kernels.grad_input(grad, weight, storage_view(outputs["grad_input"]), case.pad, operand, result)
    shares, tail = shares_of(case)
    views = _weight_views(case, x, grad)
    kernels.grad_weight(*views, operand, storage_view(outputs["grad_weight"]), shares, tail, order.code, order.seed)
    kernels.grad_bias(grad, storage_view(outputs["grad_bias"]))


def _fill_constants(case: Case, outputs: dict[str, np.ndarray]) -> None:
    from npu_sim.dtypes import narrow_array

    outputs["grad_input"].fill(0)
    outputs["grad_weight"].fill(0)
    constant = np.full(outputs["grad_bias"].shape, case.batch * case.output_time, np.float32)
    outputs["grad_bias"][...] = narrow_array(constant, outputs["grad_bias"].dtype)


def execute(
    arguments: Arguments,
    tensors: Mapping[str, np.ndarray],
    profile: Profile,
    *,
    deterministic: bool,
    order: Order,
    limits: Limits,
    outs: tuple[Any, ...] = (),
    areas: Areas | None = None,
) -> Result:
    """Check, plan and compute one call; see :func:`npu_sim.ops.run`. With ``areas`` what lies in the workspace passes through it."""
    watch = Stopwatch()
    with watch.stage("plan"):
        case = resolve(arguments, profile, deterministic, limits)
    written, given = {}, {}
    for place, (name, like) in enumerate(zip(Arguments.OUTPUTS, ("input", "weight", "bias"), strict=True)):
        spec = TensorSpec.of(tensors[like])
        out = outs[place] if place < len(outs) else None
        written[name], given[name] = output_array(name, out, TensorSpec(spec.shape, spec.dtype), tensors)
    with watch.stage("load"):
        from npu_sim.dtypes import saturate
    with watch.stage("compute"):
        if case.is_empty:
            _fill_constants(case, written)
        elif areas:
            from npu_sim.staging import conv_tbc_backward as staging

            staging.compute(case, tensors, written, order, areas)
        else:
            _compute(case, tensors, written, order)
        for name, array in written.items():
            if profile.saturates:
                saturate(array)
            if array is not given[name]:
                np.copyto(given[name], array)
    with watch.stage("order mask"):
        fixed = {name: OrderMask("element", np.broadcast_to(np.False_, given[name].shape)) for name in Arguments.OUTPUTS}
        if not case.is_empty:
            fixed["grad_weight"] = OrderMask("element", weight_order_mask(case))
    return Result(given, partial(plan_of, case, arguments, limits), fixed, watch.seconds)


def conv_tbc_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    bias: Any,
    pad: int = 0,
    cube_math_type: int = 0,
    *,
    profile: str | Path | Profile = "atlas_a2",
    soc: str | None = None,
    deterministic: bool = False,
    core_order: CoreOrder = "sequential",
    seed: int = 0,
    limits: Limits = "documented",
    out: Any = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute the gradients of a temporal convolution, as the product does.

    Parameters
    ----------
    grad_output
        Gradient of the output (``self`` of the product document), (To, B, Cout), To = T + 2 * pad - K + 1: float32, float16, or
        bfloat16 (ml_dtypes, or anything that speaks DLPack).
    input
        Input of the convolution, (T, B, Cin), of the same dtype.
    weight
        Weight, (K, Cin, Cout).
    bias
        Bias, (Cout); only its shape matters.
    pad
        Zeros at both ends of the time axis.
    cube_math_type
        0 keeps the dtype, 1 allows lower precision, 2 computes in fp16, 3 in hf32.
    profile, soc, deterministic, core_order, seed, limits
        See :func:`npu_sim.run`.
    out
        Three arrays to write to, or None.

    Returns
    -------
    tuple of ndarray
        Gradients of input, weight and bias, each like what it is the gradient of.

    Raises
    ------
    AclnnError
        With the product's status when the call is refused.
    """
    from npu_sim.ops import run

    result = run(
        NAME,
        profile=profile,
        soc=soc,
        deterministic=deterministic,
        core_order=core_order,
        seed=seed,
        limits=limits,
        out=out,
        grad_output=grad_output,
        input=input,
        weight=weight,
        bias=bias,
        pad=pad,
        cube_math_type=cube_math_type,
    )
    outputs = result.outputs
    return outputs["grad_input"], outputs["grad_weight"], outputs["grad_bias"]

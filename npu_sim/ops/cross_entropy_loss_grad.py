"""CrossEntropyLossGrad: arguments, ordered checks, and the run.

Source: product document aclnnCrossEntropyLossGrad; specification page ``cross_entropy_loss_grad``, "Contract" and "The limit".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from npu_sim.areas import Areas, contiguous
from npu_sim.cores import Profile
from npu_sim.formats import TensorSpec
from npu_sim.ops import base
from npu_sim.ops.base import Arguments as BaseArguments
from npu_sim.ops.base import CoreOrder, Limits, Order, OrderMask, Result, Stopwatch, attribute, output_array, tensor
from npu_sim.ops.cross_entropy_loss_grad_checks import (
    NAME,
    TITLE,
    check_attributes,
    check_dtypes,
    check_ignore_index,
    check_limits,
    check_shapes,
)
from npu_sim.plan_model import Caveat, Plan
from npu_sim.planning.cross_entropy_loss_grad import Case, plan_fields
from npu_sim.workspace import TensorArea

if TYPE_CHECKING:
    from npu_sim.kernels.cross_entropy_loss_grad import Survey


@dataclass(frozen=True, kw_only=True)
class Arguments(BaseArguments):
    """Arguments of the call; ``out`` defaults to what the others imply."""

    OUTPUTS: ClassVar[tuple[str, ...]] = ("x_grad",)

    grad_loss: TensorSpec | None = tensor("gradient of the loss: a scalar for mean and sum, (N,) for none")
    log_prob: TensorSpec | None = tensor("log-softmax of the forward pass, (N, C)")
    target: TensorSpec | None = tensor("label of every row, (N,), int64")
    weight: TensorSpec | None = tensor("weight of every label, (C,), fp32", optional=True)
    reduction: str = attribute("none, mean or sum", default="mean")
    ignore_index: int = attribute("label whose rows get no gradient; negative means none", default=-100)
    label_smoothing: float = attribute("not supported yet: 0", default=0.0)
    lse_square_scale_for_zloss: float = attribute("not supported yet: 0", default=0.0)
    grad_zloss: TensorSpec | None = tensor("not supported yet: leave it out", optional=True)
    lse_for_zloss: TensorSpec | None = tensor("not supported yet: leave it out", optional=True)
    out: TensorSpec | None = tensor("the output, (N, C)", output=True)


def infer(specs: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in grad_loss where log_prob and the reduction imply it: for commands that only plan."""
    filled = dict(specs)
    if filled.get("grad_loss") is not None:
        return filled
    try:
        given = specs["log_prob"]
        log_prob = given if isinstance(given, TensorSpec) else TensorSpec.parse(given)
    except (KeyError, ValueError, AttributeError):
        return filled
    filled["grad_loss"] = TensorSpec(log_prob.shape[:1] if specs.get("reduction") == "none" else (), log_prob.dtype)
    return filled


def check(arguments: Arguments, profile: Profile, limits: Limits = "documented") -> Case:
    """Run the contract's checks in the product's order; return the call reduced to what planning needs.

    Raises
    ------
    AclnnError
        With the status of the first check that fails.
    """
    base.require_tensors(arguments)
    base.require_product(NAME, TITLE, profile)
    check_dtypes(arguments, profile)
    check_attributes(arguments)
    ignore_index = base.require_int("ignore_index", arguments.ignore_index, -(2**63), 2**63 - 1)
    rows, columns = check_shapes(arguments)
    check_ignore_index(ignore_index, columns)
    log_prob = arguments.log_prob
    assert log_prob is not None
    inputs = ((name, getattr(arguments, name)) for name in Arguments.tensors(inputs_only=True))
    case = Case(
        rows=rows,
        columns=columns,
        dtype=log_prob.dtype,
        weighted=arguments.weight is not None,
        reduction=arguments.reduction,
        ignore_index=ignore_index,
        copies=tuple(TensorArea(f"contiguous {name}", spec.nbytes) for name, spec in inputs if spec is not None and not spec.contiguous),
        rows_below=profile.limits.cross_entropy_rows_below if limits == "documented" else None,
        profile=profile,
    )
    if not is_empty(case):
        check_limits(case)
    return case


def is_empty(case: Case) -> bool:
    """Whether there is no row: nothing runs."""
    return case.rows == 0


def make_plan(arguments: Arguments, profile: Profile, deterministic: bool, limits: Limits) -> Plan:
    """Check a call and plan it."""
    return plan_of(check(arguments, profile, limits), arguments, deterministic, limits)


def plan_of(case: Case, arguments: Arguments, deterministic: bool, limits: Limits) -> Plan:
    """Plan a checked call."""
    fields = base.empty_fields("empty: no rows, nothing runs") if is_empty(case) else plan_fields(case)
    return base.assemble_plan(NAME, TITLE, arguments, case.profile, fields, deterministic=deterministic, limits=limits)


def check_labels(survey: "Survey", target: np.ndarray, case: Case) -> tuple[Caveat, ...]:
    """Check what only the data can tell; return the warnings that only it can give.

    Raises
    ------
    AclnnError
        361001 for a label outside [0, C) that is not ignore_index, naming the first one's position and value.
    """
    row = survey.out_of_range
    if row >= 0:
        message = f"target[{row}] = {target[row]} is out of range: C = {case.columns}"
        hint = f"0 <= label < {case.columns}, or ignore_index = {case.ignore_index}; nothing was written"
        raise base.runtime_failure("target", message, hint)
    caveats = []
    if case.reduction == "mean" and survey.ignored == case.rows:
        message = f"all {case.rows} labels are ignored: the divisor is 0 and x_grad is nan"
        caveats.append(Caveat(code="all_labels_ignored", argument="target", message=message))
    if survey.aliased:
        message = f"{survey.aliased} labels are ignored because fp32 cannot tell them from ignore_index {case.ignore_index}"
        caveats.append(Caveat(code="labels_aliased", argument="target", message=message))
    return tuple(caveats)


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
    """Check, plan and compute one call; see :func:`npu_sim.ops.run`. No addition depends on ``order``.

    With ``areas`` the sums of the cores (for mean) and copies of inputs that are not contiguous lie in the workspace.
    """
    watch = Stopwatch()
    with watch.stage("plan"):
        case = check(arguments, profile, limits)
        plan = plan_of(case, arguments, deterministic, limits)
    written, out = output_array("out", outs[0] if outs else None, TensorSpec((case.rows, case.columns), case.dtype), tensors)
    caveats: tuple[Caveat, ...] = ()
    if not is_empty(case):
        staged = {name: contiguous(name, array, areas) for name, array in tensors.items()}
        caveats = _compute(case, plan, staged, written, watch, areas)
        if written is not out:
            np.copyto(out, written)
    mask = OrderMask("row", np.zeros(case.rows, np.bool_))
    return Result({"x_grad": out}, plan, {"x_grad": mask}, watch.seconds, caveats)


def _compute(
    case: Case, plan: Plan, tensors: Mapping[str, np.ndarray], written: np.ndarray, watch: Stopwatch, areas: Areas | None
) -> tuple[Caveat, ...]:
    """Check the labels and write the result; return the warnings that only the data could give."""
    with watch.stage("load"):
        from npu_sim.dtypes import kernel_input, saturate, storage_view, widen_array
        from npu_sim.kernels import cross_entropy_loss_grad as kernels
    with watch.stage("check"):
        target, weight = kernel_input(tensors["target"]), tensors.get("weight")
        weight = None if weight is None else kernel_input(weight)
        ranges = np.array([core.ranges["rows"] for core in plan.cores], np.int64)
        mean = case.reduction == "mean"
        sums = areas.array("sums of the cores", (len(ranges),), "float32") if areas is not None and mean else None
        survey = kernels.survey_labels(target, weight, case.columns, case.ignore_index, ranges, mean, sums)
        caveats = check_labels(survey, target, case)
    with watch.stage("compute"):
        grad_loss, log_prob = widen_array(tensors["grad_loss"]).reshape(-1), kernel_input(tensors["log_prob"])
        kernels.write_gradient(grad_loss, survey.divisor, log_prob, target, weight, case.ignore_index, storage_view(written))
        if case.profile.saturates:
            saturate(written)
    return caveats


def cross_entropy_loss_grad(
    grad_loss: Any,
    log_prob: Any,
    target: Any,
    weight: Any = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    lse_square_scale_for_zloss: float = 0.0,
    grad_zloss: Any = None,
    lse_for_zloss: Any = None,
    *,
    profile: str | Path | Profile = "atlas_a2",
    soc: str | None = None,
    deterministic: bool = False,
    core_order: CoreOrder = "sequential",
    seed: int = 0,
    limits: Limits = "documented",
    out: Any = None,
) -> np.ndarray:
    """Return the gradient of the cross-entropy loss with respect to its logits, as the product computes it.

    Parameters
    ----------
    grad_loss
        Gradient of the loss, in the dtype of ``log_prob``: a scalar for ``mean`` and ``sum``, (N,) for ``none``.
    log_prob
        Log-softmax of the forward pass, (N, C): float32, float16, or bfloat16 (ml_dtypes, or anything that speaks DLPack).
    target
        Label of every row, (N,) int64, in [0, C) or ``ignore_index``.
    weight
        Weight of every label, (C,) float32; None means 1.
    reduction
        ``none``, ``mean`` or ``sum``.
    ignore_index
        Label whose rows get no gradient, below C.
    label_smoothing, lse_square_scale_for_zloss, grad_zloss, lse_for_zloss
        Not supported by the product yet: 0 and None.
    profile, soc, deterministic, core_order, seed, limits, out
        See :func:`npu_sim.run`; the result never depends on ``deterministic``, ``core_order`` and ``seed``.

    Returns
    -------
    ndarray
        (N, C) in the dtype of ``log_prob``.

    Raises
    ------
    AclnnError
        With the product's status when the call is refused, 361001 for a label out of range.
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
        grad_loss=grad_loss,
        log_prob=log_prob,
        target=target,
        weight=weight,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        lse_square_scale_for_zloss=lse_square_scale_for_zloss,
        grad_zloss=grad_zloss,
        lse_for_zloss=lse_for_zloss,
    )
    return result.outputs["x_grad"]

"""RmsNormGrad: arguments, ordered checks, plan, computation.

Source: product document aclnnRmsNormGrad; specification page ``rms_norm_grad``, "Contract".
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from npu_sim.areas import Areas
from npu_sim.cores import Profile
from npu_sim.formats import FORMATS, TensorSpec, canonical_dtype
from npu_sim.ops import base
from npu_sim.ops.base import Arguments as BaseArguments
from npu_sim.ops.base import CoreOrder, Limits, Order, OrderMask, Result, Stopwatch, output_array, tensor
from npu_sim.ops.rms_norm_grad_checks import INPUTS, NAME, TITLE, all_specs, check
from npu_sim.plan_model import Caveat, Plan
from npu_sim.planning.rms_norm_grad import Case, plan_fields
from npu_sim.status import INVALID, AclnnError
from npu_sim.storage import UNSIGNED, magnitude_patterns
from npu_sim.tiling import rms_norm_grad as tiler

if TYPE_CHECKING:
    from npu_sim.kernels.rms_norm_grad import Split

__all__ = ["NAME", "TITLE", "Arguments", "check", "execute", "infer", "make_plan", "rms_norm_grad"]

SCAN_ELEMENTS = 1 << 18
"""Elements looked through at once for inf and nan."""


@dataclass(frozen=True, kw_only=True)
class Arguments(BaseArguments):
    """Arguments of the call; the outputs default to what the inputs imply."""

    OUTPUTS: ClassVar[tuple[str, ...]] = ("dx", "dgamma")

    dy: TensorSpec | None = tensor("gradient of the normalised output, like x")
    x: TensorSpec | None = tensor("input of the forward operator, (rows ..., columns ...); commands that only plan take it like dy")
    rstd: TensorSpec | None = tensor("1/sqrt(mean(x^2)+eps) of every row, fp32, (rows ...); commands that only plan infer it")
    gamma: TensorSpec | None = tensor("scale of every column, (columns ...)")
    dx: TensorSpec | None = tensor("gradient of x, like dy", output=True)
    dgamma: TensorSpec | None = tensor("gradient of gamma, fp32, like gamma", output=True)


def infer(specs: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in dy, x and rstd where the other tensors imply them: for commands that only plan.

    The contract itself refuses a missing tensor with 161001, as the product does.
    """
    filled = dict(specs)
    for name, like in (("x", "dy"), ("dy", "x")):
        if filled.get(name) is None and filled.get(like) is not None:
            filled[name] = filled[like]
    try:
        x, gamma = (one if isinstance(one, TensorSpec) else TensorSpec.parse(one) for one in (filled["x"], filled["gamma"]))
    except (KeyError, ValueError, AttributeError):
        return filled  # the contract says what is wrong with them
    if filled.get("rstd") is None and gamma.rank <= x.rank:
        filled["rstd"] = TensorSpec(x.shape[: x.rank - gamma.rank], "float32")
    return filled


def resolve(arguments: Arguments, profile: Profile, deterministic: bool, limits: Limits) -> Case:
    """Check a call; the case that comes back has a tiling."""
    return replace(check(arguments, profile, limits), deterministic=deterministic)


def make_plan(arguments: Arguments, profile: Profile, deterministic: bool, limits: Limits) -> Plan:
    """Check a call and plan it."""
    return plan_of(resolve(arguments, profile, deterministic, limits), arguments, limits)


def plan_of(case: Case, arguments: Arguments, limits: Limits) -> Plan:
    """Plan a checked call."""
    fields = plan_fields(case)
    return base.assemble_plan(NAME, TITLE, arguments, case.profile, fields, deterministic=case.deterministic, limits=limits)


def split_of(case: Case) -> "Split":
    """Return how the case's rows are split, as the kernel takes it."""
    from npu_sim.kernels import rms_norm_grad as kernels

    tiling = case.tiling()
    if tiling.tiling_key == tiler.SPLIT_D:
        path = kernels.PIECES
    else:
        lanes = tiler.takes_lanes(tiling.columns_aligned, case.profile.npu_arch)
        path = kernels.LANES if lanes else kernels.HALVING
    return kernels.Split(path, tiling.block_dim, tiling.block_factor)


def unsupported_values(tensors: Mapping[str, np.ndarray]) -> tuple[Caveat, ...]:
    """Return a warning for every input with inf or nan, which saturating products do not support ("边界值场景说明")."""
    from npu_sim.dtypes import kernel_input

    caveats = []
    for name in INPUTS:
        stored = kernel_input(tensors[name]).reshape(-1)
        mask, infinity = magnitude_patterns(FORMATS[canonical_dtype(tensors[name].dtype)])
        bits = stored.view(UNSIGNED[stored.itemsize])
        found = sum(
            int(np.count_nonzero((bits[start : start + SCAN_ELEMENTS] & mask) >= infinity)) for start in range(0, bits.size, SCAN_ELEMENTS)
        )
        if found:
            message = f"{name} has {found} elements that are inf or nan, which this product does not support: results are a model"
            caveats.append(Caveat(code="inf_or_nan_input", argument=name, message=message))
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
    """Check, plan and compute one call; see :func:`npu_sim.ops.run`.

    With ``areas`` the dgamma of every core (deterministic) lies in the workspace. Reserved and not filled: the system workspace,
    the words for synchronisation, and with chunks the means of every row, which the kernel needs only once.
    """
    watch = Stopwatch()
    with watch.stage("plan"):
        case = resolve(arguments, profile, deterministic, limits)
    results = _output_arrays(arguments, tensors, outs)
    with watch.stage("load"):
        from npu_sim.dtypes import kernel_input, saturate, storage_view
        from npu_sim.kernels import rms_norm_grad as kernels
    with watch.stage("check"):
        caveats = unsupported_values(tensors) if profile.saturates else ()
    with watch.stage("compute"):
        shape = (case.rows, case.columns)
        (dx, _), (dgamma, _) = results.values()
        kernels.rms_norm_grad(
            kernel_input(tensors["dy"]).reshape(shape),
            kernel_input(tensors["x"]).reshape(shape),
            kernel_input(tensors["rstd"]).reshape(-1),
            kernel_input(tensors["gamma"]).reshape(-1),
            split_of(case),
            deterministic,
            order.code,
            order.seed,
            storage_view(dx).reshape(shape),
            dgamma.reshape(-1),
            _vectors(case, areas),
        )
        for written, out in results.values():
            if profile.saturates:
                saturate(written)
            if written is not out:
                np.copyto(out, written)
    moves = not deterministic and split_of(case).block_dim > 1
    masks = {"dx": OrderMask("row", np.zeros(case.rows, np.bool_)), "dgamma": OrderMask("column", np.full(case.columns, moves))}
    return Result(
        {name: out for name, (_, out) in results.items()}, partial(plan_of, case, arguments, limits), masks, watch.seconds, caveats
    )


def _vectors(case: Case, areas: Areas | None) -> np.ndarray | None:
    """Return the part of the workspace where cores keep their dgamma apart; None when they do not."""
    name = "dgamma of every core"
    if areas is None or name not in areas:
        return None
    cores = split_of(case).block_dim
    bytes_of_core = areas.bytes_of(name) // cores
    return areas.array(name, (cores, bytes_of_core // 4), "float32")


def _output_arrays(
    arguments: Arguments, tensors: Mapping[str, np.ndarray], outs: tuple[Any, ...]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return for both outputs the array the kernel writes and the one the caller gets."""
    names = Arguments.OUTPUTS
    if len(outs) > len(names):
        raise AclnnError(INVALID, "out", f"out has {len(outs)} arrays", f"one for every output: {', '.join(names)}")
    specs = all_specs(arguments)
    taken = dict(tensors)
    results = {}
    for name, out in zip(names, (*outs, None, None), strict=False):
        results[name] = output_array(name, out, TensorSpec(specs[name].shape, specs[name].dtype), taken)
        taken[name] = results[name][1]
    return results


def rms_norm_grad(
    dy: Any,
    x: Any,
    rstd: Any,
    gamma: Any,
    *,
    profile: str | Path | Profile = "atlas_a2",
    soc: str | None = None,
    deterministic: bool = False,
    core_order: CoreOrder = "sequential",
    seed: int = 0,
    limits: Limits = "documented",
    out: Any = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the gradients of RMS normalisation as the product does.

    Parameters
    ----------
    dy
        Gradient of the output, like ``x``: float32, float16, or bfloat16 (ml_dtypes, or anything that speaks DLPack).
    x
        Input of the forward operator; its last axes are those of ``gamma``.
    rstd
        1/sqrt(mean(x^2)+eps) of every row, float32, shaped like the other axes of ``x``.
    gamma
        Scale of every column, in the dtype of ``x`` or (Atlas A2, A3) float32.
    profile, soc, deterministic, core_order, seed, limits
        See :func:`npu_sim.run`.
    out
        Arrays (dx, dgamma) to write to; either may be None.

    Returns
    -------
    dx : ndarray
        Like ``x``. dx = (dy*gamma - xh*mean(dy*gamma*xh))*rstd with xh = x*rstd.
    dgamma : ndarray of float32
        Like ``gamma``. dgamma = sum of dy*xh over the rows.

    Raises
    ------
    AclnnError
        With the product's status when the call is refused.
    """
    from npu_sim.ops import run

    options: dict[str, Any] = {"profile": profile, "soc": soc, "deterministic": deterministic, "limits": limits}
    result = run(NAME, core_order=core_order, seed=seed, out=out, dy=dy, x=x, rstd=rstd, gamma=gamma, **options)
    return result.outputs["dx"], result.outputs["dgamma"]

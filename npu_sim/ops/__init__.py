"""Contracts of the operators, and the two calls that serve them all: :func:`plan` and :func:`run`."""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from npu_sim.cores import Profile, load_profile
from npu_sim.formats import as_array
from npu_sim.ops.base import Arguments, CoreOrder, Limits, Order, Result, require_bool, require_limits
from npu_sim.plan_model import Plan
from npu_sim.profile_file import closest
from npu_sim.registry import OPERATOR_NAMES, find_operator
from npu_sim.status import INVALID, AclnnError


def operator_module(operator: str) -> ModuleType:
    """Return the contract module of an operator.

    Raises
    ------
    AclnnError
        161002 when there is no such operator.
    """
    entry = find_operator(operator)
    if entry is None:
        hint = f"operators: {', '.join(OPERATOR_NAMES)}{closest(operator, OPERATOR_NAMES)}"
        raise AclnnError(INVALID, "operator", f"operator = {operator!r}: no such operator", hint)
    return import_module(f"npu_sim.ops.{entry.name}")


def plan(
    operator: str,
    *,
    profile: str | Path | Profile = "atlas_a2",
    soc: str | None = None,
    deterministic: bool = False,
    limits: Limits = "documented",
    **arguments: Any,
) -> Plan:
    """Plan one call: check it against the contract, then decide path, tiling, buffers and workspace.

    Parameters
    ----------
    operator
        Name of the operator, here (``rms_norm_grad``) or in the product documents (``RmsNormGrad``).
    profile, soc
        Product (name or YAML file) and SoC; the product's default SoC when None.
    deterministic
        The determinism switch.
    limits
        ``documented`` enforces what the product documents state, ``hardware`` only what really does not fit.
    **arguments
        The operator's arguments: tensors as :class:`~npu_sim.formats.TensorSpec`, text such as ``"4096x512:bf16"``, or arrays.

    Raises
    ------
    AclnnError
        With the product's status when the call is refused.
    """
    module = operator_module(operator)
    built: Arguments = module.Arguments.build(arguments)
    loaded = load_profile(profile, soc)
    result: Plan = module.make_plan(built, loaded, require_bool("deterministic", deterministic), require_limits(limits))
    return result


def run(
    operator: str,
    *,
    profile: str | Path | Profile = "atlas_a2",
    soc: str | None = None,
    deterministic: bool = False,
    core_order: CoreOrder = "sequential",
    seed: int = 0,
    limits: Limits = "documented",
    out: Any = None,
    **arguments: Any,
) -> Result:
    """Plan one call and compute it with the product's arithmetic and accumulation order.

    Parameters
    ----------
    core_order, seed
        Order in which the atomic additions of different cores arrive; deterministic kernels ignore it.
    out
        Array (or tuple of arrays, one for every output in order) to write the results to; new arrays when None.
    operator, profile, soc, deterministic, limits, **arguments
        As for :func:`plan`, with arrays for the tensors.

    Raises
    ------
    AclnnError
        With the product's status when the call is refused, 361001 when the data is out of bounds; ``out`` is then untouched.
    """
    module = operator_module(operator)
    names = module.Arguments.tensors(inputs_only=True)
    tensors = {name: as_array(value) for name, value in arguments.items() if name in names and value is not None}
    built: Arguments = module.Arguments.build({**arguments, **tensors})
    outs = tuple(out) if isinstance(out, tuple | list) else (out,) * (out is not None)
    result: Result = module.execute(
        built,
        tensors,
        load_profile(profile, soc),
        deterministic=require_bool("deterministic", deterministic),
        order=Order(core_order, seed),
        limits=require_limits(limits),
        outs=outs,
    )
    return result

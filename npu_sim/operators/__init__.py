"""The operators, one declaration each, and the two calls that serve them all: :func:`plan` and :func:`run`.

Questions, sweeps and faces enter through :func:`npu_sim.registry.load_operator`; an operator's files are ``<name>*.py``.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npu_sim.cores import Profile, load_profile
from npu_sim.operators.contract.arguments import tensor_of
from npu_sim.operators.contract.case import Limits
from npu_sim.operators.contract.checks import require_bool
from npu_sim.operators.contract.flips import plan_with_results
from npu_sim.operators.contract.operator import Operator
from npu_sim.operators.contract.results import CoreOrder, Order, Result
from npu_sim.plans.model import Plan
from npu_sim.registry import load_operator
from npu_sim.status import UsageError, closest, shown, straight

if TYPE_CHECKING:
    from npu_sim.operators.contract.prepared import Prepared

LIMITS: tuple[Limits, ...] = ("documented", "hardware")


def require_limits(limits: str) -> Limits:
    """Check the ``limits`` switch."""
    for known in LIMITS:
        if isinstance(limits, str) and limits == known:
            return known
    raise UsageError("limits", f"limits = {shown(limits)} is not a set of limits", f"one of: {', '.join(LIMITS)}{closest(limits, LIMITS)}")


@straight
def plan(
    operator: str,
    *,
    product: str | Path | Profile | None = None,
    soc: str | None = None,
    release: str | None = None,
    deterministic: bool = False,
    limits: Limits = "documented",
    **arguments: Any,
) -> Plan:
    """Plan one call: check it against the contract, then decide path, tiling, buffers and workspace.

    Parameters
    ----------
    operator
        Name of the operator, here (``rms_norm_grad``) or in the product documents (``RmsNormGrad``).
    product, soc
        Product (any of its names, or a YAML file) and SoC. A SoC alone implies its product, a product alone its default SoC; Atlas A2
        when both are None.
    release
        Release of the product's software: ``8.3``, ``8.5``, ``9.0`` or ``9.1``, which None takes.
    deterministic
        The determinism switch.
    limits
        ``documented`` enforces what the product documents state, ``hardware`` only what really does not fit.
    **arguments
        The operator's arguments: tensors as :class:`~npu_sim.TensorSpec`, text such as ``"4096x512:bf16"``, or arrays. Inputs that
        the others imply may be left out; None stands for the null pointer.

    Raises
    ------
    AclnnError
        With the product's status when the call is refused.
    """
    declared: Operator = load_operator(operator)
    built = declared.build(arguments, infer=True)
    loaded = load_profile(product, soc, release)
    return plan_with_results(declared.check(built, loaded, require_bool("deterministic", deterministic), require_limits(limits)))


@straight
def run(
    operator: str,
    *,
    product: str | Path | Profile | None = None,
    soc: str | None = None,
    release: str | None = None,
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
    operator, product, soc, release, deterministic, limits, **arguments
        As for :func:`plan`, with arrays for the tensors.

    Raises
    ------
    AclnnError
        With the product's status when the call is refused, 361001 when the data is out of bounds; ``out`` is then untouched.
    """
    from npu_sim.operators.contract.execution import execute

    declared: Operator = load_operator(operator)
    declared.require_given(arguments)
    names = declared.input_names
    # Views: shape and strides of the caller's array may change under the call, those of a view do not.
    tensors = {name: tensor_of(name, value).view() for name, value in arguments.items() if name in names and value is not None}
    return execute(
        declared,
        declared.build({**arguments, **tensors}),
        tensors,
        load_profile(product, soc, release),
        deterministic=require_bool("deterministic", deterministic),
        order=Order(core_order, seed),
        limits=require_limits(limits),
        outs=tuple(out) if isinstance(out, tuple | list) else (out,) * (out is not None),
    )


@straight
def prepare(
    operator: str,
    *,
    product: str | Path | Profile | None = None,
    soc: str | None = None,
    release: str | None = None,
    deterministic: bool = False,
    core_order: CoreOrder = "sequential",
    seed: int = 0,
    limits: Limits = "documented",
    **arguments: Any,
) -> "Prepared":
    """Do the first phase of a call, for data of the same shapes and dtypes to come.

    Parameters
    ----------
    operator, product, soc, release, deterministic, core_order, seed, limits, **arguments
        As for :func:`run`; tensors also as :func:`plan` takes them.

    Returns
    -------
    Prepared
        ``call(dy, x, rstd, gamma, out=...)`` computes it, ``call.plan`` is its plan.

    Raises
    ------
    AclnnError
        With the product's status when the call is refused.
    """
    from npu_sim.operators.contract.prepared import Prepared

    declared: Operator = load_operator(operator)
    built = declared.build(arguments, infer=True)
    loaded = load_profile(product, soc, release)
    order = Order(core_order, seed)
    return Prepared(declared.check(built, loaded, require_bool("deterministic", deterministic), require_limits(limits)), order)


@cache
def public_function(name: str) -> Callable[..., Any]:
    """Return the function of an operator, for instance ``npu_sim.rms_norm_grad``."""
    from npu_sim.operators.contract import functions

    return functions.public_function(load_operator(name), run)


__all__ = ["LIMITS", "plan", "prepare", "public_function", "require_limits", "run"]

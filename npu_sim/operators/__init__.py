"""The operators, one declaration each, and the two calls that serve them all: :func:`plan` and :func:`run`.

Questions, sweeps and faces enter through :func:`npu_sim.registry.load_operator`; an operator's files are ``<name>*.py``.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.cores import Profile
from npu_sim.framework.arguments import tensor_of
from npu_sim.framework.operator import Operator
from npu_sim.framework.results import Result, Stopwatch
from npu_sim.framework.target import CoreOrder, Limits, target_of
from npu_sim.plans.model import Plan
from npu_sim.registry import load_operator
from npu_sim.status import straight

if TYPE_CHECKING:
    from npu_sim.framework.execution import Prepared


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
    from npu_sim.framework.planning import plan_with_results

    declared: Operator = load_operator(operator)
    built = declared.build(arguments, infer=True)
    target = target_of(product, soc, release, deterministic, limits)
    return plan_with_results(declared.check(built, target))


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
    from npu_sim.framework.execution import arrays_of, compute_case

    declared: Operator = load_operator(operator)
    declared.require_given(arguments)
    tensors, watch = _views(declared, arguments), Stopwatch()
    with watch.stage("plan"):
        built = declared.build({**arguments, **tensors})
        target = target_of(product, soc, release, deterministic, limits, core_order, seed)
        case = declared.check(built, target)
    return compute_case(case, tensors, arrays_of(out), watch=watch)


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
    from npu_sim.framework.execution import Prepared

    declared: Operator = load_operator(operator)
    built = declared.build(arguments, infer=True)
    target = target_of(product, soc, release, deterministic, limits, core_order, seed)
    return Prepared(declared.check(built, target))


@straight
def _outputs(
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
) -> Any:
    """Do what :func:`run` does, and return nothing but the results."""
    from npu_sim.framework.execution import outputs_of

    declared: Operator = load_operator(operator)
    declared.require_given(arguments)
    tensors = _views(declared, arguments)
    built = declared.build({**arguments, **tensors})
    target = target_of(product, soc, release, deterministic, limits, core_order, seed)
    return outputs_of(declared.check(built, target), tensors, out)


def _views(declared: Operator, arguments: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the tensors of a call. Shape and strides of the caller's array may change under the call, those of a view do not."""
    names = declared.input_names
    return {
        name: tensor_of(name, value).view()
        for name, value in arguments.items()
        if name in names and value is not None
    }


def public_function(name: str) -> Callable[..., Any]:
    """Return the function of an operator, for instance ``npu_sim.rms_norm_grad``."""
    return _function_of(load_operator(name))


@cache
def _function_of(declared: Operator) -> Callable[..., Any]:
    """Keep functions by declaration: a name may be registered again for a changed one."""
    from npu_sim.framework import functions

    return functions.public_function(declared, _outputs)


__all__ = ["plan", "prepare", "public_function", "run"]

"""The operators, a package each, and the calls that serve them all.

:func:`plan`, :func:`run` and :func:`prepare` take an operator by name; :func:`public_function`
makes a function of each. Other packages load declarations by
:func:`npu_sim.operators.loading.load_operator`.
"""

import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from npu_sim.cores import Profile
from npu_sim.framework import patterns
from npu_sim.framework.arguments import CALL_OPTIONS, Attribute, Tensor, tensor_of
from npu_sim.framework.checking import check
from npu_sim.framework.execution import (
    Prepared,
    Result,
    Stopwatch,
    arrays_of,
    compute_case,
    outputs_of,
)
from npu_sim.framework.inference import arguments_of, require_given
from npu_sim.framework.operator import Operator
from npu_sim.framework.target import CoreOrder, Limits, target_of
from npu_sim.numbers.arrays import Arrays
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.loading import load_operator
from npu_sim.plans.model import Plan
from npu_sim.status import without_internal_frames


@without_internal_frames
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
    """Plan one call: check it, then decide path, tiling, buffers and workspace.

    Parameters
    ----------
    operator
        Name of the operator, here (``rms_norm_grad``) or in the product documents
        (``RmsNormGrad``).
    product
        Product or SoC by any name, or a profile file ending in .yaml; atlas_a2 when left out.
    soc
        SoC, such as Ascend910B3 or 910B3; it implies its product.
    release
        Release of the product's software; the default when left out.
    deterministic
        Switch deterministic computation on.
    limits
        documented: limits of the product documents; hardware: limits of the buffers.
    **arguments
        The operator's arguments: tensors as :class:`~npu_sim.TensorSpec`, text such as
        ``"4096x512:bf16"``, or arrays. Inputs that the others imply may be left out; None stands
        for the null pointer.

    Raises
    ------
    AclnnError
        With the product's status when the call is refused.
    """
    from npu_sim.framework.planning import plan_of

    declared = load_operator(operator)
    built = arguments_of(declared, arguments, infer=True)
    target = target_of(product, soc, release, deterministic, limits)
    return plan_of(check(declared, built, target), plans_flips=True)


@without_internal_frames
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
    core_order
        Arrival of the cores' atomic additions: sequential, reverse, round_robin or random.
        Deterministic kernels ignore it.
    seed
        Seed of the random core order.
    out
        Array (or tuple of arrays, one for every output in order) to write the results to; new
        arrays when None.
    operator, product, soc, release, deterministic, limits, **arguments
        As for :func:`plan`. Where a tensor is a shape, data is drawn with ``seed``; a text that
        ends in ``.npy`` is a file.

    Raises
    ------
    AclnnError
        With the product's status when the call is refused, 361001 when the data is out of bounds;
        ``out`` is then untouched.
    """
    declared = load_operator(operator)
    if any(isinstance(arguments.get(name), str | TensorSpec) for name in declared.input_names):
        from npu_sim.operators.shared.generate import with_data

        target = target_of(product, soc, release, deterministic, limits, core_order, seed)
        arguments = with_data(declared, arguments, target)
    require_given(declared, arguments)
    tensors, watch = _views(declared, arguments), Stopwatch()
    with watch.stage("plan"):
        built = arguments_of(declared, {**arguments, **tensors})
        target = target_of(product, soc, release, deterministic, limits, core_order, seed)
        case = check(declared, built, target)
    return compute_case(case, tensors, arrays_of(out), watch=watch)


@without_internal_frames
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
) -> Prepared:
    """Check and tile a call once, for any number of runs with the same shapes and dtypes.

    Parameters
    ----------
    operator, product, soc, release, deterministic, core_order, seed, limits, **arguments
        As for :func:`run`; tensors also as :func:`plan` takes them.

    Returns
    -------
    Prepared
        Called with the input tensors, and ``out`` as for :func:`run`, it computes; its ``plan`` is
        the plan of every call.

    Raises
    ------
    AclnnError
        With the product's status when the call is refused.
    """
    declared = load_operator(operator)
    built = arguments_of(declared, arguments, infer=True)
    target = target_of(product, soc, release, deterministic, limits, core_order, seed)
    return Prepared(check(declared, built, target))


@without_internal_frames
def _outputs(declared: Operator, arguments: dict[str, Any]) -> Any:
    """Like :func:`run`, but return only the results; ``arguments`` include the options."""
    options = {name: arguments.pop(name, default) for name, default in CALL_OPTIONS.items()}
    out = options.pop("out")
    require_given(declared, arguments)
    tensors = _views(declared, arguments)
    built = arguments_of(declared, {**arguments, **tensors})
    return outputs_of(check(declared, built, target_of(**options)), tensors, out)


def _views(declared: Operator, arguments: dict[str, Any]) -> Arrays:
    """Return views of the tensors: a caller may change shape and strides of an array meanwhile."""
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
def _function_of(operator: Operator) -> Callable[..., Any]:
    """Return the function of an operator: signature and help follow from its declaration."""
    signature = signature_of(operator)
    positions = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    required = {
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty
    }

    def function(*args: Any, **kwargs: Any) -> Any:
        call = dict(zip(positions, args, strict=False)) | kwargs
        if (
            len(call) < len(args) + len(kwargs)
            or not required <= call.keys() <= signature.parameters.keys()
        ):
            signature.bind(*args, **kwargs)  # raises the error; too slow for every call
        return _outputs(operator, call)

    function.__name__ = function.__qualname__ = operator.name
    function.__module__ = "npu_sim"
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__doc__ = _help(operator)
    return function


def signature_of(operator: Operator) -> inspect.Signature:
    """Return the signature of an operator's function: inputs, attributes, then options."""
    parameters: list[inspect.Parameter] = []
    empty: Any = inspect.Parameter.empty
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    # From the last one back: an optional tensor before one that must be given has no default, but
    # may be None.
    given = [argument for argument in operator.arguments if argument not in operator.outputs]
    for argument in reversed(given):
        is_last = not parameters or parameters[0].default is not empty
        if isinstance(argument, Tensor):
            default = None if argument.optional and is_last else empty
        else:
            default = empty if argument.required else argument.default
        parameters.insert(0, inspect.Parameter(argument.name, kind, default=default))
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value)
        for name, value in CALL_OPTIONS.items()
    ]
    return inspect.Signature(parameters + options)


def _help(operator: Operator) -> str:
    """Write the docstring: arguments, results, and what is raised."""
    lines = [operator.summary, "", "Parameters", "----------"]
    for argument in operator.arguments:
        if argument not in operator.outputs:
            lines += [argument.name, f"    {_argument_help(operator, argument)}"]
    lines += [", ".join(CALL_OPTIONS), "    See :func:`npu_sim.run`.", "", "Returns", "-------"]
    for output in operator.outputs:
        lines += [f"{output.output} : ndarray", f"    {_argument_help(operator, output)}"]
    lines += [
        "",
        "Raises",
        "------",
        "AclnnError",
        "    With the product's status when the call is refused, 361001 for data out of bounds.",
    ]
    return "\n".join(lines)


def _argument_help(operator: Operator, argument: Tensor | Attribute) -> str:
    text = argument.help[0].upper() + argument.help[1:]
    if isinstance(argument, Attribute):
        return f"{text}."
    words = {axis.name: " or ".join(axis.words) for axis in operator.dtype_axes}
    shape = "" if callable(argument.shape) else f": {patterns.text(argument.shape)}"
    return f"{text}{shape}, {words.get(argument.dtype, argument.dtype)}."


__all__ = ["plan", "prepare", "public_function", "run", "signature_of"]

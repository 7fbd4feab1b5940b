"""RMS normalisation: RmsNorm with gradients of RmsNormGrad, and how their calls are recorded.

Recorded are PyTorch's function, and kernels that compute the same:
``x * rsqrt(mean(x * x) + epsilon) * gamma`` in every order and form of the steps: ``pow``,
``square`` or ``mul``; ``mean``, or ``sum`` and a division; ``rsqrt``, a negative power, or a
division by ``sqrt``.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional

from npu_sim.framework.target import current_device
from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.registry import load_operator
from npu_sim.status import NULL_POINTER, AclnnError
from npu_sim.torch.flow import COPIES, Kernel, Step
from npu_sim.torch.library import Gradient, Gradients, device_of, operator_of
from npu_sim.torch.recorder import Span, spec_of

__all__ = ["npu_rms_norm", "rms_norm"]

GRADIENT_OPERATOR = operator_of(load_operator("rms_norm_grad"))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, gamma, _ = inputs
    rstd = output[1]
    ctx.settings = current_device()
    ctx.save_for_backward(x, rstd, gamma)
    ctx.mark_non_differentiable(rstd)


def _backward(ctx: Any, dy: torch.Tensor, _: Any) -> Gradients:
    x, rstd, gamma = ctx.saved_tensors
    with device_of(ctx):
        dx, dgamma = GRADIENT_OPERATOR(dy.contiguous(), x, rstd, gamma)
    return dx, dgamma.to(gamma.dtype), None


FORWARD_OPERATOR = operator_of(load_operator("rms_norm"), Gradient(_keep, _backward))


def rms_norm(input: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Return ``input`` normalised over the axes of ``weight``, as PyTorch's ``rms_norm``.

    RmsNormGrad computes the gradients.

    Raises
    ------
    AclnnError
        161001 without a weight, which the product's operator requires.
    """
    return npu_rms_norm(input, _required("weight", weight), eps)[0]


def npu_rms_norm(
    self: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-06
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (y, rstd): the RMS normalisation over the axes of gamma, and 1 / rms in fp32.

    ``rstd`` has size 1 on these axes: shape (4, 1, 1) for x of shape (4, 1, 4096).
    """
    y, rstd = FORWARD_OPERATOR(self.contiguous(), _required("gamma", gamma).contiguous(), epsilon)
    return y, rstd


def _required(name: str, scale: torch.Tensor | None) -> torch.Tensor:
    """Return the weight; raise AclnnError if it is missing."""
    if scale is None:
        message = Text("{name} = None: the product normalises with a scale", name=name)
        hint = Text("{name}: torch.ones of the last axes", name=name)
        raise AclnnError(NULL_POINTER, name, message, hint)
    return scale


FORWARD, OPERATOR = "rms_norm", "rms_norm_grad"
TOPIC = FORWARD
CLASS_NAME = re.compile(r"RMSNorm", re.IGNORECASE)
EPSILON_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MEAN_TOLERANCE = 1e-6
"""Relative difference of a factor from 1 / columns up to which a scaled sum is a mean."""
NO_WEIGHT = "it has no weight for the last axes of its input, and the operator needs gamma"


def _default_epsilon(dtype: torch.dtype) -> float:
    """Return the epsilon that this PyTorch uses for a dtype if none is given.

    It is the machine epsilon of the dtype, or of fp32 from a later version on. y*y is
    x*x/(x*x + epsilon), which is far from 1 for the larger epsilon only.
    """
    x = torch.full((1,), 2.0**-10, dtype=dtype, device="cpu")
    y = float(functional.rms_norm(x, (1,)))
    dtype_epsilon, single = float(torch.finfo(dtype).eps), float(torch.finfo(torch.float32).eps)
    return min(
        dtype_epsilon, single, key=lambda epsilon: abs(y - 2.0**-10 / (2.0**-20 + epsilon) ** 0.5)
    )


DEFAULT_EPSILON = {dtype: _default_epsilon(dtype) for dtype in EPSILON_DTYPES}
"""Computed at import: during a recording, the recorder would see the calls."""


def _rms_norm(
    span: Span,
    result: torch.Tensor,
    input: torch.Tensor,
    normalized_shape: Any,
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> None:
    if weight is None:
        span.not_recognised(FORWARD, NO_WEIGHT)
        return
    if eps is None:
        eps = DEFAULT_EPSILON.get(input.dtype, torch.finfo(input.dtype).eps)
    call = {"x": spec_of(input, copied=True), "gamma": spec_of(weight, copied=True)}
    span.forward(FORWARD, {**call, "epsilon": float(eps)})
    span.backward(result, OPERATOR, lambda gradient: {"dy": call["x"], **call})


@dataclass(frozen=True, eq=False)
class Term:
    """A tensor as a part of ``x * rsqrt(mean(x * x) + epsilon) * gamma``."""

    kind: str
    """``x``, ``mean`` (of x), ``centred`` (x - mean(x)), ``square``, ``sum`` (of squares),
    ``mean_square``, ``rms``, ``rstd``, ``normed``, or ``y``."""
    key: tuple[int, int, int]
    """Identity of x."""
    x: str
    """Spec of x as text, without the casts that the computation begins with."""
    shape: tuple[int, ...]
    """Shape of x."""
    dtype: torch.dtype
    """Dtype of x."""
    steps: frozenset[Step] = frozenset()
    """Kernels that computed the tensor from x."""
    columns: int = 0
    """Number of elements that are normalised together."""
    epsilon: float | None = None
    """None until it is added."""
    offset: float = 0.0
    """Number that was added to x."""
    parameter: torch.Tensor | None = None
    """Parameter that x is, or is a view of."""
    placeholder: Any = None
    """Entry of ``not_recognised`` that is removed when gamma is multiplied."""


ENDING = frozenset({"mean", "square", "sum", "mean_square", "normed", "y"})
"""Kinds of tensors that may also be the x of another normalisation."""


def _term(kernel: Kernel, tensor: torch.Tensor, *, ends: bool = False) -> Term:
    """Return a tensor's term; x itself if no term is known, or if a known term ``ends``."""
    known = kernel.flow.fact(FORWARD, tensor)
    if isinstance(known, Term) and not (ends and (known.kind in ENDING or known.offset)):
        shape = tuple(tensor.shape)
        if known.kind != "x" or known.shape == shape:
            return known
        if torch.Size(known.shape).numel() == tensor.numel():  # a view of x
            return replace(known, x=str(TensorSpec(shape, str(known.dtype))), shape=shape)
    spec = spec_of(tensor, copied=True)
    return Term(
        "x",
        kernel.flow.identity(tensor),
        spec,
        tuple(tensor.shape),
        tensor.dtype,
        parameter=kernel.flow.parameter(tensor),
    )


def _cast(kernel: Kernel, term: Term) -> Term | None:
    """Follow a copy of the same values; a cast of y back to the dtype of x belongs to the call."""
    if term.kind == "y":
        if kernel.results[0].dtype == term.dtype:
            kernel.span.account({kernel.step})
        return None
    rounded = kernel.results[0].element_size() < term.dtype.itemsize
    return None if rounded and term.kind == "x" else term


def _square(kernel: Kernel, term: Term) -> Term | None:
    return replace(term, kind="square") if term.kind == "x" and not term.offset else None


def _power(kernel: Kernel, term: Term) -> Term | None:
    exponent = kernel.number(1)
    if exponent == 2:
        return _square(kernel, term)
    if exponent == 0.5:
        return _root(kernel, term)
    return _reciprocal_root(kernel, term) if exponent == -0.5 else None


def _reduced(kernel: Kernel, term: Term) -> int:
    """Return the number of elements that a reduction of the last axes takes; 0 for other axes."""
    axes = kernel.argument(1, "dim")
    dim = len(term.shape)
    if axes is None or dim == 0:
        return 0
    chosen = sorted(axis % dim for axis in (axes if isinstance(axes, list | tuple) else (axes,)))
    if not chosen or chosen != list(range(dim - len(chosen), dim)):
        return 0
    return int(torch.Size(term.shape[-len(chosen) :]).numel())


def _mean(kernel: Kernel, term: Term) -> Term | None:
    columns = _reduced(kernel, term)
    if not columns or kernel.tensors[0].dim() != len(term.shape):
        return None
    kinds = {"square": "mean_square", "x": "mean"}
    return replace(term, kind=kinds[term.kind], columns=columns) if term.kind in kinds else None


def _sum(kernel: Kernel, term: Term) -> Term | None:
    columns = _reduced(kernel, term)
    if term.kind != "square" or not columns:
        return None
    return replace(term, kind="sum", columns=columns)


def _root(kernel: Kernel, term: Term) -> Term | None:
    return (
        _with_placeholder(kernel, replace(term, kind="rms")) if term.kind == "mean_square" else None
    )


def _reciprocal_root(kernel: Kernel, term: Term) -> Term | None:
    return (
        _with_placeholder(kernel, replace(term, kind="rstd"))
        if term.kind == "mean_square"
        else None
    )


def _with_placeholder(kernel: Kernel, term: Term) -> Term:
    """List a normalisation as not recognised, until gamma shows that it is a call."""
    kernel.span.operators.add(FORWARD)  # the class of the module is not listed as well
    return replace(term, placeholder=kernel.span.not_recognised(FORWARD, NO_WEIGHT))


def _reciprocal(kernel: Kernel, term: Term) -> Term | None:
    return replace(term, kind="rstd") if term.kind == "rms" else None


def _add(kernel: Kernel, term: Term) -> Term | None:
    number = kernel.number(1) if kernel.tensors[0] is kernel.argument(0) else kernel.number(0)
    if number is None or kernel.options.get("alpha", 1) != 1:
        return None
    if term.kind == "mean_square" and term.epsilon is None:
        return replace(term, epsilon=number)
    if term.kind == "x" and not term.offset:
        return replace(term, offset=number)
    return None


def _scaled(kernel: Kernel, term: Term, factor: float) -> Term | None:
    """Follow a product with a number: a sum divided by its number of elements is a mean."""
    if term.kind == "sum" and abs(factor * term.columns - 1) < MEAN_TOLERANCE:
        return replace(term, kind="mean_square")
    return term if factor == 1 and term.kind in ("rstd", "rms") else None


def _multiply(kernel: Kernel, first: Term, other: Term) -> Term | None:
    """Follow the product of two tensors: a square, x * rstd, or the product with gamma."""
    if first.key == other.key and first.kind == other.kind == "x" and first.offset == other.offset:
        return _square(kernel, first)
    for left, right in ((first, other), (other, first)):
        if left.kind == "x" and right.kind == "rstd" and left.key == right.key:
            return _normed(left, right)
        if left.kind == "normed" and right.kind == "x":
            return _gamma(kernel, left, right)
    return None


def _normed(x: Term, scale: Term) -> Term:
    # x * rsqrt(...) may be computed from x before or after its cast.
    return replace(scale, kind="normed", steps=x.steps | scale.steps)


def _gamma(kernel: Kernel, normed: Term, gamma: Term) -> Term | None:
    """Record the call when a normalised tensor is multiplied by the weight."""
    axes, columns = 0, 1
    while columns < normed.columns:
        axes += 1
        columns *= normed.shape[-axes]
    shape = normed.shape[len(normed.shape) - axes :]
    if gamma.parameter is None and gamma.shape != shape:
        return None
    if torch.Size(gamma.shape).numel() != normed.columns:
        return None
    kernel.span.retract(normed.placeholder)
    if gamma.offset:
        why = Text("the factor is {offset} + weight, as in Gemma: gamma is this sum", gamma)
        kernel.span.remark(FORWARD, why, gamma.parameter)
    gamma_spec = str(TensorSpec(shape, str(gamma.dtype)))
    call = {"x": normed.x, "gamma": gamma_spec}
    kernel.span.call(FORWARD, {**call, "epsilon": float(normed.epsilon or 0.0)}, gamma.parameter)
    steps = normed.steps | gamma.steps | {kernel.step}
    kernel.span.account(steps)
    # dy has the dtype of x, even if code that computes by hand returns another dtype.
    kernel.span.on_gradient(OPERATOR, {"dy": normed.x, **call}, gamma.parameter)
    return replace(normed, kind="y", steps=steps)


def _mul(kernel: Kernel, terms: list[Term]) -> Term | None:
    number = kernel.number(1) if len(terms) == 1 else None
    if number is not None:
        return _scaled(kernel, terms[0], number)
    return _multiply(kernel, *terms) if len(terms) == 2 else None


def _div(kernel: Kernel, terms: list[Term]) -> Term | None:
    number = kernel.number(1)
    if number:
        return _scaled(kernel, terms[0], 1 / number)
    if len(terms) == 1 and kernel.number(0) == 1:
        return _reciprocal(kernel, terms[0])
    if len(terms) == 2 and terms[0].kind == "x" and terms[1].kind == "rms":
        return _normed(*terms) if terms[0].key == terms[1].key else None
    return None


def _sub(kernel: Kernel, terms: list[Term]) -> Term | None:
    """Follow x - mean(x), whose normalisation is a layer norm."""
    if len(terms) == 2 and terms[1].kind == "mean" and terms[0].key == terms[1].key:
        return replace(terms[0], kind="centred")
    return None


UNARY = {
    "pow": _power,
    "square": _square,
    "mean": _mean,
    "sum": _sum,
    "sqrt": _root,
    "rsqrt": _reciprocal_root,
    "reciprocal": _reciprocal,
    "add": _add,
}
BINARY = {"mul": _mul, "div": _div, "sub": _sub}


def follow(kernel: Kernel) -> list[tuple[torch.Tensor, Term]]:
    """Return the terms of a kernel's results."""
    if kernel.name not in UNARY and kernel.name not in COPIES and kernel.name not in BINARY:
        return []
    operands = [tensor for tensor in kernel.tensors if tensor.is_floating_point()][:2]
    if not operands or len(kernel.results) != 1:
        return []
    for ends in (False, True):
        found = _follow(kernel, [_term(kernel, tensor, ends=ends) for tensor in operands])
        if found is not None:
            return [(kernel.results[0], replace(found, steps=found.steps | {kernel.step}))]
    return []


def _follow(kernel: Kernel, terms: list[Term]) -> Term | None:
    if kernel.name in COPIES:
        return _cast(kernel, terms[0])
    if kernel.name in BINARY:
        return BINARY[kernel.name](kernel, terms)
    return UNARY[kernel.name](kernel, terms[0])


def on_module_exit(
    span: Span, module: torch.nn.Module | None, inputs: tuple[Any, ...], result: Any
) -> None:
    """List a module that is a normalisation by its name, but computes something else."""
    if (
        module is not None
        and CLASS_NAME.search(type(module).__name__) is not None
        and FORWARD not in span.operators
    ):
        span.not_recognised(FORWARD, "its class is named so, and its kernels compute another form")


FUNCTIONS = {functional.rms_norm: _rms_norm, torch.rms_norm: _rms_norm}
KERNELS = {"aten::_fused_rms_norm_backward": FORWARD}

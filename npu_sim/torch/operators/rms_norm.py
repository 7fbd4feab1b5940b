"""RMS normalisation: RmsNorm with gradients of RmsNormGrad, and how their calls are recognised.

Recognised are PyTorch's function, and kernels that compute the same:
``x * rsqrt(mean(x * x) + epsilon) * gamma`` in every order and form of the steps: ``pow``,
``square`` or ``mul``; ``mean``, or ``sum`` and a division; ``rsqrt``, a negative power, or a
division by ``sqrt``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from npu_sim.language import Text, joined
from npu_sim.numbers.arrays import Shape
from npu_sim.numbers.formats import TensorSpec
from npu_sim.status import NULL_POINTER, AclnnError, UsageError
from npu_sim.torch import flow
from npu_sim.torch.flow import Kernel
from npu_sim.torch.fused import Backward, Forward, FusedCall, Source
from npu_sim.torch.library import Gradient, Gradients, operator_of, saving
from npu_sim.torch.recorder import Span, spec_of

__all__ = ["npu_rms_norm", "rms_norm"]

GRADIENT_OPERATOR = operator_of("rms_norm_grad")


def _backward(ctx: Any, dy: Tensor, _: Any) -> Gradients:
    x, gamma, rstd = ctx.saved_tensors
    dx, dgamma = GRADIENT_OPERATOR(dy.contiguous(), x, rstd, gamma)
    return dx, dgamma.to(gamma.dtype), None


FORWARD_OPERATOR = operator_of("rms_norm", Gradient(saving(0, 1, results=(1,)), _backward))


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Return ``input`` normalised over its last axes, as :func:`torch.nn.functional.rms_norm`.

    RmsNormGrad computes the gradients. Without ``eps`` it is what this PyTorch takes for the dtype.

    Raises
    ------
    UsageError
        For a ``normalized_shape`` that is not the shape of ``weight``.
    AclnnError
        161001 without a weight, which the product's operator requires.
    """
    if isinstance(normalized_shape, Tensor):
        raise UsageError(
            "normalized_shape",
            "normalized_shape is a tensor",
            "as in PyTorch: rms_norm(input, normalized_shape, weight, eps)",
        )
    gamma = _required("weight", weight)
    shape = tuple(normalized_shape)
    if tuple(gamma.shape) != shape:
        raise UsageError(
            "normalized_shape",
            "normalized_shape is {shape}, weight has shape {weight}",
            "the shape of weight",
            shape=shape,
            weight=tuple(gamma.shape),
        )
    return npu_rms_norm(input, gamma, _epsilon(input.dtype) if eps is None else eps)[0]


def npu_rms_norm(self: Tensor, gamma: Tensor, epsilon: float = 1e-06) -> tuple[Tensor, Tensor]:
    """Return (y, rstd): the RMS normalisation over the axes of gamma, and 1 / rms in fp32.

    ``rstd`` has size 1 on these axes: shape (4, 1, 1) for x of shape (4, 1, 4096).
    """
    y, rstd = FORWARD_OPERATOR(self.contiguous(), _required("gamma", gamma).contiguous(), epsilon)
    return y, rstd


def _required(name: str, scale: Tensor | None) -> Tensor:
    """Return the weight; raise AclnnError if it is missing."""
    if scale is None:
        raise AclnnError(
            NULL_POINTER,
            name,
            "{name} = None: the product normalises with a scale",
            "{name}: torch.ones of the last axes",
            name=name,
        )
    return scale


FORWARD, OPERATOR = "rms_norm", "rms_norm_grad"
SUM = "add_rms_norm"
"""The operator that inference engines call for a sum and its normalisation."""
TOPIC = FORWARD
MEAN_TOLERANCE = 1e-6
"""Relative difference of a factor from 1 / columns up to which a scaled sum is a mean."""
UNFUSED = Text(
    "the code rounds x*rstd to 16 bits before gamma; the call is npu_rms_norm, which adapters put "
    "in its place. It rounds once, so about a quarter of y differs by one unit in the last place"
)
ADDED = Text(
    "the code adds and normalises; the call is npu_add_rms_norm, which inference engines put in "
    "its place. It does not give the bits of Add and RmsNorm (differs_from_add_and_rms_norm), and "
    "in bf16 other ones in decode than in prefill (not_batch_invariant)"
)
ADDABLE = Text(
    "the code adds and normalises in two kernels; npu_add_rms_norm, which inference engines call, "
    "does both in one. It does not give their bits (differs_from_add_and_rms_norm)"
)
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


DEFAULT_EPSILON = {
    dtype: _default_epsilon(dtype) for dtype in (torch.float32, torch.float16, torch.bfloat16)
}
"""Computed at import: during a recording, the recorder would see the calls."""


def _epsilon(dtype: torch.dtype) -> float:
    """Return the epsilon of PyTorch's function if none is given."""
    return DEFAULT_EPSILON.get(dtype, float(torch.finfo(dtype).eps))


def _rms_norm(
    span: Span,
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    eps: float | None = None,
) -> FusedCall | None:
    if weight is None:
        span.not_recognised(FORWARD, NO_WEIGHT)
        return None
    epsilon = _epsilon(input.dtype) if eps is None else eps
    call = {"x": spec_of(input, copied=True), "gamma": spec_of(weight, copied=True)}
    return FusedCall(
        compute=lambda: rms_norm(input, normalized_shape, weight, epsilon),
        forward=[Forward(FORWARD, {**call, "epsilon": float(epsilon)})],
        backward=[Backward(OPERATOR, lambda _: {"dy": call["x"], **call})],
    )


@dataclass(frozen=True, eq=False)
class Term(flow.Term):
    """A tensor as a part of ``x * rsqrt(mean(x * x) + epsilon) * gamma``.

    Its kind is ``x``, ``mean`` (of x), ``centred`` (x - mean(x)), ``square``, ``sum`` (of squares),
    ``mean_square``, ``rms``, ``rstd``, ``normed``, or ``y``; the formula begins with x.
    """

    x: str
    """Spec of x as text, without the casts that the computation begins with."""
    dtype: torch.dtype
    """Dtype of x."""
    tensor: flow.Kept
    """x itself."""
    columns: int = 0
    """Number of elements that are normalised together."""
    epsilon: float | None = None
    """None until it is added."""
    offset: float = 0.0
    """Number that was added to x."""
    parameter: Tensor | None = None
    """Parameter that x is, or is a view of."""
    placeholder: Any = None
    """Entry of ``not_recognised`` that is removed when gamma is multiplied."""
    added: flow.Step | None = None
    """Kernel that computed x as a sum of two tensors of its form."""


ENDING = frozenset({"mean", "square", "sum", "mean_square", "normed", "y"})
"""Kinds of tensors that may also be the x of another normalisation."""


def _term(kernel: Kernel, tensor: Tensor) -> Term:
    """Return a tensor's term; x itself if no term is known."""
    known = kernel.flow.fact(FORWARD, tensor)
    shape = tuple(tensor.shape)
    if not isinstance(known, Term):
        return _x(kernel, tensor)
    if known.kind != "x" or known.shape == shape:
        return known
    if torch.Size(known.shape).numel() == tensor.numel():  # a view of x
        return replace(known, x=str(TensorSpec(shape, str(known.dtype))), shape=shape)
    return _x(kernel, tensor)


def _term_or_new_x(kernel: Kernel, tensor: Tensor) -> Term:
    """Return a tensor's term, where the result of one formula is the x of the next."""
    known = _term(kernel, tensor)
    return _x(kernel, tensor) if known.kind in ENDING or known.offset else known


def _x(kernel: Kernel, tensor: Tensor) -> Term:
    identity, parameter = kernel.flow.identity(tensor), kernel.flow.parameter(tensor)
    return Term(
        "x",
        identity,
        tuple(tensor.shape),
        spec_of(tensor, copied=True),
        tensor.dtype,
        kernel.flow.keep(tensor),
        parameter=parameter,
        added=kernel.flow.fact(SUM, tensor),
    )


def _cast(kernel: Kernel, term: Term) -> Term | None:
    """Follow a copy of the same values; a cast of y back to the dtype of x belongs to the call."""
    if term.kind == "y":
        if kernel.results[0].dtype == term.dtype:
            kernel.span.account({kernel.step})
        return None
    rounded = kernel.results[0].element_size() < term.dtype.itemsize
    return None if rounded and term.kind == "x" else term


def _square(kernel: Kernel, term: Term, other: Term | None = None) -> Term | None:
    """Follow x * x, as one kernel of x or as the product of equal tensors."""
    is_product = other is not None and (other.key, other.offset) != (term.key, term.offset)
    return None if term.offset or is_product else replace(term, kind="square")


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


def _reduction(kernel: Kernel, term: Term) -> Term | None:
    columns = _reduced(kernel, term)
    if not columns or kernel.operands[0].shape != term.shape:
        return None
    return replace(term, kind=REDUCTIONS[kernel.operation, term.kind], columns=columns)


def _root(kernel: Kernel, term: Term) -> Term:
    """Follow a root, and list the normalisation as not recognised until gamma follows."""
    kernel.span.operators.add(FORWARD)  # the class of the module is not listed as well
    kind = "rstd" if kernel.operation == "rsqrt" else "rms"
    return replace(term, kind=kind, placeholder=kernel.span.not_recognised(FORWARD, NO_WEIGHT))


def _sum_with_number(kernel: Kernel, term: Term, other: Term | None = None) -> Term | None:
    """Follow the addition of epsilon to the mean, or of an offset to a weight."""
    number = kernel.number(1)
    if number is None or kernel.options.get("alpha", 1) != 1:
        return None
    if term.kind == "mean_square":
        return None if term.epsilon is not None else replace(term, epsilon=number)
    return None if term.offset else replace(term, offset=number)


def _scaled(kernel: Kernel, term: Term) -> Term | None:
    """Follow a product with a number: a sum divided by its number of elements is a mean."""
    factor = kernel.factor or 0.0
    if term.kind == "sum" and abs(factor * term.columns - 1) < MEAN_TOLERANCE:
        return replace(term, kind="mean_square")
    return term if factor == 1 and term.kind in ("rstd", "rms") else None


def _normalised(term: Term) -> Shape:
    """Return the shape of the elements that are normalised together."""
    axes = 1
    while torch.Size(term.shape[-axes:]).numel() < term.columns:
        axes += 1
    return term.shape[-axes:]


def _is_aligned(shape: Shape, axes: Shape) -> bool:
    """Return whether two shapes are equal but for leading axes of one element."""
    return (1,) * (len(axes) - len(shape)) + tuple(shape) == (1,) * (len(shape) - len(axes)) + axes


def _normed(kernel: Kernel, first: Term, other: Term) -> Term | None:
    """Follow x * rstd or x / rms; x may be taken before or after its cast."""
    x, scale = (other, first) if other.kind == "x" else (first, other)
    factor = kernel.operands[first is x]
    axes = len(_normalised(scale))
    rows = (*x.shape[:-axes], *(1,) * axes)
    if first.key != other.key or x.shape != scale.shape or not _is_aligned(factor.shape, rows):
        return None
    if x.offset:
        return None
    return replace(scale, kind="normed")


def _gamma(kernel: Kernel, first: Term, other: Term) -> Term | None:
    """Record the call when a normalised tensor is multiplied by the weight."""
    normed, gamma = (first, other) if first.kind == "normed" else (other, first)
    rows, factor = kernel.operands if first is normed else kernel.operands[::-1]
    shape = _normalised(normed)
    if gamma.parameter is None and gamma.shape != shape:
        return None
    if rows.shape[-len(shape) :] != shape or not _is_aligned(factor.shape, shape):
        return None
    kernel.span.retract(normed.placeholder)
    is_rounded = rows.dtype.itemsize == 2
    offset = Text(
        "the factor is {offset} + weight, as in Gemma: gamma is this sum; GemmaRmsNorm, which adds "
        "it in the kernel, is not modelled",
        offset=gamma.offset,
    )

    of_gamma = (first.steps - normed.steps if gamma is first else gamma.steps) - {kernel.step}
    of_x = first.steps - of_gamma - {kernel.step}
    scale = Source(gamma.tensor, of_gamma)
    if gamma.offset:  # it is added to the factor
        scale = Source(kernel.flow.keep(factor))

    def compute() -> Tensor:
        x, weight = normed.tensor.value(), scale.tensor.value()
        epsilon = normed.epsilon or 0.0
        return npu_rms_norm(x.reshape(normed.shape), weight.reshape(shape), epsilon)[0]

    call = {"x": normed.x, "gamma": str(TensorSpec(shape, str(gamma.dtype)))}
    forward, steps, remark = FORWARD, first.steps, UNFUSED if is_rounded else ""
    if normed.added is not None and gamma.dtype == normed.dtype:
        if kernel.span.recorder.is_engine:
            forward, steps, remark = SUM, first.steps | {normed.added}, ADDED
        else:
            remark = joined(filter(None, (remark, ADDABLE)))
    tensors = {"x1": normed.x, "x2": normed.x} if forward == SUM else {"x": normed.x}
    tensors["gamma"] = call["gamma"]
    inputs = {**tensors, "epsilon": float(normed.epsilon or 0)}
    fused = FusedCall(
        compute=compute,
        forward=[Forward(forward, inputs, gamma.parameter)],
        # dy has the dtype of x, even if code that computes by hand returns another dtype.
        backward=[Backward(OPERATOR, lambda _: {"dy": normed.x, **call}, gamma.parameter)],
        when_recorded=remark,
        remarks=[offset] if gamma.offset else [],
        steps=steps,
        sources=[Source(normed.tensor, of_x), scale],
    )
    kernel.span.fuse(kernel, fused)
    return replace(normed, kind="y")


def _centred(kernel: Kernel, x: Term, mean: Term) -> Term | None:
    """Follow x - mean(x), whose normalisation is a layer norm."""
    return replace(x, kind="centred") if x.key == mean.key else None


REDUCTIONS = {("mean", "square"): "mean_square", ("mean", "x"): "mean", ("sum", "square"): "sum"}
"""Kinds of the results of reductions."""
RULES: dict[tuple[str, ...], flow.Rule[Term]] = {
    ("copy",): _cast,
    ("square", "x"): _square,
    ("mul", "x", "x"): _square,
    ("sqrt", "mean_square"): _root,
    ("rsqrt", "mean_square"): _root,
    ("reciprocal", "rms"): "rstd",
    ("add", "mean_square"): _sum_with_number,
    ("add", "mean_square", "x"): _sum_with_number,
    ("add", "x"): _sum_with_number,
    ("add", "x", "x"): _sum_with_number,
    ("scale",): _scaled,
    ("mul", "x", "rstd"): _normed,
    ("mul", "rstd", "x"): _normed,
    ("div", "x", "rms"): _normed,
    ("mul", "normed", "x"): _gamma,
    ("mul", "x", "normed"): _gamma,
    ("sub", "x", "mean"): _centred,
    **dict.fromkeys(REDUCTIONS, _reduction),
}
FORMULA = flow.Formula(RULES)


def follow(kernel: Kernel) -> list[tuple[Tensor, Term]]:
    """Return the terms of a kernel's results."""
    return FORMULA.follow(kernel, _term, _term_or_new_x)


def on_module_exit(
    span: Span, module: torch.nn.Module | None, inputs: tuple[Any, ...], result: Any
) -> None:
    """List a module that is a normalisation by its name, but computes something else."""
    if (
        module is not None
        and "rmsnorm" in type(module).__name__.lower()
        and FORWARD not in span.operators
    ):
        span.not_recognised(FORWARD, "its class is named so, and its kernels compute another form")


FUNCTIONS = {functional.rms_norm: _rms_norm, torch.rms_norm: _rms_norm}
KERNELS = {"aten::_fused_rms_norm_backward": FORWARD}

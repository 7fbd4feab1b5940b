"""Rotary position embedding as in ``torch_npu``, with gradients of RotaryPositionEmbeddingGrad.

Of code that computes ``x*cos + rotate_half(x)*sin`` by itself, as models of transformers do, or
that multiplies pairs of x as complex numbers, the recorder records the fused call that adapters of
models make of it: ``npu_rotary_mul``.
"""

from typing import Any, NamedTuple

import torch

from npu_sim.numbers.formats import TensorSpec
from npu_sim.status import NotModelledError, UsageError
from npu_sim.torch.flow import Kernel, Step
from npu_sim.torch.library import Gradient, Gradients, operator_of

__all__ = ["npu_rotary_mul"]

GRADIENT_OPERATOR = operator_of("rotary_position_embedding_grad")
MODES = {"half": 0, "interleave": 1}


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, cos, sin, ctx.mode = inputs
    ctx.save_for_backward(x, cos, sin)


def _backward(ctx: Any, dy: torch.Tensor) -> Gradients:
    x, cos, sin = ctx.saved_tensors
    is_needed = ctx.needs_input_grad[1] or ctx.needs_input_grad[2]
    dy, given = dy.contiguous(), x if is_needed else None
    dx, dcos, dsin = GRADIENT_OPERATOR(dy, cos, sin, given, ctx.mode)
    return dx, dcos, dsin, None


FORWARD_OPERATOR = operator_of("rotary_position_embedding", Gradient(_keep, _backward))


def npu_rotary_mul(
    input: torch.Tensor,
    r1: torch.Tensor,
    r2: torch.Tensor,
    rotary_mode: str = "half",
    rotate: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return ``input*r1 + rot(input)*r2``; r1 (cos) and r2 (sin) are cast to the dtype of input.

    RotaryPositionEmbeddingGrad computes the gradients, those of r1 and r2 only if they are needed.

    Raises
    ------
    UsageError
        For another rotary_mode than "half" and "interleave".
    NotModelledError
        With ``rotate``, for which another kernel runs.
    """
    if rotate is not None:
        raise NotModelledError("rotate", "the kernel with rotate is not modelled", "leave it out")
    if rotary_mode not in MODES:
        raise UsageError(
            "rotary_mode",
            "rotary_mode = {mode} is unknown",
            "{modes}",
            mode=repr(rotary_mode),
            modes=", ".join(MODES),
        )
    cos, sin = (tensor.to(input.dtype).contiguous() for tensor in (r1, r2))
    return FORWARD_OPERATOR(input.contiguous(), cos, sin, MODES[rotary_mode])


FORWARD, OPERATOR = "rotary_position_embedding", "rotary_position_embedding_grad"
TOPIC = FORWARD
RANKS = (3, 4)
UNFUSED = (
    "the code computes x*cos + rotate_half(x)*sin, or complex products, in several kernels; the "
    "call is npu_rotary_mul, which adapters put in its place. It rounds once"
)
Place = tuple[int, int, int]
"""Storage, first element and number of elements of a tensor."""


class Negated(NamedTuple):
    """The negated second elements of the pairs of x."""

    place: Place
    steps: frozenset[Step]


class Rotated(NamedTuple):
    """rot(x), where x has this place."""

    x: Place
    mode: int
    steps: frozenset[Step]


class Factor(NamedTuple):
    """A factor of a product: its place and shape, and what is known of it."""

    place: Place
    shape: tuple[int, ...]
    rotated: Rotated | None


class Product(NamedTuple):
    """A product of two tensors."""

    factors: tuple[Factor, Factor]
    step: Step


def follow(kernel: Kernel) -> list[tuple[torch.Tensor, Any]]:
    """Return the parts of the formula as facts, and record the call at the last addition."""
    reader = READERS.get(kernel.name)
    found = reader(kernel) if reader is not None and kernel.results else None
    return [] if found is None else [(kernel.results[0], found)]


def _negated(kernel: Kernel) -> Negated:
    (second,) = kernel.tensors
    return Negated(kernel.flow.identity(second), frozenset({kernel.step, _slice(second)}))


def _slice(part: torch.Tensor) -> Step:
    """Return the step that took a part of x, which has a kernel in the backward pass only."""
    node = part.grad_fn
    is_slice = node is not None and node.name().startswith("SliceBackward")
    return Step("aten::slice", node._sequence_nr() if is_slice else None)


def _joined(kernel: Kernel) -> Rotated | None:
    """Follow -x2 and x1 side by side: halves joined by cat, or pairs by stack."""
    is_stack, parts = kernel.name == "stack", kernel.tensors
    rank = kernel.results[0].dim()
    if len(parts) != 2 or rank == 0 or kernel.argument(1, "dim", 0) not in (-1, rank - 1):
        return None
    negated, first = kernel.flow.fact(TOPIC, parts[0]), parts[1]
    if not isinstance(negated, Negated) or first.dim() == 0 or parts[0].shape != first.shape:
        return None
    storage, start, count = kernel.flow.identity(first)
    step = 1 if is_stack else first.shape[-1]
    if negated.place != (storage, start + step, count):
        return None
    return Rotated(
        (storage, start, 2 * count), int(is_stack), negated.steps | {kernel.step, _slice(first)}
    )


def _factor(kernel: Kernel, tensor: torch.Tensor) -> Factor:
    known = kernel.flow.fact(TOPIC, tensor)
    rotated = known if isinstance(known, Rotated) else None
    return Factor(kernel.flow.identity(tensor), tuple(tensor.shape), rotated)


def _product(kernel: Kernel) -> Product | None:
    if len(kernel.tensors) != 2 or not all(operand.dim() for operand in kernel.tensors):
        return None
    if kernel.results[0].is_complex():
        _complex_product(kernel)
        return None
    first, second = (_factor(kernel, tensor) for tensor in kernel.tensors)
    return Product((first, second), kernel.step)


def _complex_product(kernel: Kernel) -> None:
    """Record the call where pairs of a real x are multiplied by cos + i*sin."""
    for x, turn in (kernel.tensors, kernel.tensors[::-1]):
        is_pairs = x._base is not None and not x._base.is_complex()
        if is_pairs and turn.is_complex() and x.shape == kernel.results[0].shape:
            shapes = [(*tensor.shape[:-1], 2 * tensor.shape[-1]) for tensor in (x, turn, turn)]
            _record(kernel, shapes, 1, frozenset())
            return


def _sum(kernel: Kernel) -> None:
    """Record the call where x*cos and rot(x)*sin are added."""
    terms = [kernel.flow.fact(TOPIC, tensor) for tensor in kernel.tensors]
    if not terms or not all(isinstance(term, Product) for term in terms):
        return
    for turned, sin in (pair for term in terms for pair in _pairs(term)):
        if turned.rotated is None:
            continue
        for x, cos in (pair for term in terms for pair in _pairs(term)):
            if x.place == turned.rotated.x and x.shape == turned.shape:
                steps = turned.rotated.steps | {term.step for term in terms}
                shapes = [factor.shape for factor in (x, cos, sin)]
                _record(kernel, shapes, turned.rotated.mode, steps)
                return


def _pairs(product: Product) -> tuple[tuple[Factor, Factor], ...]:
    first, second = product.factors
    return (first, second), (second, first)


def _record(
    kernel: Kernel, shapes: list[tuple[int, ...]], mode: int, steps: frozenset[Step]
) -> None:
    """Record the call of x, cos and sin and, whenever its gradient arrives, the gradient's."""
    rank, span = len(shapes[0]), kernel.span
    if rank not in RANKS or max(map(len, shapes)) > rank:
        return
    dtype = str(kernel.results[0].dtype.to_real())
    full = ((1,) * (rank - len(shape)) + shape for shape in shapes)
    x, cos, sin = (str(TensorSpec(shape, dtype)) for shape in full)
    turned = {"cos": cos, "sin": sin, "mode": mode}
    span.call(FORWARD, {"x": x, **turned}, None)
    span.on_gradient(OPERATOR, {"dy": x, **turned}, None)
    span.account({*steps, kernel.step})
    span.remark(FORWARD, UNFUSED, None)


READERS = {"neg": _negated, "cat": _joined, "stack": _joined, "mul": _product, "add": _sum}
"""Functions that read a kernel, by its name."""

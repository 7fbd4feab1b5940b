"""Rotary position embedding as in ``torch_npu``, with gradients of RotaryPositionEmbeddingGrad.

Code that computes ``x*cos + rotate_half(x)*sin`` by itself, as models of transformers do, that
joins ``x1*cos - x2*sin`` and ``x2*cos + x1*sin``, or that multiplies pairs of x as complex numbers,
is recognised as the fused call that adapters of models make of it: ``npu_rotary_mul``. Other
products with cos and sin of positions are listed.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise, permutations, product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from npu_sim.language import Text
from npu_sim.numbers.arrays import Shape
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.shared.rotations.declaration import MODES
from npu_sim.status import NotModelledError, UsageError
from npu_sim.torch.flow import (
    COPIES,
    DETACH,
    DETACHED,
    Axes,
    Kept,
    Kernel,
    NotReplacedError,
    Step,
    joined_axes,
)
from npu_sim.torch.fused import Backward, Forward, FusedCall, Source, gradient_node
from npu_sim.torch.library import Gradient, Gradients, operator_of
from npu_sim.torch.recorder import Entry

__all__ = ["npu_rotary_mul"]

GRADIENT_OPERATOR = operator_of("rotary_position_embedding_grad")


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, cos, sin, ctx.mode = inputs
    ctx.save_for_backward(x, cos, sin)


def _backward(ctx: Any, dy: Tensor) -> Gradients:
    x, cos, sin = ctx.saved_tensors
    is_needed = ctx.needs_input_grad[1] or ctx.needs_input_grad[2]
    dy, given = dy.contiguous(), x if is_needed else None
    dx, dcos, dsin = GRADIENT_OPERATOR(dy, cos, sin, given, ctx.mode)
    return dx, dcos, dsin, None


FORWARD_OPERATOR = operator_of("rotary_position_embedding", Gradient(_keep, _backward))


def npu_rotary_mul(
    input: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half", rotate: Tensor | None = None
) -> Tensor:
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
UNFUSED = Text(
    "the code computes x*cos + rotate_half(x)*sin, the products of halves or pairs, or complex "
    "products, in several kernels; the call is npu_rotary_mul, which adapters put in its place. It "
    "rounds once"
)
MOVED = Text(
    "the code reads neighbouring elements as pairs and writes the two of a pair half a row apart; "
    "npu_rotary_mul leaves them where they are. Products of two rotated rows are the same"
)
WHAT = "rotation"
"""Name of the code in the list of what is not recognised."""
UNKNOWN = "cos or sin of positions multiplies a tensor, in a form that is not known"
TURNS = frozenset({"cos", "sin", "polar"})
"""Kernels whose results are parts of a rotation, and so is what is computed from them alone."""
SLICE = "aten::slice"
OTHER_PRODUCTS = frozenset({"mm", "bmm", "baddbmm", "addcmul"})


class Part(NamedTuple):
    """Elements of a tensor: all of them, one half of every row, or every second one."""

    storage: int
    start: int
    size: int
    columns: int
    """Elements of a row."""
    stride: int
    """Distance of neighbouring elements of a row."""
    rows: Axes
    """Axes of the rows."""

    @property
    def place(self) -> tuple[int, int, int, Axes]:
        """Storage, first element, number of elements, and axes of the rows."""
        return (*self[:3], self.rows)

    def partner(self, second: "Part") -> int | None:
        """Return the mode in which another part holds the second elements of the pairs."""
        if (self.storage, self.size, self.rows) != (second.storage, second.size, second.rows):
            return None
        distance = second.start - self.start
        if 2 * distance == self.stride:
            return MODES["interleave"]
        return MODES["half"] if distance == self.columns * self.stride else None


class Copied(NamedTuple):
    """A copy of a part, in this dtype or another."""

    part: Part
    copy: Part
    """The copy itself."""


class Turn(NamedTuple):
    """Values of cos and sin, or computed from such alone."""


class Negated(NamedTuple):
    """A negated part, by default the second elements of the pairs of x."""

    part: Part
    steps: frozenset[Step]


class Rotated(NamedTuple):
    """rot(x) with the part that x is."""

    x: Part
    mode: int
    steps: frozenset[Step]


class Factor(NamedTuple):
    """A factor of a product: its part and shape, its sign, and what is known of it."""

    part: Part
    shape: Shape
    sign: int
    rotated: Rotated | None
    is_turn: bool
    tensor: Kept

    def value(self, sign: int = 1) -> Tensor:
        """Return the part with a sign; raise NotReplacedError if its contents have changed."""
        value = self.tensor.value()
        return -value if sign * self.sign < 0 else value


class Product(NamedTuple):
    """A product of two tensors."""

    factors: tuple[Factor, Factor]
    steps: frozenset[Step]
    entry: Entry | None
    """Its entry in the list of what is not recognised; None if no factor is known as cos or sin."""

    @property
    def sign(self) -> int:
        """Sign of the product, where factors are negated."""
        return self.factors[0].sign * self.factors[1].sign


class Sum(NamedTuple):
    """A sum or difference of two products: one half of a rotated tensor."""

    terms: tuple[tuple[Product, int], tuple[Product, int]]
    """The products with their signs."""
    step: Step


def follow(kernel: Kernel) -> list[tuple[Tensor, Any]]:
    """Return the parts of the formula as facts, and record the call where it is complete."""
    if not kernel.results:
        return []
    reader = READERS.get(kernel.operation) or READERS.get(kernel.name)
    found = reader(kernel) if reader is not None else None
    if found is not None:
        return [(kernel.results[0], found)]
    return [(tensor, Turn()) for tensor in kernel.results] if _is_turn(kernel) else []


def _is_turn(kernel: Kernel) -> bool:
    """Return whether a kernel computes cos or sin, or from these alone."""
    if kernel.name in TURNS or (kernel.name == "exp" and kernel.results[0].is_complex()):
        return True
    values = [
        tensor
        for tensor in kernel.tensors
        if tensor.dim() and (tensor.is_floating_point() or tensor.is_complex())
    ]
    return bool(values) and all(_known_turn(kernel, tensor) for tensor in values)


def _known_turn(kernel: Kernel, tensor: Tensor) -> bool:
    return isinstance(kernel.flow.fact_of_whole(TOPIC, tensor), Turn)


def _part(kernel: Kernel, tensor: Tensor) -> Part:
    """Return the part that a tensor is, or that it is a copy of."""
    known = kernel.flow.fact(TOPIC, tensor)
    return known.part if isinstance(known, Copied) else _whole(kernel, tensor)


def _whole(kernel: Kernel, tensor: Tensor) -> Part:
    """Return all elements of a tensor."""
    columns, stride = (tensor.shape[-1], tensor.stride(-1)) if tensor.dim() else (1, 1)
    start, size = int(tensor.storage_offset()), tensor.numel()
    rows = joined_axes(tensor.shape[:-1], tensor.stride()[:-1])
    return Part(kernel.flow.number(tensor), start, size, columns, stride, rows)


def _copied(kernel: Kernel) -> Any:
    """Follow a copy: what is known of its argument holds for it."""
    if kernel.name not in COPIES:
        return None
    source = kernel.tensors[0]
    if _known_turn(kernel, source):
        return Turn()
    if not source.is_floating_point():
        return None
    known = kernel.flow.fact(TOPIC, source)
    is_factor = isinstance(known, Product) and known.entry is None  # also of other formulas
    if known is None or isinstance(known, Copied) or is_factor:
        return Copied(_part(kernel, source), _whole(kernel, kernel.results[0]))
    return known


def _negated(kernel: Kernel) -> Negated | None:
    (second,) = kernel.tensors
    if _known_turn(kernel, second):
        return None
    return Negated(_part(kernel, second), frozenset({kernel.step, _slice(second)}))


def _slice(part: Tensor) -> Step:
    """Return the step that took a part of x, which has a kernel in the backward pass only."""
    node = part.grad_fn
    is_slice = node is not None and node.name().startswith("SliceBackward")
    return Step(SLICE, node._sequence_nr() if is_slice else None)


def _joined(kernel: Kernel) -> Rotated | None:
    """Follow -x2 and x1 side by side, and record the call where two sums are."""
    parts, rank = kernel.tensors, kernel.results[0].dim()
    if len(parts) < 2 or rank == 0 or kernel.argument(1, "dim", 0) not in (-1, rank - 1):
        return None
    if len(parts) == 2 and (rotated := _rotated(kernel, *parts)) is not None:
        return rotated
    for position, pair in enumerate(pairwise(parts)):
        sums = [kernel.flow.fact(TOPIC, tensor) for tensor in pair]
        if all(isinstance(known, Sum) for known in sums) and _complete(kernel, position, *sums):
            break
    return None


def _rotated(kernel: Kernel, negative: Tensor, first: Tensor) -> Rotated | None:
    """Return rot(x) where -x2 and x1 are joined: halves by cat, or pairs by stack."""
    negated = kernel.flow.fact(TOPIC, negative)
    if not isinstance(negated, Negated) or first.dim() == 0 or negative.shape != first.shape:
        return None
    part, mode = _part(kernel, first), MODES["interleave" if kernel.name == "stack" else "half"]
    if part.partner(negated.part) != mode:
        return None
    x, whole = part._replace(size=2 * part.size), kernel.flow.fact_of_whole(TOPIC, first)
    if isinstance(whole, Copied) and whole.copy.place[1:] == x.place[1:]:
        x = whole.part
    steps = negated.steps | {kernel.step, _slice(first)} | _detached(first, negative)
    return Rotated(x, mode, steps)


def _detached(*parts: Tensor | Kept) -> frozenset[Step]:
    """Return the step of a formula that reads x in one place with its gradient alone."""
    return frozenset({DETACH} if len({part.requires_grad for part in parts}) > 1 else ())


def _complete(kernel: Kernel, position: int, first: Sum, second: Sum) -> bool:
    """Describe the call where x1*cos - x2*sin and x2*cos + x1*sin are joined; return whether.

    ``position``: that of the first sum among the joined tensors.
    """
    found = _halves(first, second)
    if found is None:
        return False
    others = [kernel.flow.keep(tensor) for tensor in kernel.tensors]
    axis = kernel.argument(1, "dim", 0)
    is_cat = kernel.name == "cat"

    def compute() -> Tensor:
        one, two = found.first.value(), found.second.value()
        if gradient_node(one) is not gradient_node(two):
            raise NotReplacedError(DETACHED)
        cos, sin = found.cos.value(found.cos_sign), found.sin.value(found.sin_sign)
        x, *turns = (_paired(*pair, found.mode) for pair in ((one, two), (cos, cos), (sin, sin)))
        joined = [other.value() for other in others]
        joined[position:position] = _unpaired(_rotary(found.mode, x, *turns), found.mode)
        return torch.cat(joined, axis) if is_cat else torch.stack(joined, axis)

    factors = (found.first, found.cos, found.sin)
    shapes = [(*factor.shape[:-1], 2 * factor.shape[-1]) for factor in factors]
    products = [term for term, _ in (*first.terms, *second.terms)]
    read = [factor for term in products for factor in term.factors]
    detached = (
        _detached(*(factor.tensor for factor in read if factor.part.place == place))
        for place in {factor.part.place for factor in read}
    )
    steps = frozenset({first.step, second.step}).union(*detached)
    is_moved = found.mode == MODES["interleave"] and is_cat
    del others[position : position + 2]
    inputs = [factor.tensor for factor in (found.first, found.second, found.cos, found.sin)]
    _fuse(
        kernel,
        Rotation(shapes, found.mode, steps, compute, [*inputs, *others]),
        products,
        [MOVED] if is_moved else [],
    )
    return True


class Halves(NamedTuple):
    """x1, x2, cos and sin of two sums, the signs that cos and sin have there, and the mode."""

    first: Factor
    second: Factor
    cos: Factor
    sin: Factor
    cos_sign: int
    sin_sign: int
    mode: int


def _halves(first: Sum, second: Sum) -> Halves | None:
    """Return the parts of two sums; sin is negated in the inverse rotation."""
    for (one, two), (three, four) in product(permutations(first.terms), permutations(second.terms)):
        if one[1] * three[1] < 0 or two[1] * four[1] > 0:
            continue
        places = [{factor.part.place for factor in term.factors} for term, _ in (three, four)]
        for (x, cos), (other, sin) in product(_pairs(one[0]), _pairs(two[0])):
            mode = x.part.partner(other.part)
            wanted = [{other.part.place, cos.part.place}, {x.part.place, sin.part.place}]
            if mode is not None and places == wanted and not x.is_turn:
                return Halves(x, other, cos, sin, one[1], -two[1], mode)
    return None


def _paired(first: Tensor, second: Tensor, mode: int) -> Tensor:
    """Return rows whose halves, or pairs of neighbours, are two tensors."""
    if mode == MODES["half"]:
        return torch.cat((first, second), -1)
    return torch.stack((first, second), -1).flatten(-2)


def _unpaired(rows: Tensor, mode: int) -> tuple[Tensor, Tensor]:
    """Return the two tensors of :func:`_paired`."""
    if mode == MODES["half"]:
        first, second = rows.chunk(2, -1)
        return first, second
    return rows[..., 0::2], rows[..., 1::2]


def _rotary(mode: int, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return the fused call of tensors whose axes are aligned at the last one."""
    cos, sin = (turn.reshape((1,) * (x.dim() - turn.dim()) + turn.shape) for turn in (cos, sin))
    return npu_rotary_mul(x, cos, sin, "half" if mode == MODES["half"] else "interleave")


def _factor(kernel: Kernel, tensor: Tensor) -> Factor:
    known = kernel.flow.fact(TOPIC, tensor)
    rotated = known if isinstance(known, Rotated) else None
    shape, kept = tuple(tensor.shape), kernel.flow.keep(tensor)
    if isinstance(known, Negated):
        return Factor(known.part, shape, -1, None, is_turn=False, tensor=kept)
    return Factor(_part(kernel, tensor), shape, 1, rotated, _known_turn(kernel, tensor), kept)


def _product(kernel: Kernel) -> Product | None:
    """Follow a product of two tensors; one with cos or sin is listed until the call is found."""
    if len(kernel.tensors) != 2 or not all(operand.dim() for operand in kernel.tensors):
        return None
    turns = sum(_known_turn(kernel, tensor) for tensor in kernel.tensors)
    if turns == 2:
        return None
    if kernel.results[0].is_complex():
        if not _complex_product(kernel) and turns:
            kernel.span.not_recognised(WHAT, UNKNOWN)
        return None
    entry = kernel.span.not_recognised(WHAT, UNKNOWN) if turns else None
    first, second = (_factor(kernel, tensor) for tensor in kernel.tensors)
    return Product((first, second), frozenset({kernel.step}), entry)


def _other_product(kernel: Kernel) -> None:
    """List another product with cos and sin; not the projection of an embedding of sines."""
    turns = [_known_turn(kernel, tensor) for tensor in kernel.tensors]
    others = [tensor for tensor, turn in zip(kernel.tensors, turns, strict=True) if not turn]
    if any(turns) and any(kernel.flow.parameter(tensor) is None for tensor in others):
        kernel.span.not_recognised(WHAT, UNKNOWN)


def _complex_product(kernel: Kernel) -> bool:
    """Describe the call where pairs of a real x are multiplied by cos + i*sin; return whether."""
    mode = MODES["interleave"]
    for x, turn in (kernel.tensors, kernel.tensors[::-1]):
        is_pairs = x._base is not None and not x._base.is_complex()
        if is_pairs and turn.is_complex() and x.shape == kernel.results[0].shape:
            pairs, turns = kernel.flow.keep(x), kernel.flow.keep(turn)

            def compute(pairs: Kept = pairs, turns: Kept = turns) -> Tensor:
                cos, sin = turns.value().real, turns.value().imag
                rows = torch.view_as_real(pairs.value()).flatten(-2)
                y = _rotary(mode, rows, _paired(cos, cos, mode), _paired(sin, sin, mode))
                return torch.view_as_complex(y.unflatten(-1, (-1, 2)))

            shapes = [(*tensor.shape[:-1], 2 * tensor.shape[-1]) for tensor in (x, turn, turn)]
            _fuse(kernel, Rotation(shapes, mode, frozenset(), compute, [pairs, turns]), ())
            return True
    return False


def _sum(kernel: Kernel) -> Sum | None:
    """Describe the call where x*cos and rot(x)*sin are added; follow sums of other products."""
    terms = [kernel.flow.fact(TOPIC, tensor) for tensor in kernel.tensors]
    if len(terms) != 2 or not all(isinstance(term, Product) for term in terms):
        return None
    if kernel.options.get("alpha", 1) != 1:
        return None
    dtype = kernel.results[0].dtype
    for turned, sin in (pair for term in terms for pair in _pairs(term)):
        if turned.rotated is None or kernel.name != "add":
            continue
        for x, cos in (pair for term in terms for pair in _pairs(term)):
            if x.part.place == turned.rotated.x.place and x.shape == turned.shape and x.sign > 0:
                rotated = turned.rotated
                steps = rotated.steps | _detached(x.tensor, turned.tensor)
                parts, mode = [factor.tensor for factor in (x, cos, sin)], rotated.mode

                def compute(parts: list[Kept] = parts, mode: int = mode) -> Tensor:
                    rows, *turns = (part.value() for part in parts)
                    return _rotary(mode, rows.to(dtype), *turns)

                shapes = [factor.shape for factor in (x, cos, sin)]
                _fuse(kernel, Rotation(shapes, mode, steps, compute, parts), terms)
                return None
    first, second = terms
    minus = -1 if kernel.name == "sub" else 1
    return Sum(((first, first.sign), (second, minus * second.sign)), kernel.step)


def _pairs(term: Product) -> tuple[tuple[Factor, Factor], ...]:
    first, second = term.factors
    return (first, second), (second, first)


class Rotation(NamedTuple):
    """What a program computes as a rotation."""

    shapes: list[Shape]
    """Shapes of x, cos and sin."""
    mode: int
    steps: frozenset[Step]
    """Kernels beside the products and the last one."""
    compute: Callable[[], Tensor]
    inputs: Sequence[Kept]
    """Tensors that it begins with, x or a part of it first."""


def _fuse(
    kernel: Kernel, rotation: Rotation, products: Sequence[Product], remarks: Sequence[str] = ()
) -> None:
    """Describe the call of x, cos and sin."""
    rank, span = len(rotation.shapes[0]), kernel.span
    for term in products:
        span.retract(term.entry)
    if rank not in RANKS or max(map(len, rotation.shapes)) > rank:
        why = Text("x has {rank} axes, and the operator takes 3 or 4", rank=rank)
        span.not_recognised(WHAT, why)
        return
    dtype = str(kernel.results[0].dtype.to_real())
    full = ((1,) * (rank - len(shape)) + shape for shape in rotation.shapes)
    x, cos, sin = (str(TensorSpec(shape, dtype)) for shape in full)
    turned = {"cos": cos, "sin": sin, "mode": rotation.mode}
    steps = rotation.steps.union(*(term.steps for term in products))
    x_tensor, *others = rotation.inputs
    of_x = frozenset(step for step in steps if step.name != SLICE)
    fused = FusedCall(
        compute=rotation.compute,
        forward=[Forward(FORWARD, {"x": x, **turned})],
        backward=[Backward(OPERATOR, lambda _: {"dy": x, **turned})],
        when_recorded=UNFUSED,
        remarks=remarks,
        steps=steps | {kernel.step},
        sources=[Source(x_tensor, of_x), *map(Source, others)],
    )
    span.fuse(kernel, fused)


READERS = {
    "copy": _copied,
    "neg": _negated,
    "cat": _joined,
    "stack": _joined,
    "mul": _product,
    "add": _sum,
    "sub": _sum,
    **dict.fromkeys(OTHER_PRODUCTS, _other_product),
}
"""Functions that read a kernel, by what it computes, or its name."""

"""Cross entropy: CrossEntropyLoss with its gradient, and how calls of the gradient are recognised.

Recognised are cross entropies of logits or log-probabilities. PyTorch's function computes the loss
as PyTorch does: the product has no kernel of its own for it, and runs log_softmax and nll_loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from npu_sim.framework.target import current_device
from npu_sim.numbers.formats import TensorSpec
from npu_sim.status import INVALID, AclnnError, UsageError, shown
from npu_sim.torch import flow
from npu_sim.torch.flow import Kept, Kernel
from npu_sim.torch.fused import Backward, FusedCall, Source
from npu_sim.torch.library import (
    Gradient,
    Gradients,
    compute,
    define,
    operator_of,
    saving,
    without_autocast,
)
from npu_sim.torch.recorder import Span, spec_of

__all__ = ["cross_entropy", "npu_cross_entropy_loss"]

GRADIENT_OPERATOR = operator_of("cross_entropy_loss_grad")


REDUCTIONS = ("none", "mean", "sum")
"""Reductions by the numbers of PyTorch's kernels."""


def _log_prob(logits: Tensor) -> Tensor:
    return torch.ops.aten.log_softmax.int(logits.float(), 1)


@without_autocast
def cross_entropy_forward(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> tuple[Tensor, Tensor]:
    """Return the loss, 0-D or (N,), and the log-probabilities (N, C), in the dtype of logits."""
    log_prob = _log_prob(logits)
    if reduction not in REDUCTIONS:
        raise UsageError(
            "reduction",
            "reduction = {reduction} is not known",
            "one of: {names}",
            reduction=shown(reduction),
            names=", ".join(REDUCTIONS),
        )
    # Kernels, not functions of PyTorch, which programs may replace by those of this package.
    options = (target, weight, REDUCTIONS.index(reduction), ignore_index)
    if label_smoothing:
        loss = torch.ops.aten.cross_entropy_loss(log_prob, *options, label_smoothing)
    else:
        loss = torch.ops.aten.nll_loss_nd(log_prob, *options)
    return loss.to(logits.dtype), log_prob.to(logits.dtype)


def _shapes(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> tuple[Tensor, Tensor]:
    loss = logits.new_empty(target.shape if reduction == "none" else ())
    return loss, torch.empty_like(logits, memory_format=torch.contiguous_format)


def _backward(ctx: Any, grad_loss: Tensor, _: Any) -> Gradients:
    logits, target, weight, log_prob = ctx.saved_tensors
    if torch.is_grad_enabled():
        # The gradient depends on the logits: without this, second derivatives would be zero.
        log_prob = _log_prob(logits).to(logits.dtype)
    reduction, ignore_index, label_smoothing = ctx.call[:3]
    logits_grad = GRADIENT_OPERATOR(
        grad_loss=grad_loss.contiguous(),
        log_prob=log_prob,
        target=target.contiguous(),
        weight=weight,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )
    return logits_grad, *([None] * (len(ctx.needs_input_grad) - 1))


GRADIENT = Gradient(saving(0, 1, 2, results=(1,)), _backward)
LOSS_OPERATOR = operator_of("cross_entropy_loss", GRADIENT)
FORWARD_OPERATOR = define(
    "cross_entropy(Tensor logits, Tensor target, Tensor? weight, str reduction, int ignore_index, "
    "float label_smoothing) -> (Tensor, Tensor)",
    cross_entropy_forward,
    _shapes,
    GRADIENT,
)


def _checked(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Check that the product supports a call, and compute the loss and log-probabilities.

    Raises
    ------
    AclnnError
        161002 for logits that are not (N, C), labels that are not int64, and weights that are not
        fp32.
    """
    if logits.dim() != 2:
        raise AclnnError(
            INVALID,
            "input",
            "input has shape {shape}; the product takes logits (N, C)",
            "input.reshape(-1, C), or input[None] for one row; target likewise",
            shape=tuple(logits.shape),
        )
    if target.dtype != torch.int64:
        raise AclnnError(
            INVALID,
            "target",
            "target is {dtype}; the product takes int64",
            "target.long()",
            dtype=target.dtype,
        )
    if weight is not None and weight.dtype != torch.float32:
        raise AclnnError(
            INVALID,
            "weight",
            "weight is {dtype}; the product takes float32",
            "weight.float()",
            dtype=weight.dtype,
        )
    if torch.is_autocast_enabled("cpu"):
        logits = logits.float()
    loss, log_prob = FORWARD_OPERATOR(
        logits, target, weight, reduction, ignore_index, label_smoothing
    )
    return loss, log_prob


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the cross entropy of logits (N, C), as :func:`torch.nn.functional.cross_entropy`.

    CrossEntropyLossGrad computes its gradient.

    Raises
    ------
    AclnnError
        161002 for logits that are not (N, C), targets that are not int64 labels, weights that are
        not fp32, and label smoothing of an input that requires a gradient, which the product's
        gradient does not support.
    """
    _refuse_smoothed_gradient(input, label_smoothing)
    if size_average is not None or reduce is not None:
        reduction = _reduction(size_average, reduce)
    return _checked(input, target, weight, reduction, ignore_index, label_smoothing)[0]


def _refuse_smoothed_gradient(input: Tensor, label_smoothing: float) -> None:
    """Raise AclnnError for a gradient with label smoothing."""
    if label_smoothing != 0.0 and input.requires_grad:
        raise AclnnError(
            INVALID,
            "label_smoothing",
            "label_smoothing = {label_smoothing}: the gradient with label smoothing is not "
            "supported yet",
            "label_smoothing = 0.0",
            label_smoothing=label_smoothing,
        )


def npu_cross_entropy_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    lse_square_scale_for_zloss: float = 0.0,
    return_zloss: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (loss, log_prob, zloss, lse_for_zloss), computed by CrossEntropyLoss.

    The loss has shape (1,) for mean and sum, (N,) for none; the last two are empty. All results
    have the input's dtype. CrossEntropyLossGrad computes the gradient of the loss.

    Raises
    ------
    AclnnError
        Those of CrossEntropyLoss; 161002 for the z-loss, which the product does not support yet,
        and for label smoothing of an input that requires a gradient, which the product's gradient
        does not support.
    """
    if lse_square_scale_for_zloss != 0.0 or return_zloss:
        raise AclnnError(
            INVALID,
            "return_zloss" if return_zloss else "lse_square_scale_for_zloss",
            "the z-loss is not supported yet",
            "lse_square_scale_for_zloss = 0.0 and return_zloss = False",
        )
    _refuse_smoothed_gradient(input, label_smoothing)
    if torch.is_autocast_enabled("cpu"):
        input = input.float()
    loss, log_prob = LOSS_OPERATOR(
        input=input.contiguous(),
        target=target.contiguous(),
        weight=weight,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )
    empty = input.new_empty(0)
    return loss, log_prob, empty, empty.clone()


OPERATOR = "cross_entropy_loss_grad"
TOPIC = OPERATOR


def _cross_entropy(
    span: Span,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> FusedCall | None:
    if target.is_floating_point():
        span.not_recognised("cross_entropy", "its targets are probabilities, not labels")
        return None
    if size_average is not None or reduce is not None:
        reduction = _reduction(size_average, reduce)
    classes = input.shape[1 if input.dim() > 1 else 0]
    rows = input.numel() // classes if classes else 0
    dtype = torch.float32 if torch.is_autocast_enabled("cpu") else input.dtype
    # The call has the classes on the last axis and all other axes as rows.
    call: dict[str, Any] = {
        "log_prob": str(TensorSpec((rows, classes), str(dtype))),
        "target": spec_of(target, (rows,), copied=True),
    }
    options: dict[str, Any] = {"reduction": reduction, "ignore_index": ignore_index}
    if weight is not None:
        call["weight"] = spec_of(weight, copied=True)
    call |= options
    if label_smoothing:
        call["label_smoothing"] = options["label_smoothing"] = label_smoothing
    shape = (rows,) if reduction == "none" else ()
    return FusedCall(
        compute=lambda: _of_rows(input, target, weight=weight, **options),
        backward=[
            Backward(
                OPERATOR,
                lambda gradient: {"grad_loss": spec_of(gradient, shape, copied=True), **call},
            )
        ],
    )


def _of_rows(logits: Tensor, target: Tensor, **options: Any) -> Tensor:
    """Return the cross entropy of logits (C), (N, C) or (N, C, ...) as that of rows."""
    classes_last = logits.movedim(1, -1) if logits.dim() > 1 else logits
    rows, labels = classes_last.reshape(-1, classes_last.shape[-1]), target.reshape(-1)
    if logits.requires_grad:
        _require_gradient(rows, labels, options["ignore_index"])
    loss = cross_entropy(rows, labels, **options)
    return loss.reshape(target.shape) if options["reduction"] == "none" else loss


def _require_gradient(rows: Tensor, labels: Tensor, ignore_index: int) -> None:
    """Raise what the gradient would raise for ignored labels, which the forward pass accepts."""
    outside = (labels < 0).nonzero()
    if len(outside):
        row = slice(int(outside[0]), int(outside[0]) + 1)
        arguments = {
            "grad_loss": rows.new_ones(1),
            "log_prob": rows[row].detach().contiguous(),
            "target": labels[row],
            "reduction": "none",
            "ignore_index": ignore_index,
        }
        compute(OPERATOR, current_device(), arguments)


def _reduction(size_average: bool | None, reduce: bool | None) -> str:
    """Return the reduction for PyTorch's two deprecated options; None means True."""
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def _nll_loss(
    span: Span, input: Tensor, target: Tensor, *arguments: Any, **options: Any
) -> FusedCall | None:
    axis = 1 if input.dim() > 1 else 0
    rows = input.detach().movedim(axis, -1)
    term = span.fact(OPERATOR, rows)
    is_of_rows = isinstance(term, Term) and term.kind == "log_softmax" and _has_rows(rows, term)
    if not is_of_rows:
        term = span.fact(OPERATOR, input)
        if not isinstance(term, Term) or (term.columns, term.shape) != (axis, input.shape):
            span.not_recognised(
                "nll_loss", "its input is not the whole result of log_softmax over its classes"
            )
            return None
    described = _cross_entropy(span, input, target, *arguments, **options)
    if described is None:
        return None

    def computed() -> Any:
        logits = term.logits_tensor.value()
        if is_of_rows:
            logits = logits.reshape(rows.shape).movedim(-1, axis)
        found = _cross_entropy(span, logits, target, *arguments, **options)
        return None if found is None else found.compute()

    sources = [Source(term.logits_tensor, term.steps)]
    return replace(described, compute=computed, steps=term.steps, sources=sources, passed=input)


def _linear_cross_entropy(span: Span, *_: Any, **__: Any) -> None:
    span.not_recognised(
        OPERATOR,
        "linear_cross_entropy computes the logits in parts, and the operator takes all of them",
    )


@dataclass(frozen=True, eq=False)
class Term(flow.Term):
    """A tensor as a part of a cross entropy that is computed by hand.

    Its kind is ``logits``, ``max`` (of a row), ``shifted`` (logits - max), ``exp``, ``sum`` (of
    exp), ``logsumexp``, ``softmax``, ``log_softmax``, ``column_log_softmax`` (of another axis),
    ``label`` (logits of the labels), ``probability`` (of the labels), or ``loss``; the formula
    begins with the logits.
    """

    logits: str
    """Spec of the logits as text, one row for each label."""
    logits_tensor: Kept
    """The logits themselves."""
    shifted: bool = False
    """Whether the maximum of the row was subtracted."""
    target: str = ""
    """Spec of the labels as text."""
    target_tensor: Kept | None = None
    """The labels themselves, where they picked a class."""
    columns: int | None = None
    """Axis of the classes of ``column_log_softmax``."""


def _term(kernel: Kernel, tensor: Tensor) -> Term:
    """Return a tensor's term; logits if no term is known."""
    known = kernel.flow.fact(OPERATOR, tensor)
    if isinstance(known, Term):
        return known
    shape = tuple(tensor.shape)
    rows = tensor.numel() // shape[-1] if shape and shape[-1] else 0
    spec = spec_of(tensor, (rows, shape[-1] if shape else 0), copied=True)
    return Term("logits", kernel.flow.identity(tensor), shape, spec, kernel.flow.keep(tensor))


def _cast(kernel: Kernel, term: Term) -> Term | None:
    # A cast of logits gives other logits: the operator has the dtype of its input.
    return None if term.kind == "logits" else term


def _of_row(kernel: Kernel, term: Term) -> Term | None:
    """Follow a kernel that takes the last axis of the logits."""
    logits, axis = kernel.operands[0], kernel.argument(1, "dim")
    axis = axis[0] if isinstance(axis, list | tuple) and len(axis) == 1 else axis
    if not isinstance(axis, int) or not _has_rows(logits, term):
        return None
    axis %= max(logits.dim(), 1)
    if axis in (-1, logits.dim() - 1):
        return replace(term, kind=OF_ROW[kernel.operation, term.kind])
    if kernel.name != "_log_softmax" or logits.shape != term.shape:
        return None
    return replace(term, kind="column_log_softmax", columns=axis)


def _has_rows(tensor: Tensor, term: Term) -> bool:
    """Return whether the last axis of a tensor is that of the logits."""
    return tuple(tensor.shape[-1:]) == term.shape[-1:]


def _difference(kernel: Kernel, first: Term, other: Term) -> Term | None:
    kind = DIFFERENCES[first.kind, other.kind]
    minuend, subtrahend = (tensor.shape for tensor in kernel.operands)
    wanted = minuend if kind == "loss" else (*minuend[:-1], 1)
    if not _are_of_rows(first, other) or subtrahend != wanted:
        return None
    # The maximum is subtracted on both sides, or on neither.
    if kind != "shifted" and first.shifted != other.shifted:
        return None
    label = first if first.target else other
    found = replace(
        first,
        kind=kind,
        target=label.target,
        target_tensor=label.target_tensor,
        shifted=first.shifted or kind == "shifted",
    )
    if kind == "loss":
        _fuse(kernel, found, is_negative=label is first)
    return found


def _unshifted(kernel: Kernel, first: Term, other: Term) -> Term | None:
    """Follow log(sum(exp(x - max))) + max."""
    one, two = kernel.operands
    if not _are_of_rows(first, other) or one.shape != two.shape:
        return None
    return replace(first, kind="logsumexp", shifted=False)


def _are_of_rows(first: Term, other: Term) -> bool:
    """Return whether two terms are of the same rows of logits."""
    return (first.key, first.shape[-1:]) == (other.key, other.shape[-1:])


def _logarithm_of_probability(kernel: Kernel, probability: Term) -> None:
    kernel.span.not_recognised(
        "cross_entropy",
        "it takes the logarithm of the labels' probabilities: cross_entropy is more accurate",
    )


def _product(kernel: Kernel, first: Term, other: Term) -> None:
    if first.shape == other.shape:
        kernel.span.not_recognised(
            "cross_entropy",
            "its log-probabilities are multiplied by a tensor of their shape, which need not be "
            "labels",
        )


def _gradient(kernel: Kernel, softmax: Term, other: Term | None = None) -> None:
    if any(not tensor.is_floating_point() for tensor in kernel.tensors):
        kernel.span.not_recognised(
            "cross_entropy",
            "its gradient is computed by hand: probabilities minus one at the labels",
        )


def _picked(kernel: Kernel, term: Term) -> Term | None:
    """Follow a kernel that picks one class of every row."""
    logits, *others = kernel.tensors
    rows, last = logits.shape[:-1], logits.dim() - 1
    indices = [tensor for tensor in others if not tensor.is_floating_point()]
    if not indices or last < 1 or not _has_rows(logits, term):
        return None
    if kernel.name == "gather":
        is_of_row = kernel.argument(1, "dim") in (-1, last) and indices[0].shape == (*rows, 1)
    else:
        is_of_row = len(indices) == last + 1 and _are_rows(indices[:-1], rows)
    if not is_of_row or kernel.results[0].numel() != rows.numel():
        return None
    target = spec_of(indices[-1], (rows.numel(),), copied=True)
    kind = "probability" if term.kind == "softmax" else "label"
    labels = kernel.flow.keep(indices[-1].expand(kernel.results[0].shape))
    label = replace(term, kind=kind, target=target, target_tensor=labels)
    if term.kind == "log_softmax":
        _fuse(kernel, label, is_negative=True)
        return None
    return label


def _are_rows(indices: Sequence[Tensor], rows: torch.Size) -> bool:
    """Return whether indices take every row once, in order; those without values may."""
    position = torch.zeros((), dtype=torch.int64)
    for index, size in zip(indices, rows, strict=True):
        if index.is_meta:
            return True
        position = position * size + index
    return bool(torch.equal(position.reshape(-1), torch.arange(rows.numel())))


def _fuse(kernel: Kernel, term: Term, is_negative: bool) -> None:
    """Describe a cross entropy whose reduction stays outside, of the sign that the program has."""
    rows, _, dtype = term.logits.partition(":")
    gradient = {
        "grad_loss": f"{rows.partition('x')[0]}:{dtype}",
        "log_prob": term.logits,
        "target": term.target,
        "reduction": "none",
        "ignore_index": -100,
    }
    labels = term.target_tensor
    if labels is None:
        return

    def computed() -> Tensor:
        logits = term.logits_tensor.value().reshape(-1, term.shape[-1])
        loss = cross_entropy(logits, labels.value().reshape(-1), reduction="none")
        return -loss if is_negative else loss

    # The maximum of a row changes no gradient, whether it is detached or not.
    followed = frozenset(step for step in term.steps if step.name not in MAXIMA)
    fused = FusedCall(
        compute=computed,
        backward=[Backward(OPERATOR, lambda _: gradient)],
        steps=term.steps,
        sources=[Source(term.logits_tensor, followed)],
    )
    kernel.span.fuse(kernel, fused)


MAXIMA = frozenset({"aten::amax", "aten::max"})
OF_ROW = {
    ("logsumexp", "logits"): "logsumexp",
    ("logsumexp", "shifted"): "logsumexp",
    ("_softmax", "logits"): "softmax",
    ("_log_softmax", "logits"): "log_softmax",
    ("_softmax", "shifted"): "softmax",
    ("_log_softmax", "shifted"): "log_softmax",
    ("amax", "logits"): "max",
    ("max", "logits"): "max",
    ("sum", "exp"): "sum",
}
"""Kind of the result of a kernel that takes the last axis, by kernel and kind of its argument."""
DIFFERENCES = {
    ("logits", "max"): "shifted",
    ("logits", "logsumexp"): "log_softmax",
    ("shifted", "logsumexp"): "log_softmax",
    ("logsumexp", "label"): "loss",
    ("label", "logsumexp"): "loss",
}
"""Kind of a difference of two tensors, by their kinds."""
RULES: dict[tuple[str, ...], flow.Rule[Term]] = {
    ("copy",): _cast,
    ("exp", "logits"): "exp",
    ("exp", "shifted"): "exp",
    ("log", "sum"): "logsumexp",
    ("log", "softmax"): "log_softmax",
    ("log", "probability"): _logarithm_of_probability,
    ("add", "logsumexp", "max"): _unshifted,
    ("add", "max", "logsumexp"): _unshifted,
    ("mul", "log_softmax", "logits"): _product,
    ("mul", "logits", "log_softmax"): _product,
    **dict.fromkeys(OF_ROW, _of_row),
    **{("sub", *kinds): _difference for kinds in DIFFERENCES},
    **{
        (kernel, kind): _picked
        for kernel in ("gather", "index")
        for kind in ("logits", "shifted", "log_softmax", "softmax")
    },
    **{
        (kernel, "softmax", *others): _gradient
        for kernel in ("index_put", "scatter_add", "scatter", "sub")
        for others in ((), ("logits",))
    },
}
FORMULA = flow.Formula(RULES, detachable=frozenset({"max"}))


def follow(kernel: Kernel) -> list[tuple[Tensor, Term]]:
    """Return the terms of a kernel's results; record log-probabilities that labels pick."""
    return FORMULA.follow(kernel, _term)


FUNCTIONS: dict[Any, Any] = {
    functional.cross_entropy: _cross_entropy,
    functional.nll_loss: _nll_loss,
}
if hasattr(functional, "linear_cross_entropy"):  # from PyTorch 2.13 on
    FUNCTIONS[functional.linear_cross_entropy] = _linear_cross_entropy
KERNELS = {"aten::nll_loss_backward": "cross_entropy", "aten::nll_loss2d_backward": "cross_entropy"}

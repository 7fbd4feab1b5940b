"""How PyTorch computes the same, way by way; nothing where PyTorch is not installed.

Every way returns its results as a tuple in the order of our outputs, None for one that it does not
compute, so that they can be compared.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
from cases import Case, Problem

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

Ways = dict[str, Callable[[], tuple[Any, ...]]]


def ways(case: Case, problem: Problem) -> Ways:
    """Return PyTorch's ways to do what a problem asks for."""
    return {} if torch is None else _WAYS[case.operator](case, problem)


def tensor(array: np.ndarray) -> Any:
    """Return a NumPy array as a PyTorch tensor that shares its memory."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _tensors(problem: Problem, *names: str) -> list[Any]:
    return [tensor(problem.inputs[name]) for name in names]


def _integers(problem: Problem, name: str) -> Any:
    """Return indices as PyTorch takes them."""
    return torch.from_numpy(problem.inputs[name].reshape(-1).astype(np.int64))


def _embedding(case: Case, problem: Problem) -> Ways:
    (grad,), indices = _tensors(problem, "grad"), _integers(problem, "indices")
    rows = case.sizes["num_weights"]
    return {
        "aten": lambda: (torch.ops.aten.embedding_dense_backward(grad, indices, rows, -1, False),)
    }


EPSILON = 1e-6
"""Default of the normalisations."""


def _rms_norm(case: Case, problem: Problem) -> Ways:
    x, gamma = _tensors(problem, "x", "gamma")

    def as_in_models() -> tuple[Any, ...]:
        wide = x.float()
        rstd = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
        return gamma * (wide * rstd).to(x.dtype), rstd

    return {
        "rms_norm": lambda: (torch.nn.functional.rms_norm(x, gamma.shape, gamma, EPSILON), None),
        "as in models": as_in_models,
    }


def _rms_norm_grad(case: Case, problem: Problem) -> Ways:
    """PyTorch's own forward pass runs here, before anything is timed."""
    x, gamma, dy = _tensors(problem, "x", "gamma", "dy")
    x.requires_grad_(), gamma.requires_grad_()
    forward = torch.nn.functional.rms_norm(x, gamma.shape, gamma, EPSILON)
    return {"rms_norm": lambda: torch.autograd.grad(forward, (x, gamma), dy, retain_graph=True)}


def _add_rms_norm(case: Case, problem: Problem) -> Ways:
    x1, x2, gamma = _tensors(problem, "x1", "x2", "gamma")

    def added() -> tuple[Any, ...]:
        x = x1 + x2
        return torch.nn.functional.rms_norm(x, gamma.shape, gamma, EPSILON), None, x

    def in_place() -> tuple[Any, ...]:
        total = torch.add(x1, x2)
        wide = total.float()
        rstd = torch.rsqrt(wide.square().mean(-1, keepdim=True).add_(EPSILON))
        return wide.mul(rstd).to(x1.dtype).mul_(gamma), rstd, total

    return {"add+rms_norm": added, "add, square, mean, mul_": in_place}


def _cross_entropy(case: Case, problem: Problem) -> Ways:
    (values,), target = _tensors(problem, "input"), _integers(problem, "target")

    def in_two() -> tuple[Any, ...]:
        log_prob = torch.log_softmax(values, 1)
        return torch.nn.functional.nll_loss(log_prob, target).reshape(1), log_prob

    return {"log_softmax+nll_loss": in_two}


def _cross_entropy_grad(case: Case, problem: Problem) -> Ways:
    (log_prob,), target = _tensors(problem, "log_prob"), _integers(problem, "target")
    loss = torch.tensor(float(problem.inputs["grad_loss"]), dtype=log_prob.dtype)
    total = torch.tensor(float(len(target)), dtype=log_prob.dtype)

    def backward() -> tuple[Any, ...]:
        nll = torch.ops.aten.nll_loss_backward(loss, log_prob, target, None, 1, -100, total)
        return (torch.ops.aten._log_softmax_backward_data(nll, log_prob, 1, log_prob.dtype),)

    return {"aten": backward}


def _permute(case: Case, problem: Problem) -> Ways:
    """Sort ids, invert the order (by assignment or a second sort), and copy the rows."""
    experts = case.sizes["num_topk"]
    tokens, ids = tensor(problem.inputs["tokens"]), tensor(problem.inputs["indices"].reshape(-1))

    def assigned() -> tuple[Any, ...]:
        first = torch.argsort(ids, stable=True)
        places = torch.empty(first.numel(), dtype=torch.int32)
        places[first] = torch.arange(first.numel(), dtype=torch.int32)
        return tokens.index_select(0, first // experts), places

    def sorted_twice() -> tuple[Any, ...]:
        first = torch.argsort(ids, stable=True)
        return tokens.index_select(0, first // experts), torch.argsort(first).to(torch.int32)

    return {"argsort+index_select": assigned, "argsort twice+index_select": sorted_twice}


def _permute_grad(case: Case, problem: Problem) -> Ways:
    (grad,), indices = (
        _tensors(problem, "permuted_output_grad"),
        _integers(problem, "sorted_indices"),
    )
    tokens, experts, hidden = case.sizes.values()
    token = torch.argsort(indices) // experts
    return {
        "index_select+sum": lambda: (
            grad.index_select(0, indices).view(tokens, experts, hidden).sum(1),
        ),
        "index_add_": lambda: (
            torch.zeros(tokens, hidden, dtype=grad.dtype).index_add_(0, token, grad),
        ),
    }


def _unpermute(case: Case, problem: Problem) -> Ways:
    rows, probs = _tensors(problem, "permuted_tokens", "probs")
    indices, shape = _integers(problem, "sorted_indices"), tuple(case.sizes.values())

    def gathered() -> Any:
        return rows.index_select(0, indices).view(shape)

    return {
        "index_select*probs sum": lambda: ((gathered() * probs.unsqueeze(-1)).sum(1),),
        "index_select bmm": lambda: (torch.bmm(probs.unsqueeze(1), gathered()).squeeze(1),),
    }


def _unpermute_grad(case: Case, problem: Problem) -> Ways:
    rows, g, probs = _tensors(problem, "permuted_tokens", "unpermuted_tokens_grad", "probs")
    indices, shape = _integers(problem, "sorted_indices"), tuple(case.sizes.values())
    entry = torch.argsort(indices)
    rows.requires_grad_(), probs.requires_grad_()
    forward = (rows.index_select(0, indices).view(shape) * probs.unsqueeze(-1)).sum(1)

    def by_hand() -> tuple[Any, ...]:
        weighted = g.unsqueeze(1) * probs.detach().unsqueeze(-1)
        gathered = rows.detach().index_select(0, indices).view(shape)
        return (
            weighted.view(-1, shape[-1]).index_select(0, entry),
            torch.bmm(gathered, g.unsqueeze(-1)).squeeze(-1),
        )

    return {
        "autograd": lambda: torch.autograd.grad(forward, (rows, probs), g, retain_graph=True),
        "index_select bmm": by_hand,
    }


def _swi_glu(case: Case, problem: Problem) -> Ways:
    first, second = tensor(problem.inputs["x"]).chunk(2, -1)
    return {"silu(a)*b": lambda: (torch.nn.functional.silu(first) * second,)}


def _swi_glu_grad(case: Case, problem: Problem) -> Ways:
    """PyTorch's own forward pass runs here, before anything is timed."""
    x, y_grad = _tensors(problem, "x", "y_grad")
    first, second = x.requires_grad_().chunk(2, -1)
    forward = torch.nn.functional.silu(first) * second
    return {
        "silu(a)*b backward": lambda: torch.autograd.grad(forward, x, y_grad, retain_graph=True)
    }


def _rotated_half(values: Any, sign: int) -> Any:
    """Return the halves of the last axis in turn, of which the first has the sign."""
    first, second = values.chunk(2, -1)
    return torch.cat((-second, first) if sign < 0 else (second, -first), -1)


def _rotary(case: Case, problem: Problem) -> Ways:
    x, cos, sin = _tensors(problem, "x", "cos", "sin")
    return {"x*cos + rotate_half(x)*sin": lambda: (x * cos + _rotated_half(x, -1) * sin,)}


def _rotary_grad(case: Case, problem: Problem) -> Ways:
    dy, cos, sin = _tensors(problem, "dy", "cos", "sin")
    return {"the formula's gradient": lambda: (dy * cos + _rotated_half(dy * sin, 1),)}


def _adam_w(case: Case, problem: Problem) -> Ways:
    """The optimizer steps on with its parameters; the first step is that of the case."""
    found = {}
    # In fp16 eps is 0, and the foreach form divides by 0.
    for way in ("fused",) if case.dtype == "fp16" else ("fused", "foreach"):
        var, m, v = (one.clone() for one in _tensors(problem, "var", "m", "v"))
        var.grad = tensor(problem.inputs["grad"])
        optimizer = torch.optim.AdamW([var], **{way: True})
        step = torch.tensor(float(problem.inputs["step"][0]))
        optimizer.state[var].update(step=step, exp_avg=m, exp_avg_sq=v)
        found[f"AdamW({way}=True)"] = partial(_step, optimizer, (var, m, v))
    return found


def _step(optimizer: Any, updated: tuple[Any, ...]) -> tuple[Any, ...]:
    optimizer.step()
    return updated


def _conv_tbc(case: Case, problem: Problem) -> Ways:
    """PyTorch's own gradient, and oneDNN's convolution on tensors that have its order of axes."""
    tensors = _tensors(problem, "grad_output", "input", "weight", "bias")
    pad = problem.inputs["pad"]
    return {
        "conv_tbc_backward": lambda: torch.ops.aten.conv_tbc_backward(*tensors, pad),
        "oneDNN convolution_backward": _one_dnn(tensors, pad, torch.contiguous_format),
        "oneDNN, channels last": _one_dnn(tensors, pad, torch.channels_last),
    }


def _one_dnn(tensors: list[Any], pad: int, layout: Any) -> Callable[[], tuple[Any, ...]]:
    """Return the gradients of a convolution over (batch, channels, 1, time)."""
    grad, x = (one.permute(1, 2, 0).unsqueeze(2) for one in tensors[:2])
    weight = tensors[2].permute(2, 1, 0).unsqueeze(2)
    laid_out = [one.contiguous(memory_format=layout) for one in (grad, x, weight)]
    rest = ([weight.shape[0]], [1, 1], [0, pad], [1, 1], False, [0, 0], 1, [True, True, True])

    def backward() -> tuple[Any, ...]:
        for_x, for_weight, for_bias = torch.ops.aten.convolution_backward(*laid_out, *rest)
        # Views in our order of axes, which move nothing.
        return for_x.squeeze(2).permute(2, 0, 1), for_weight.squeeze(2).permute(2, 1, 0), for_bias

    return backward


_WAYS = {
    "embedding_dense_backward": _embedding,
    "rms_norm": _rms_norm,
    "rms_norm_grad": _rms_norm_grad,
    "add_rms_norm": _add_rms_norm,
    "cross_entropy_loss": _cross_entropy,
    "cross_entropy_loss_grad": _cross_entropy_grad,
    "moe_token_permute": _permute,
    "moe_token_permute_grad": _permute_grad,
    "moe_token_unpermute": _unpermute,
    "moe_token_unpermute_grad": _unpermute_grad,
    "swi_glu": _swi_glu,
    "swi_glu_grad": _swi_glu_grad,
    "rotary_position_embedding": _rotary,
    "rotary_position_embedding_grad": _rotary_grad,
    "apply_adam_w_v2": _adam_w,
    "conv_tbc_backward": _conv_tbc,
}

"""How PyTorch computes the same, way by way; nothing where PyTorch is not installed.

Every way returns its results as a tuple in the order of our outputs, so that a test can compare
them. Only conv1d returns its axes in another order.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numba
import numpy as np
from cases import Case, Problem

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

Ways = dict[str, Callable[[], tuple[Any, ...]]]


def ways(case: Case, problem: Problem) -> Ways:
    """Return PyTorch's ways to do what a problem asks for, on as many threads as we use."""
    if torch is None:
        return {}
    torch.set_num_threads(numba.get_num_threads())
    return _WAYS[case.operator](case, problem)


def tensor(array: np.ndarray) -> Any:
    """Return a NumPy array as a PyTorch tensor that shares its memory."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _embedding(case: Case, problem: Problem) -> Ways:
    grad, indices = (
        tensor(problem.inputs["grad"]),
        torch.from_numpy(problem.inputs["indices"].astype(np.int64)),
    )
    return {
        "aten": lambda: (
            torch.ops.aten.embedding_dense_backward(grad, indices, case.shape[2], -1, False),
        )
    }


def _rms_norm(case: Case, problem: Problem) -> Ways:
    """PyTorch's own forward pass runs here, before anything is timed."""
    x, gamma, dy = (tensor(problem.inputs[name]) for name in ("x", "gamma", "dy"))
    x.requires_grad_(), gamma.requires_grad_()
    forward = torch.nn.functional.rms_norm(x, (case.shape[1],), gamma, 1e-6)
    return {"rms_norm": lambda: torch.autograd.grad(forward, (x, gamma), dy, retain_graph=True)}


def _cross_entropy(case: Case, problem: Problem) -> Ways:
    log_prob, target = (
        tensor(problem.inputs["log_prob"]),
        torch.from_numpy(problem.inputs["target"]),
    )
    loss = torch.tensor(float(problem.inputs["grad_loss"]), dtype=log_prob.dtype)
    total = torch.tensor(float(case.shape[0]), dtype=log_prob.dtype)

    def backward() -> tuple[Any, ...]:
        nll = torch.ops.aten.nll_loss_backward(loss, log_prob, target, None, 1, -100, total)
        return (torch.ops.aten._log_softmax_backward_data(nll, log_prob, 1, log_prob.dtype),)

    return {"aten": backward}


def _moe(case: Case, problem: Problem) -> Ways:
    tokens, experts, hidden = case.shape
    grad = tensor(problem.inputs["permuted_output_grad"])
    indices = torch.from_numpy(problem.inputs["sorted_indices"].astype(np.int64))
    token = torch.argsort(indices) // experts
    return {
        "index_select+sum": lambda: (
            grad.index_select(0, indices).view(tokens, experts, hidden).sum(1),
        ),
        "index_add_": lambda: (
            torch.zeros(tokens, hidden, dtype=grad.dtype).index_add_(0, token, grad),
        ),
    }


def _moe_permute(case: Case, problem: Problem) -> Ways:
    """Sort ids, invert the order (by assignment or a second sort), and copy the rows."""
    experts = case.shape[1]
    tokens, ids = (
        tensor(problem.inputs["tokens"]),
        torch.from_numpy(problem.inputs["indices"].reshape(-1)),
    )

    def assigned() -> tuple[Any, ...]:
        first = torch.argsort(ids, stable=True)
        places = torch.empty(first.numel(), dtype=torch.int32)
        places[first] = torch.arange(first.numel(), dtype=torch.int32)
        return tokens.index_select(0, first // experts), places

    def sorted_twice() -> tuple[Any, ...]:
        first = torch.argsort(ids, stable=True)
        return tokens.index_select(0, first // experts), torch.argsort(first).to(torch.int32)

    return {"argsort+index_select": assigned, "argsort twice+index_select": sorted_twice}


def _unpermute(case: Case, problem: Problem) -> Ways:
    tokens, experts, hidden = case.shape
    rows, probs = tensor(problem.inputs["permuted_tokens"]), tensor(problem.inputs["probs"])
    indices = torch.from_numpy(problem.inputs["sorted_indices"].astype(np.int64))

    def gathered() -> Any:
        return rows.index_select(0, indices).view(tokens, experts, hidden)

    return {
        "index_select*probs sum": lambda: ((gathered() * probs.unsqueeze(-1)).sum(1),),
        "index_select bmm": lambda: (torch.bmm(probs.unsqueeze(1), gathered()).squeeze(1),),
    }


def _unpermute_grad(case: Case, problem: Problem) -> Ways:
    tokens, experts, hidden = case.shape
    rows, g, probs = (
        tensor(problem.inputs[name])
        for name in ("permuted_tokens", "unpermuted_tokens_grad", "probs")
    )
    indices = torch.from_numpy(problem.inputs["sorted_indices"].astype(np.int64))
    entry = torch.argsort(indices)
    rows.requires_grad_(), probs.requires_grad_()
    forward = (
        rows.index_select(0, indices).view(tokens, experts, hidden) * probs.unsqueeze(-1)
    ).sum(1)

    def by_hand() -> tuple[Any, ...]:
        rows_grad = (
            (g.unsqueeze(1) * probs.detach().unsqueeze(-1)).view(-1, hidden).index_select(0, entry)
        )
        gathered = rows.detach().index_select(0, indices).view(tokens, experts, hidden)
        return rows_grad, torch.bmm(gathered, g.unsqueeze(-1)).squeeze(-1)

    return {
        "autograd": lambda: torch.autograd.grad(forward, (rows, probs), g, retain_graph=True),
        "index_select bmm": by_hand,
    }


def _swi_glu(case: Case, problem: Problem) -> Ways:
    first, second = tensor(problem.inputs["x"]).chunk(2, -1)
    return {"silu(a)*b": lambda: (torch.nn.functional.silu(first) * second,)}


def _swi_glu_grad(case: Case, problem: Problem) -> Ways:
    """PyTorch's own forward pass runs here, before anything is timed."""
    x, y_grad = tensor(problem.inputs["x"]).requires_grad_(), tensor(problem.inputs["y_grad"])
    first, second = x.chunk(2, -1)
    forward = torch.nn.functional.silu(first) * second
    return {
        "silu(a)*b backward": lambda: torch.autograd.grad(forward, x, y_grad, retain_graph=True)
    }


def _rotated_half(values: Any, sign: int) -> Any:
    """Return the halves of the last axis in turn, of which the first has the sign."""
    first, second = values.chunk(2, -1)
    return torch.cat((-second, first) if sign < 0 else (second, -first), -1)


def _rotary(case: Case, problem: Problem) -> Ways:
    x, cos, sin = (tensor(problem.inputs[name]) for name in ("x", "cos", "sin"))
    return {"x*cos + rotate_half(x)*sin": lambda: (x * cos + _rotated_half(x, -1) * sin,)}


def _rotary_grad(case: Case, problem: Problem) -> Ways:
    dy, cos, sin = (tensor(problem.inputs[name]) for name in ("dy", "cos", "sin"))
    return {"the formula's gradient": lambda: (dy * cos + _rotated_half(dy * sin, 1),)}


def _adam_w(case: Case, problem: Problem) -> Ways:
    found = {}
    # In fp16 eps is 0, and the foreach form divides by 0.
    for way in ("fused",) if case.dtype == "fp16" else ("fused", "foreach"):
        var, m, v = (tensor(problem.inputs[name]).clone() for name in ("var", "m", "v"))
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
    grad, x, weight, bias = (
        tensor(problem.inputs[name]) for name in ("grad_output", "input", "weight", "bias")
    )
    pad = problem.inputs["pad"]
    by_channel = [one.permute(1, 2, 0).contiguous() for one in (grad, x)]
    channel_weight = weight.permute(2, 1, 0).contiguous()
    rest = ([len(bias)], [1], [pad], [1], False, [0], 1, [True, True, True])
    return {
        "conv_tbc_backward": lambda: torch.ops.aten.conv_tbc_backward(grad, x, weight, bias, pad),
        "conv1d backward": lambda: torch.ops.aten.convolution_backward(
            *by_channel, channel_weight, *rest
        ),
    }


_WAYS = {
    "embedding": _embedding,
    "rms_norm": _rms_norm,
    "cross_entropy": _cross_entropy,
    "moe": _moe,
    "moe_permute": _moe_permute,
    "unpermute": _unpermute,
    "unpermute_grad": _unpermute_grad,
    "swi_glu": _swi_glu,
    "swi_glu_grad": _swi_glu_grad,
    "rotary": _rotary,
    "rotary_grad": _rotary_grad,
    "adam_w": _adam_w,
    "conv_tbc": _conv_tbc,
}

"""The same results from ``torch.compile`` and ``jax.jit``, where they are installed.

Every operator is one formula for both libraries. It uses methods of arrays, and the few functions
in which the libraries differ are those of a library class below. Sums of 16-bit numbers are formed
in fp32, as our operators do.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np
from cases import Case, Problem
from torch_ways import EPSILON, Ways, tensor, torch

try:
    import jax
    from jax import numpy as jnp
except ImportError:
    jax = None  # type: ignore[assignment]


IN_BOUNDS = "promise_in_bounds"
"""Mode in which JAX does not check indices."""


class TorchLibrary:
    """PyTorch's arrays and compiler."""

    name = "torch.compile"
    installed = torch is not None
    not_compiled = ("conv_tbc_backward",)
    """Operators for which it calls PyTorch's function, which is among PyTorch's ways."""

    def array(self, values: np.ndarray) -> Any:
        return tensor(values.astype(np.int64) if values.dtype.kind == "i" else values)

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        torch.compiler.reset()  # else it stops compiling after some cases, and runs them eagerly
        result: Callable[..., Any] = torch.compile(function, dynamic=False)
        return result

    def wide(self, values: Any) -> Any:
        return values.float()

    def like(self, values: Any, other: Any) -> Any:
        return values.to(other.dtype)

    def exp(self, values: Any) -> Any:
        return values.exp()

    def log(self, values: Any) -> Any:
        return values.log()

    def largest(self, values: Any) -> Any:
        return values.amax(1, keepdim=True)

    def picked(self, values: Any, index: Any) -> Any:
        return values.gather(1, index[:, None])

    def joined(self, *parts: Any) -> Any:
        return torch.cat(parts, -1)

    def counting(self, count: int) -> Any:
        return torch.arange(count)

    def argsort(self, values: Any) -> Any:
        return torch.argsort(values, stable=True)

    def take(self, values: Any, index: Any) -> Any:
        return values.index_select(0, index)

    def sum_by_index(self, values: Any, index: Any, count: int) -> Any:
        return torch.zeros(count, values.shape[1], dtype=values.dtype).index_add(0, index, values)

    def placed(self, values: Any, index: Any) -> Any:
        return torch.zeros_like(values).index_copy(0, index, values)

    def convolution_gradients(self, grad: Any, x: Any, weight: Any, bias: Any, pad: int) -> Any:
        return torch.ops.aten.conv_tbc_backward(grad, x, weight, bias, pad)


class JaxLibrary:
    """JAX's arrays and compiler, on the processor."""

    name = "jax.jit"
    installed = jax is not None
    not_compiled = ()

    def array(self, values: np.ndarray) -> Any:
        return jnp.asarray(values)

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        call = jax.jit(function)
        return lambda *arrays: jax.block_until_ready(call(*arrays))

    def wide(self, values: Any) -> Any:
        return values.astype(jnp.float32)

    def like(self, values: Any, other: Any) -> Any:
        return values.astype(other.dtype)

    def exp(self, values: Any) -> Any:
        return jnp.exp(values)

    def log(self, values: Any) -> Any:
        return jnp.log(values)

    def largest(self, values: Any) -> Any:
        return values.max(1, keepdims=True)

    def picked(self, values: Any, index: Any) -> Any:
        return jnp.take_along_axis(values, index[:, None], 1)

    def joined(self, *parts: Any) -> Any:
        return jnp.concatenate(parts, -1)

    def counting(self, count: int) -> Any:
        return jnp.arange(count)

    def argsort(self, values: Any) -> Any:
        return jnp.argsort(values, stable=True)

    def take(self, values: Any, index: Any) -> Any:
        return values.at[index].get(mode=IN_BOUNDS)

    def sum_by_index(self, values: Any, index: Any, count: int) -> Any:
        return (
            jnp.zeros((count, values.shape[1]), values.dtype).at[index].add(values, mode=IN_BOUNDS)
        )

    def placed(self, values: Any, index: Any) -> Any:
        return jnp.zeros_like(values).at[index].set(values, unique_indices=True, mode=IN_BOUNDS)

    def convolution_gradients(self, grad: Any, x: Any, weight: Any, bias: Any, pad: int) -> Any:
        def forward(x: Any, weight: Any, bias: Any) -> Any:
            return (
                jax.lax.conv_general_dilated(
                    x, weight, (1,), [(pad, pad)], dimension_numbers=("WNC", "WIO", "WNC")
                )
                + bias
            )

        _, backward = jax.vjp(forward, x, weight, bias)
        return backward(grad)


Library = TorchLibrary | JaxLibrary
LIBRARIES: dict[str, Library] = {
    library.name: library for library in (TorchLibrary(), JaxLibrary())
}


def peers(case: Case, problem: Problem, names: Collection[str]) -> Ways:
    """Return the formula of every installed library, compiled when it is first called."""
    found: Ways = {}
    for name in names:
        library = LIBRARIES[name]
        if library.installed and case.operator not in library.not_compiled:
            arrays, formula = formula_of(case, problem, library)
            found[name] = partial(library.compiled(formula), *arrays)
    return found


def as_arrays(results: tuple[Any, ...]) -> list[np.ndarray | None]:
    """Return the results of any way as NumPy arrays, 16-bit numbers of PyTorch in fp32."""
    return [
        result.detach().float().numpy()
        if torch is not None and isinstance(result, torch.Tensor)
        else None
        if result is None
        else np.asarray(result)
        for result in results
    ]


def formula_of(
    case: Case, problem: Problem, library: Library
) -> tuple[list[Any], Callable[..., tuple[Any, ...]]]:
    """Return the arrays of a case and the function that computes its outputs from them."""
    inputs, formula = _FORMULAS[case.operator]
    arrays = [library.array(np.asarray(problem.inputs[name])) for name in inputs]
    return arrays, partial(formula, library, case, problem)


def _embedding(
    xp: Library, case: Case, problem: Problem, grad: Any, indices: Any
) -> tuple[Any, ...]:
    return (xp.sum_by_index(grad, indices, case.sizes["num_weights"]),)


def _normalised(xp: Library, x: Any, gamma: Any, like: Any) -> tuple[Any, Any]:
    rstd = ((x * x).mean(1)[:, None] + EPSILON) ** -0.5
    return xp.like(x * rstd * xp.wide(gamma), like), rstd


def _rms_norm(xp: Library, case: Case, problem: Problem, x: Any, gamma: Any) -> tuple[Any, ...]:
    return _normalised(xp, xp.wide(x), gamma, x)


def _add_rms_norm(
    xp: Library, case: Case, problem: Problem, x1: Any, x2: Any, gamma: Any
) -> tuple[Any, ...]:
    x = xp.like(xp.wide(x1) + xp.wide(x2), x1)
    return *_normalised(xp, xp.wide(x), gamma, x1), x


def _rms_norm_grad(
    xp: Library, case: Case, problem: Problem, dy: Any, x: Any, rstd: Any, gamma: Any
) -> tuple[Any, ...]:
    normal, given = xp.wide(x) * rstd[:, None], xp.wide(dy)
    weighted = given * xp.wide(gamma)
    mean = (weighted * normal).sum(1)[:, None] / x.shape[1]
    return xp.like(rstd[:, None] * (weighted - normal * mean), x), (given * normal).sum(0)


def _cross_entropy(
    xp: Library, case: Case, problem: Problem, values: Any, target: Any
) -> tuple[Any, ...]:
    shifted = xp.wide(values)
    shifted = shifted - xp.largest(shifted)
    log_prob = shifted - xp.log(xp.exp(shifted).sum(1))[:, None]
    return xp.like(-xp.picked(log_prob, target).mean(), values), xp.like(log_prob, values)


def _cross_entropy_grad(
    xp: Library, case: Case, problem: Problem, grad_loss: Any, log_prob: Any, target: Any
) -> tuple[Any, ...]:
    rows, columns = log_prob.shape
    hit = xp.counting(columns)[None, :] == target[:, None]
    return (
        xp.like((xp.exp(xp.wide(log_prob)) - xp.wide(hit)) * (xp.wide(grad_loss) / rows), log_prob),
    )


def _by_token(xp: Library, case: Case, rows: Any, indices: Any) -> Any:
    return xp.wide(xp.take(rows, indices)).reshape(tuple(case.sizes.values()))


def _permute_grad(
    xp: Library, case: Case, problem: Problem, grad: Any, indices: Any
) -> tuple[Any, ...]:
    return (xp.like(_by_token(xp, case, grad, indices).sum(1), grad),)


def _permute(
    xp: Library, case: Case, problem: Problem, tokens: Any, indices: Any
) -> tuple[Any, ...]:
    first = xp.argsort(indices.reshape(-1))
    return xp.take(tokens, first // indices.shape[1]), xp.placed(xp.counting(len(first)), first)


def _unpermute(
    xp: Library, case: Case, problem: Problem, rows: Any, indices: Any, probs: Any
) -> tuple[Any, ...]:
    return (
        xp.like((_by_token(xp, case, rows, indices) * xp.wide(probs)[:, :, None]).sum(1), rows),
    )


def _unpermute_grad(
    xp: Library, case: Case, problem: Problem, rows: Any, g: Any, indices: Any, probs: Any
) -> tuple[Any, ...]:
    given = xp.wide(g)[:, None]
    weighted = xp.like((given * xp.wide(probs)[:, :, None]).reshape(rows.shape), rows)
    return xp.placed(weighted, indices), xp.like(
        (_by_token(xp, case, rows, indices) * given).sum(2), probs
    )


def _halves(values: Any) -> tuple[Any, Any]:
    middle = values.shape[-1] // 2
    return values[..., :middle], values[..., middle:]


def _swi_glu(xp: Library, case: Case, problem: Problem, x: Any) -> tuple[Any, ...]:
    first, second = _halves(xp.wide(x))
    return (xp.like(first / (1 + xp.exp(-first)) * second, x),)


def _swi_glu_grad(
    xp: Library, case: Case, problem: Problem, y_grad: Any, x: Any
) -> tuple[Any, ...]:
    (first, second), given = _halves(xp.wide(x)), xp.wide(y_grad)
    sigmoid = 1 / (1 + xp.exp(-first))
    slope = sigmoid * (1 + first * (1 - sigmoid))
    return (xp.like(xp.joined(given * second * slope, given * first * sigmoid), x),)


def _rotary(xp: Library, case: Case, problem: Problem, x: Any, cos: Any, sin: Any) -> Any:
    values = xp.wide(x)
    first, second = _halves(values)
    return (xp.like(values * xp.wide(cos) + xp.joined(-second, first) * xp.wide(sin), x),)


def _rotary_grad(xp: Library, case: Case, problem: Problem, dy: Any, cos: Any, sin: Any) -> Any:
    given = xp.wide(dy)
    first, second = _halves(given * xp.wide(sin))
    return (xp.like(given * xp.wide(cos) + xp.joined(second, -first), dy),)


def _adam_w(
    xp: Library, case: Case, problem: Problem, var: Any, m: Any, v: Any, grad: Any, step: Any
) -> tuple[Any, ...]:
    """One step with the defaults of ApplyAdamWV2."""
    given, count = xp.wide(grad), float(problem.inputs["step"][0]) + 1
    mean = BETA1 * xp.wide(m) + (1 - BETA1) * given
    square = BETA2 * xp.wide(v) + (1 - BETA2) * given * given
    root = (square / (1 - BETA2**count)) ** 0.5 + EPS
    kept = xp.wide(var) * (1 - RATE * DECAY)
    updated = kept - RATE / (1 - BETA1**count) * mean / root
    return xp.like(updated, var), xp.like(mean, m), xp.like(square, v)


def _conv_tbc(
    xp: Library, case: Case, problem: Problem, grad: Any, x: Any, weight: Any, bias: Any
) -> tuple[Any, ...]:
    return tuple(xp.convolution_gradients(grad, x, weight, bias, problem.inputs["pad"]))


RATE, BETA1, BETA2, DECAY, EPS = 1e-3, 0.9, 0.999, 1e-2, 1e-8
"""Defaults of ApplyAdamWV2."""
_FORMULAS: dict[str, tuple[tuple[str, ...], Callable[..., tuple[Any, ...]]]] = {
    "embedding_dense_backward": (("grad", "indices"), _embedding),
    "rms_norm": (("x", "gamma"), _rms_norm),
    "rms_norm_grad": (("dy", "x", "rstd", "gamma"), _rms_norm_grad),
    "add_rms_norm": (("x1", "x2", "gamma"), _add_rms_norm),
    "cross_entropy_loss": (("input", "target"), _cross_entropy),
    "cross_entropy_loss_grad": (("grad_loss", "log_prob", "target"), _cross_entropy_grad),
    "moe_token_permute": (("tokens", "indices"), _permute),
    "moe_token_permute_grad": (("permuted_output_grad", "sorted_indices"), _permute_grad),
    "moe_token_unpermute": (("permuted_tokens", "sorted_indices", "probs"), _unpermute),
    "moe_token_unpermute_grad": (
        ("permuted_tokens", "unpermuted_tokens_grad", "sorted_indices", "probs"),
        _unpermute_grad,
    ),
    "swi_glu": (("x",), _swi_glu),
    "swi_glu_grad": (("y_grad", "x"), _swi_glu_grad),
    "rotary_position_embedding": (("x", "cos", "sin"), _rotary),
    "rotary_position_embedding_grad": (("dy", "cos", "sin"), _rotary_grad),
    "apply_adam_w_v2": (("var", "m", "v", "grad", "step"), _adam_w),
    "conv_tbc_backward": (("grad_output", "input", "weight", "bias"), _conv_tbc),
}

"""The terms whose sum one output element is, in float64: what a worst element is made of."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from npu_sim.studies.calls import StudyCall


class Term(NamedTuple):
    """One term of a sum."""

    name: str
    value: float


Terms = list[tuple[str, float]]
Index = tuple[int, ...]


def terms_of(call: StudyCall, output: str, index: Index) -> tuple[Term, ...]:
    """Return the terms of an output element, largest magnitude first."""
    found = _TERMS[call.operator](call.arguments, {name: np.asarray(values) for name, values in call.tensors.items()}, output, index)
    return tuple(Term(name, float(value)) for name, value in sorted(found, key=lambda term: -abs(term[1])))


def _embedding(arguments: Any, tensors: dict[str, np.ndarray], output: str, index: Index) -> Terms:
    rows = np.flatnonzero(np.trunc(tensors["indices"]).astype(np.int64).reshape(-1) == index[0])
    column = tensors["grad"].reshape(-1, tensors["grad"].shape[-1])[rows, index[1]].astype(np.float64)
    scale = max(rows.size, 1) if arguments.scale_grad_by_freq else 1
    return [(f"grad[{row}, {index[1]}]", value) for row, value in zip(rows.tolist(), (column / scale).tolist(), strict=True)]


def _rms_norm(arguments: Any, tensors: dict[str, np.ndarray], output: str, index: Index) -> Terms:
    gamma = tensors["gamma"].astype(np.float64).reshape(-1)
    dy, x = (tensors[name].astype(np.float64).reshape(-1, gamma.size) for name in ("dy", "x"))
    rstd = tensors["rstd"].astype(np.float64).reshape(-1)
    if output == "dgamma":
        column = int(np.ravel_multi_index(index, tensors["gamma"].shape))
        values = dy[:, column] * x[:, column] * rstd
        return [(f"dy*xh of row {row}", value) for row, value in enumerate(values.tolist())]
    row, column = divmod(int(np.ravel_multi_index(index, tensors["x"].shape)), gamma.size)
    normed = x[row] * rstd[row]
    mean = float(np.mean(dy[row] * gamma * normed))
    return [("dy*gamma*rstd", dy[row, column] * gamma[column] * rstd[row]), ("-xh*mean*rstd", -normed[column] * mean * rstd[row])]


def _cross_entropy(arguments: Any, tensors: dict[str, np.ndarray], output: str, index: Index) -> Terms:
    from npu_sim.plain.cross_entropy_loss_grad import compute

    full = compute(arguments, {**tensors, "log_prob": np.full(tensors["log_prob"].shape, -np.inf)}, np.dtype(np.float64))
    target = int(tensors["target"][index[0]])
    nll = -float(full["x_grad"][index[0], target]) if 0 <= target < tensors["log_prob"].shape[1] else 0.0
    terms = [("exp(log_prob)*nll", float(np.exp(tensors["log_prob"][index].astype(np.float64))) * nll)]
    return [*terms, ("-nll", -nll)] if index[1] == target else terms


def _moe(arguments: Any, tensors: dict[str, np.ndarray], output: str, index: Index) -> Terms:
    grad = tensors["permuted_output_grad"]
    rows = tensors["sorted_indices"].reshape(-1, arguments.num_topk)[index[0]]
    return [(f"grad[{row}, {index[1]}]", float(grad[row, index[1]])) for row in rows.tolist() if row < grad.shape[0]]


def _conv(arguments: Any, tensors: dict[str, np.ndarray], output: str, index: Index) -> Terms:
    grad, x, weight = (tensors[name].astype(np.float64) for name in ("grad_output", "input", "weight"))
    pad = arguments.pad
    if output == "grad_bias":
        return [(f"self[{t}, {b}]", float(value)) for (t, b), value in np.ndenumerate(grad[:, :, index[0]])]
    found: Terms = []
    if output == "grad_weight":
        tap, row, column = index
        for time in range(grad.shape[0]):
            at = time + tap - pad
            if 0 <= at < x.shape[0]:
                found += [(f"input[{at}, {b}]*self[{time}, {b}]", float(x[at, b, row] * grad[time, b, column])) for b in range(x.shape[1])]
        return found
    time, sample, row = index
    for tap in range(weight.shape[0]):
        at = time + pad - tap
        if 0 <= at < grad.shape[0]:
            products = grad[at, sample] * weight[tap, row]
            found += [(f"self[{at}, {sample}, {o}]*weight[{tap}, {row}, {o}]", float(value)) for o, value in enumerate(products)]
    return found


_TERMS: dict[str, Callable[[Any, dict[str, np.ndarray], str, Index], Terms]] = {
    "embedding_dense_backward": _embedding,
    "rms_norm_grad": _rms_norm,
    "cross_entropy_loss_grad": _cross_entropy,
    "moe_token_permute_grad": _moe,
    "conv_tbc_backward": _conv,
}

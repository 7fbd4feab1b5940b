"""Benchmark cases: their shapes as data, and the arrays of a case.

A case holds only names and numbers until :func:`build` allocates its arrays. So only one case is in
memory at a time, and a case can be passed to another process as JSON.
"""

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import npu_sim
from npu_sim.framework.inference import arguments_of
from npu_sim.operators.loading import load_operator
from npu_sim.operators.shared.generate import generate

DTYPES = {"fp32": np.float32, "bf16": ml_dtypes.bfloat16, "fp16": np.float16}
FASTEST = "fastest"
ROUTED_EXPERTS = 64
"""Experts that the tokens of ``routed`` rows choose from."""


class Case(NamedTuple):
    """One call: the operator, its sizes, the dtype, and the distribution of indices.

    Shapes are (rows, dim, num_weights) for embedding, (rows, columns) for rms_norm,
    cross_entropy, adam_w and the result of swi_glu, (tokens, experts, hidden) for moe, moe_permute,
    unpermute and unpermute_grad, (batch, sequence, heads, dim) for rotary, and (time, batch, in
    channels, out channels, taps) for conv_tbc.
    """

    operator: str
    shape: tuple[int, ...]
    dtype: str
    indices: str = ""

    @property
    def name(self) -> str:
        """The case in words, for instance ``moe 8192x8x2048 fp32``."""
        shape = "x".join(map(str, self.shape))
        if self.operator == "embedding":
            shape = f"{self.shape[0]}x{self.shape[1]} -> {self.shape[2]}"
        elif self.operator == "conv_tbc":
            time, batch, in_channels, out_channels, taps = self.shape
            shape = f"{time}x{batch}x{in_channels} -> {out_channels} K={taps}"
        return " ".join(filter(None, (self.operator, shape, self.indices, self.dtype)))


class Problem(NamedTuple):
    """Arrays of a case, its traffic in bytes and its operations.

    The call is ``npu_sim.run(operator, out=outs, **inputs)``.
    """

    operator: str
    inputs: dict[str, Any]
    outs: tuple[np.ndarray, ...]
    moved_bytes: int
    operations: int = 0

    def run(self, **options: Any) -> Any:
        """Run the call; ``out`` and every other option of :func:`npu_sim.run` may be given."""
        return npu_sim.run(self.operator, **self.inputs, **options)

    @property
    def array_bytes(self) -> int:
        """Bytes of all inputs and outputs."""
        return sum(
            one.nbytes for one in (*self.inputs.values(), *self.outs) if isinstance(one, np.ndarray)
        )


_NARROW, _WIDE = (262144, 128, 50000), (65536, 1024, 32000)
_TABLE: tuple[tuple[str, tuple[int, ...], str], ...] = (
    ("embedding", _NARROW, "uniform"),
    ("embedding", _WIDE, "uniform"),
    ("embedding", _NARROW, "zipf"),
    ("embedding", _WIDE, "zipf"),
    ("rms_norm", (8192, 4096), ""),
    ("rms_norm", (65536, 512), ""),
    ("rms_norm", (512, 16384), ""),
    ("cross_entropy", (8192, 32000), ""),
    ("cross_entropy", (65536, 1000), ""),
    ("moe", (8192, 8, 2048), ""),
    ("moe", (4096, 2, 7168), ""),
    ("moe_permute", (8192, 8, 2048), ""),
    ("moe_permute", (4096, 2, 7168), ""),
    ("unpermute", (8192, 8, 2048), "routed"),
    ("unpermute", (8192, 8, 2048), ""),
    ("unpermute_grad", (8192, 8, 2048), "routed"),
    ("unpermute_grad", (8192, 8, 2048), ""),
    ("swi_glu", (4096, 6144), ""),
    ("swi_glu_grad", (4096, 6144), ""),
    ("rotary", (2, 4096, 32, 128), ""),
    ("rotary_grad", (2, 4096, 32, 128), ""),
    ("adam_w", (4096, 4096), ""),
    ("conv_tbc", (512, 32, 512, 512, 3), ""),
    ("conv_tbc", (2048, 8, 256, 512, 5), ""),
)
CASES = tuple(
    Case(operator, shape, dtype, indices) for dtype in DTYPES for operator, shape, indices in _TABLE
)


def select(words: list[str], dtypes: list[str], among: tuple[Case, ...] = CASES) -> list[Case]:
    """Return the cases of these dtypes whose name has all the words."""
    return [
        case for case in among if case.dtype in dtypes and all(word in case.name for word in words)
    ]


def build(case: Case, seed: int = 0) -> Problem:
    """Make the arrays of a case; outputs are written once, so that their pages are there."""
    problem = _BUILDERS[case.operator](case, seed)
    for out in problem.outs:
        out.fill(0)
    return problem


def _generated(operator: str, call: dict[str, Any], seed: int) -> dict[str, Any]:
    attributes = {name: value for name, value in call.items() if not isinstance(value, str)}
    return {**attributes, **generate(operator, arguments_of(load_operator(operator), call), seed)}


def _embedding(case: Case, seed: int) -> Problem:
    rows, dim, weights = case.shape
    call = {
        "grad": f"{rows}x{dim}:{case.dtype}",
        "indices": f"{rows}:int32",
        "num_weights": weights,
    }
    inputs = _generated("embedding_dense_backward", call, seed)
    if case.indices == "uniform":
        inputs["indices"] = np.random.default_rng(seed).integers(0, weights, rows, dtype=np.int32)
    out = np.empty((weights, dim), DTYPES[case.dtype])
    return Problem("embedding_dense_backward", inputs, (out,), inputs["grad"].nbytes + out.nbytes)


def _rms_norm(case: Case, seed: int) -> Problem:
    rows, columns = case.shape
    values = f"{rows}x{columns}:{case.dtype}"
    call = {"dy": values, "x": values, "rstd": f"{rows}:fp32", "gamma": f"{columns}:{case.dtype}"}
    inputs = _generated("rms_norm_grad", call, seed)
    outs = (np.empty((rows, columns), DTYPES[case.dtype]), np.empty(columns, np.float32))
    return Problem("rms_norm_grad", inputs, outs, 3 * inputs["x"].nbytes)


def _cross_entropy(case: Case, seed: int) -> Problem:
    rows, columns = case.shape
    call = {
        "grad_loss": f"scalar:{case.dtype}",
        "log_prob": f"{rows}x{columns}:{case.dtype}",
        "target": f"{rows}:int64",
    }
    out = np.empty((rows, columns), DTYPES[case.dtype])
    return Problem(
        "cross_entropy_loss_grad",
        _generated("cross_entropy_loss_grad", call, seed),
        (out,),
        2 * out.nbytes,
    )


def _moe(case: Case, seed: int) -> Problem:
    tokens, experts, hidden = case.shape
    rows = tokens * experts
    call = {
        "permuted_output_grad": f"{rows}x{hidden}:{case.dtype}",
        "sorted_indices": f"{rows}:int32",
        "num_topk": experts,
    }
    inputs = _generated("moe_token_permute_grad", call, seed)
    out = np.empty((tokens, hidden), DTYPES[case.dtype])
    return Problem(
        "moe_token_permute_grad", inputs, (out,), inputs["permuted_output_grad"].nbytes + out.nbytes
    )


def _moe_permute(case: Case, seed: int) -> Problem:
    tokens, experts, hidden = case.shape
    call = {"tokens": f"{tokens}x{hidden}:{case.dtype}", "indices": f"{tokens}x{experts}:int32"}
    inputs = _generated("moe_token_permute", call, seed)
    outs = (
        np.empty((tokens * experts, hidden), DTYPES[case.dtype]),
        np.empty(tokens * experts, np.int32),
    )
    return Problem(
        "moe_token_permute", inputs, outs, sum(one.nbytes for one in (*inputs.values(), *outs))
    )


def _rows_of_entries(case: Case, drawn: np.ndarray, seed: int) -> np.ndarray:
    """Return the row of every entry: random, or, if ``routed``, as MoeTokenPermute places it."""
    if case.indices != "routed":
        return drawn
    tokens, experts, _ = case.shape
    chosen = (
        np.random.default_rng(seed)
        .random((tokens, max(ROUTED_EXPERTS, experts)))
        .argsort(axis=1)[:, :experts]
        .astype(np.int32)
    )
    return npu_sim.run(
        "moe_token_permute", tokens=np.zeros((tokens, 1), np.float32), indices=chosen
    ).outputs["sorted_indices"]


def _unpermute(case: Case, seed: int) -> Problem:
    tokens, experts, hidden = case.shape
    rows = tokens * experts
    call = {
        "permuted_tokens": f"{rows}x{hidden}:{case.dtype}",
        "sorted_indices": f"{rows}:int32",
        "probs": f"{tokens}x{experts}:{case.dtype}",
    }
    inputs = _generated("moe_token_unpermute", call, seed)
    inputs["sorted_indices"] = _rows_of_entries(case, inputs["sorted_indices"], seed)
    out = np.empty((tokens, hidden), DTYPES[case.dtype])
    return Problem(
        "moe_token_unpermute", inputs, (out,), inputs["permuted_tokens"].nbytes + out.nbytes
    )


def _unpermute_grad(case: Case, seed: int) -> Problem:
    tokens, experts, hidden = case.shape
    rows = tokens * experts
    call = {
        "permuted_tokens": f"{rows}x{hidden}:{case.dtype}",
        "unpermuted_tokens_grad": f"{tokens}x{hidden}:{case.dtype}",
        "sorted_indices": f"{rows}:int32",
        "probs": f"{tokens}x{experts}:{case.dtype}",
    }
    inputs = _generated("moe_token_unpermute_grad", call, seed)
    inputs["sorted_indices"] = _rows_of_entries(case, inputs["sorted_indices"], seed)
    outs = (
        np.empty((rows, hidden), DTYPES[case.dtype]),
        np.empty((tokens, experts), DTYPES[case.dtype]),
    )
    return Problem(
        "moe_token_unpermute_grad",
        inputs,
        outs,
        2 * inputs["permuted_tokens"].nbytes + inputs["unpermuted_tokens_grad"].nbytes,
    )


def _swi_glu(case: Case, seed: int) -> Problem:
    rows, columns = case.shape
    inputs = _generated("swi_glu", {"x": f"{rows}x{2 * columns}:{case.dtype}"}, seed)
    out = np.empty((rows, columns), DTYPES[case.dtype])
    return Problem("swi_glu", inputs, (out,), 3 * out.nbytes)


def _swi_glu_grad(case: Case, seed: int) -> Problem:
    rows, columns = case.shape
    call = {"y_grad": f"{rows}x{columns}:{case.dtype}", "x": f"{rows}x{2 * columns}:{case.dtype}"}
    inputs = _generated("swi_glu_grad", call, seed)
    out = np.empty((rows, 2 * columns), DTYPES[case.dtype])
    return Problem("swi_glu_grad", inputs, (out,), 5 * inputs["y_grad"].nbytes)


def _rotated(case: Case, seed: int, operator: str, first: str) -> Problem:
    _, sequence, _, dim = case.shape
    table = f"1x{sequence}x1x{dim}:{case.dtype}"
    call = {first: f"{'x'.join(map(str, case.shape))}:{case.dtype}", "cos": table, "sin": table}
    out = np.empty(case.shape, DTYPES[case.dtype])
    return Problem(operator, _generated(operator, call, seed), (out,), 2 * out.nbytes)


def _rotary(case: Case, seed: int) -> Problem:
    return _rotated(case, seed, "rotary_position_embedding", "x")


def _rotary_grad(case: Case, seed: int) -> Problem:
    return _rotated(case, seed, "rotary_position_embedding_grad", "dy")


def _adam_w(case: Case, seed: int) -> Problem:
    """The results do not replace the parameters, so that every round computes the same."""
    rows, columns = case.shape
    call = dict.fromkeys(("var", "m", "v", "grad"), f"{rows}x{columns}:{case.dtype}")
    inputs = _generated("apply_adam_w_v2", {**call, "step": "1:fp32"}, seed)
    outs = tuple(np.empty(case.shape, DTYPES[case.dtype]) for _ in range(3))
    return Problem("apply_adam_w_v2", inputs, outs, 7 * inputs["var"].nbytes)


def _conv_tbc(case: Case, seed: int) -> Problem:
    time, batch, in_channels, out_channels, taps = case.shape
    pad = taps // 2
    shapes = {
        "grad_output": (time + 2 * pad - taps + 1, batch, out_channels),
        "input": (time, batch, in_channels),
        "weight": (taps, in_channels, out_channels),
        "bias": (out_channels,),
    }
    call = {name: f"{'x'.join(map(str, shape))}:{case.dtype}" for name, shape in shapes.items()}
    inputs = _generated("conv_tbc_backward", {**call, "pad": pad}, seed)
    outs = tuple(np.empty(shapes[name], DTYPES[case.dtype]) for name in ("input", "weight", "bias"))
    moved = sum(one.nbytes for one in outs) + sum(inputs[name].nbytes for name in shapes)
    operations = 4 * shapes["grad_output"][0] * batch * in_channels * out_channels * taps
    return Problem("conv_tbc_backward", inputs, outs, moved, operations)


_BUILDERS = {
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

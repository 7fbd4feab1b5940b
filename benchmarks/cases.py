"""Benchmark cases: their sizes as data, and the arrays of a case.

A case holds only names and numbers until :func:`build` allocates its arrays. So only one case is in
memory at a time, and a case can be passed to another process as JSON.
"""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import npu_sim
from npu_sim.framework.inference import arguments_of, call_with
from npu_sim.numbers.formats import canonical_dtype
from npu_sim.operators.loading import load_operator
from npu_sim.operators.shared.generate import FLOATING, generate

DTYPES = {"fp32": np.float32, "bf16": ml_dtypes.bfloat16, "fp16": np.float16}
CLASSES = ("call", "cache", "medium", "large")
"""Classes of sizes: a small call, dominated by what is done once a call; one that fits the caches
of a core, some 2 MB; and two that do not."""
ROUTED_EXPERTS = 64
"""Experts that the tokens of ``routed`` rows choose from."""


class Case(NamedTuple):
    """One call: the operator, values of its axes by name, the dtype, and how rows are addressed.

    ``rows`` is ``zipf`` or ``uniform`` for the indices of an embedding, and ``routed`` where the
    rows of tokens lie as MoeTokenPermute places them, else at random.
    """

    operator: str
    sizes: dict[str, int]
    dtype: str
    rows: str = ""
    size_class: str = ""

    @property
    def name(self) -> str:
        """The case in words, for instance ``rms_norm row=8192 col=4096 fp32``."""
        sizes = [f"{name}={value}" for name, value in self.sizes.items()]
        return " ".join(filter(None, (self.operator, *sizes, self.rows, self.dtype)))


class Problem(NamedTuple):
    """Arrays of a case: ``npu_sim.run(operator, out=outs, **inputs)`` is the call.

    ``operations`` are those of the matrix unit, 0 for operators of the vector unit. ``given``
    are the arrays for the results: inputs that the product updates in place, otherwise ``outs``.
    """

    operator: str
    inputs: dict[str, Any]
    outs: tuple[np.ndarray, ...]
    given: tuple[np.ndarray, ...]
    operations: int = 0

    def run(self, **options: Any) -> Any:
        """Run the call; ``out`` and every other option of :func:`npu_sim.run` may be given."""
        return npu_sim.run(self.operator, **self.inputs, **options)

    @property
    def tensors(self) -> dict[str, np.ndarray]:
        """The inputs without attributes."""
        return {
            name: value
            for name, value in self.inputs.items()
            if isinstance(value, np.ndarray | np.generic)
        }

    @property
    def array_bytes(self) -> int:
        """Bytes of all inputs and outputs: what a call has to read and write once."""
        return sum(one.nbytes for one in (*self.tensors.values(), *self.outs))


def _tokens(tokens: int, num_topk: int, hidden: int) -> dict[str, int]:
    return {"tokens": tokens, "num_topk": num_topk, "hidden": hidden}


def _permuted(tokens: int, num_topk: int, hidden: int) -> dict[str, int]:
    return {"num_tokens": tokens, "num_topk": num_topk, "hidden": hidden, "num_out_tokens": 0}


def _rows(row: int, col: int) -> dict[str, int]:
    return {"row": row, "col": col}


def _labelled(rows: int, classes: int) -> dict[str, int]:
    return {"N": rows, "C": classes}


def _embedding(rows: int, dim: int, num_weights: int) -> dict[str, int]:
    return {"rows": rows, "dim": dim, "num_weights": num_weights}


def _heads(batch: int, sequence: int, heads: int, dim: int) -> dict[str, int]:
    """Return the axes of a rotation whose tables have a row for every position."""
    x = {"x0": batch, "x1": sequence, "x2": heads, "dim": dim}
    return {**x, "cos0": 1, "cos1": sequence, "cos2": 1}


def _convolution(time: int, batch: int, channels: int, taps: int) -> dict[str, int]:
    return {"T": time, "B": batch, "Cin": channels, "Cout": channels, "K": taps, "pad": taps // 2}


def _elements(elements: int) -> dict[str, int]:
    return {"elements": elements}


_NORM = ((32, 512), (256, 1024), (32768, 512), (8192, 4096))
_LABELLED = ((32, 100), (128, 1000), (16384, 1000), (2048, 32000))
_ROUTED = ((64, 4, 64), (64, 4, 1024), (4096, 2, 2048), (4096, 8, 2048))
_GATED = ((32, 256), (128, 1024), (2048, 2048), (4096, 6144))
_ROTATED = ((1, 16, 4, 64), (1, 64, 16, 128), (1, 2048, 16, 128), (2, 4096, 32, 128))
_TABLE: dict[str, tuple[Callable[..., dict[str, int]], tuple[tuple[int, ...], ...]]] = {
    "embedding_dense_backward": (
        _embedding,
        ((256, 64, 500), (4096, 64, 2000), (262144, 128, 50000), (1048576, 64, 100000)),
    ),
    "rms_norm": (_rows, _NORM),
    "rms_norm_grad": (_rows, _NORM),
    "add_rms_norm": (_rows, _NORM),
    "cross_entropy_loss": (_labelled, _LABELLED),
    "cross_entropy_loss_grad": (_labelled, _LABELLED),
    "moe_token_permute": (_permuted, _ROUTED),
    "moe_token_permute_grad": (_tokens, _ROUTED),
    "moe_token_unpermute": (_tokens, _ROUTED),
    "moe_token_unpermute_grad": (_tokens, _ROUTED),
    "swi_glu": (_rows, _GATED),
    "swi_glu_grad": (_rows, _GATED),
    "rotary_position_embedding": (_heads, _ROTATED),
    "rotary_position_embedding_grad": (_heads, _ROTATED),
    "apply_adam_w_v2": (_elements, ((4096,), (65536,), (4194304,), (16777216,))),
    "conv_tbc_backward": (
        _convolution,
        ((16, 2, 8, 3), (64, 4, 64, 3), (256, 16, 256, 5), (512, 32, 512, 3)),
    ),
}
"""Operator to the axes that sizes stand for, and a tuple of sizes for every class."""
_FIRST_ROWS = {
    "embedding_dense_backward": "zipf",
    "moe_token_unpermute": "routed",
    "moe_token_unpermute_grad": "routed",
}
_MORE = (
    ("embedding_dense_backward", _embedding(262144, 128, 50000), "uniform"),
    ("embedding_dense_backward", _embedding(1048576, 64, 100000), "uniform"),
    ("embedding_dense_backward", _embedding(65536, 1024, 32000), "zipf"),
    ("rms_norm_grad", _rows(512, 16384), ""),
    ("moe_token_unpermute_grad", _tokens(4096, 8, 2048), ""),
    ("conv_tbc_backward", _convolution(1024, 8, 1024, 3), ""),
)
"""Further large cases: other distributions of rows, wide rows, many channels."""


def _cases(dtype: str) -> list[Case]:
    first = [
        Case(operator, axes(*sizes), dtype, _FIRST_ROWS.get(operator, ""), size_class)
        for operator, (axes, table) in _TABLE.items()
        for size_class, sizes in zip(CLASSES, table, strict=True)
        if size_class != "call" or dtype == "fp32"
    ]
    return first + [Case(name, sizes, dtype, rows, "large") for name, sizes, rows in _MORE]


CASES = tuple(case for dtype in DTYPES for case in _cases(dtype))


def select(
    words: Collection[str],
    dtypes: Collection[str] = tuple(DTYPES),
    classes: Collection[str] = CLASSES,
) -> list[Case]:
    """Return the cases of these dtypes and classes that have all the words.

    A word is a part of the name of a case, or, if it is no operator, a part of an operator's name.
    """
    return [
        case
        for case in CASES
        if case.dtype in dtypes
        and case.size_class in classes
        and all(
            word in case.name.split() or (word in case.operator and word not in _TABLE)
            for word in words
        )
    ]


def build(case: Case, seed: int = 0) -> Problem:
    """Make the arrays of a case, and compute its outputs."""
    operator = load_operator(case.operator)
    dtype = canonical_dtype(np.dtype(DTYPES[case.dtype]))
    floats = {
        axis.name: dtype
        for axis in operator.axes
        if axis.default in FLOATING and dtype in axis.words
    }
    call = call_with(operator, {**operator.defaults(), **floats, **case.sizes})
    attributes = {name: call[name] for name in case.sizes if name in call}
    inputs = {**attributes, **generate(case.operator, arguments_of(operator, call), seed)}
    if case.rows == "uniform":
        indices = inputs["indices"]
        inputs["indices"] = np.random.default_rng(seed).integers(
            0, case.sizes["num_weights"], indices.shape, dtype=indices.dtype
        )
    if case.rows == "routed":
        inputs["sorted_indices"] = _routed(case, seed)
    outs = npu_sim.run(case.operator, **inputs).outputs
    written = {output.output: output.in_place for output in operator.outputs}
    given = tuple(inputs.get(written[name], out) for name, out in outs.items())
    return Problem(case.operator, inputs, tuple(outs.values()), given, _operations(case))


def _routed(case: Case, seed: int) -> np.ndarray:
    """Return the row of every entry as MoeTokenPermute places it."""
    experts = case.sizes["num_topk"]
    chosen = (
        np.random.default_rng(seed)
        .random((case.sizes["tokens"], max(ROUTED_EXPERTS, experts)))
        .argsort(axis=1)[:, :experts]
        .astype(np.int32)
    )
    return npu_sim.run(
        "moe_token_permute", tokens=np.zeros((len(chosen), 1), np.float32), indices=chosen
    ).outputs["sorted_indices"]


def _operations(case: Case) -> int:
    if case.operator != "conv_tbc_backward":
        return 0
    time, batch, in_channels, out_channels, taps, pad = case.sizes.values()
    return 4 * (time + 2 * pad - taps + 1) * batch * in_channels * out_channels * taps

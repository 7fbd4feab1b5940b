"""Arguments, axes, data and changed calls that MoeTokenUnpermute and its gradient share.

Sources: specification pages ``moe_token_unpermute`` and ``moe_token_unpermute_grad``.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from npu_sim.framework.arguments import Attribute, IntArray, Tensor
from npu_sim.framework.axes import FLOAT_DTYPES, Axis, Derived, Number, Switch, Word
from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec, numpy_dtype
from npu_sim.numbers.values import normal
from npu_sim.operators.shared.study import StudyCall
from npu_sim.plans.model import Caveat, caveat
from npu_sim.tiling.token_sums import MOST_TOPK

SORTED_INDICES = Tensor(
    "sorted_indices",
    "entries",
    (
        "row of every token and expert, (tokens * num_topk,), at or beyond the rows of "
        "permuted_tokens where it was dropped"
    ),
    "int32",
    samples=0,
    addresses=True,
)
PROBS = Tensor(
    "probs",
    "tokens num_topk",
    (
        "weight of every token and expert, (tokens, num_topk); without it num_topk is 1 and rows "
        "have no weight"
    ),
    "probs_dtype",
    document="probsOptional",
    optional=True,
    samples=0,
)
ATTRIBUTES = (
    Attribute("padded_mode", bool, "not supported yet: False", False),
    Attribute(
        "restore_shape", IntArray, "accepted and ignored", None, document="restoreShapeOptional"
    ),
)
DERIVED = (Derived("top_k", "1 + (num_topk - 1) * has_probs"), Derived("entries", "tokens * top_k"))
"""Without probs a token has one entry, whatever the value of num_topk."""


def permuted_tokens(help: str) -> Tensor:
    """Return the argument permuted_tokens: the rows of the experts."""
    return Tensor("permuted_tokens", "rows hidden", help, "dtype")


def axes(tensor: str) -> tuple[Axis, ...]:
    """Return the axes; ``tensor`` is the name of the one that has the columns."""
    return (
        Word("dtype", Text("dtype of {tensor}", tensor=tensor), FLOAT_DTYPES, "bfloat16"),
        Switch(
            "has_probs", "whether probs is given", True, aliases=("probs_given",), tensor="probs"
        ),
        Word("probs_dtype", "dtype of probs", FLOAT_DTYPES, "float32"),
        Number(
            "num_topk",
            "experts chosen for a token, columns of probs; without probs it is 1",
            8,
            unit="expert",
            aliases=("numTopk", "topk", "K"),
            read="1",
        ),
        Number(
            "hidden",
            Text("last axis of {tensor}", tensor=tensor),
            1024,
            unit="column",
            aliases=("H", "hidden_size"),
        ),
        Number(
            "tokens",
            "tokens; sorted_indices has tokens * num_topk elements",
            1024,
            unit="token",
            aliases=("T",),
            read="entries",
        ),
    )


def topk_message(call: Any) -> tuple[str, str]:
    """Return message and hint for the limit on the experts of a token."""
    message = Text(
        "probs has {top_k} columns: the product takes numTopk <= {most_topk}, a limit of the "
        "hardware too",
        top_k=call.size("top_k"),
        most_topk=MOST_TOPK,
    )
    return message, Text("nearest legal value: {most_topk}", most_topk=MOST_TOPK)


def dropped_tokens(row: Any) -> Iterator[Caveat]:
    """Yield the warning that permuted_tokens has fewer rows than there are indices."""
    if row.rows < row.entries:
        yield caveat(
            "tokens_dropped",
            "permuted_tokens",
            "permuted_tokens has {rows} rows for {entries} indices: at least {dropped} point "
            "to rows that were dropped",
            rows=row.rows,
            entries=row.entries,
            dropped=row.entries - row.rows,
        )


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return normal rows and gradients, random indices, and weights with sum 1 for every token."""
    random, entries = np.random.default_rng(seed), arguments.sorted_indices.numel
    drawn = {name: normal(random, spec) for name, spec in arguments.items() if _is_rows(name, spec)}
    drawn["sorted_indices"] = random.permutation(np.arange(entries, dtype=np.int32))
    if arguments.probs is not None:
        chances = np.exp(random.standard_normal(arguments.probs.shape, np.float32))
        drawn["probs"] = (chances / chances.sum(axis=1, keepdims=True)).astype(
            numpy_dtype(arguments.probs.dtype)
        )
    return drawn


def _is_rows(name: str, spec: Any) -> bool:
    return isinstance(spec, TensorSpec) and name in ("permuted_tokens", "unpermuted_tokens_grad")


def experts(call: StudyCall) -> int:
    """Return the number of entries of a token."""
    return int(call.tensors["probs"].shape[1]) if "probs" in call.tensors else 1


def places(call: StudyCall) -> dict[str, int]:
    """Return the number of indices of one token, for :class:`Changes`."""
    return {"sorted_indices": experts(call)}


def grown(call: StudyCall, extra: int, fill: str) -> StudyCall | None:
    """Append tokens with rows of their own; None if rows were dropped."""
    more = extra * experts(call)
    sizes = {"permuted_tokens": more, "unpermuted_tokens_grad": extra, "probs": extra}
    return with_tokens_appended(call, "permuted_tokens", sizes, fill)


def with_tokens_appended(
    call: StudyCall, rows_tensor: str, sizes: Mapping[str, int], fill: str
) -> StudyCall | None:
    """Append rows to tensors, and to ``sorted_indices`` the positions of the new rows.

    ``rows_tensor`` is the name of the tensor that the indices point to, ``sizes`` are the numbers
    of rows to append to each tensor; tensors that the call does not have are skipped. ``fill`` is
    as in :class:`~npu_sim.operators.shared.study.Changes`. Returns None if rows were dropped: their
    indices would point to the new rows.
    """
    count, indices = call.tensors[rows_tensor].shape[0], call.tensors["sorted_indices"]
    if indices.max(initial=-1) >= count:
        return None
    new_indices = np.arange(count, count + sizes[rows_tensor], dtype=indices.dtype)
    changed = {"sorted_indices": np.concatenate([indices, new_indices])}
    for name, size in sizes.items():
        if name in call.tensors:
            values = call.tensors[name]
            added = np.zeros((size, values.shape[1]), values.dtype)
            if fill == "copy":
                added[...] = np.resize(values, added.shape)
            changed[name] = np.concatenate([values, added])
    return call.with_tensors(**changed)

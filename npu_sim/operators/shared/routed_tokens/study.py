"""Studies of the sums of the rows of every token, and calls of the operators in dumps."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import Array, Index, Text
from npu_sim.operators.shared.routed_tokens.compute import ROWS
from npu_sim.operators.shared.study import (
    Function,
    NamedTerms,
    StudyCall,
    WrappedCall,
    surviving_units,
)
from npu_sim.operators.shared.unfused import (
    FP64,
    Ends,
    Formulas,
    ends_of,
    folded_in,
    is_16_bit,
    rounded,
    short,
)
from npu_sim.orders import Claim, Tree, left_fold


def experts(call: StudyCall) -> int:
    """Return the number of entries of a token."""
    if "num_topk" in call.attributes:
        return int(call.attributes["num_topk"])
    return int(call.tensors["probs"].shape[1]) if "probs" in call.tensors else 1


def places(call: StudyCall) -> dict[str, int]:
    """Return the number of indices of one token, for :class:`Changes`."""
    return {"sorted_indices": experts(call)}


def grown(call: StudyCall, extra: int, fill: str) -> StudyCall | None:
    """Append tokens with rows of their own, and the positions of these rows to the indices.

    ``fill`` is as in :class:`~npu_sim.operators.shared.study.Changes`. Returns None if there are no
    rows, or some were dropped: their indices would point to the new rows.
    """
    rows = next((name for name in ROWS if name in call.tensors), None)
    indices, more = call.tensors["sorted_indices"], extra * experts(call)
    if rows is None or indices.max(initial=-1) >= (count := call.tensors[rows].shape[0]):
        return None
    new_indices = np.arange(count, count + more, dtype=indices.dtype)
    changed = {"sorted_indices": np.concatenate([indices, new_indices])}
    sizes = {rows: more, "unpermuted_tokens_grad": extra, "probs": extra}
    for name in sizes.keys() & call.tensors.keys():
        values = call.tensors[name]
        added = np.zeros((sizes[name], values.shape[1]), values.dtype)
        if fill == "copy":
            added[...] = np.resize(values, added.shape)
        changed[name] = np.concatenate([values, added])
    return call.with_tensors(**changed)


@dataclass(frozen=True)
class Sums:
    """The sums of a call as studies see them; *live* (tokens, experts) masks the rows added.

    ``source``, ``result``, ``name``: names of the tensor that has the rows, of the sums, and of a
    row in terms. ``skips_zeros``: whether rows with probs of 0 are not added.
    """

    source: str
    result: str
    name: str
    skips_zeros: bool = False

    def in_range(self, call: StudyCall) -> Array:
        """Return the mask (tokens, experts) of entries that are not dropped."""
        indices = call.tensors["sorted_indices"].reshape(-1, experts(call))
        found: Array = (indices >= 0) & (indices < call.tensors[self.source].shape[0])
        return found

    def live(self, call: StudyCall) -> Array:
        """Return the mask (tokens, experts) of entries that add a row."""
        is_skipped = self.skips_zeros and "probs" in call.tensors
        return self.in_range(call) & (call.tensors["probs"] != 0 if is_skipped else True)

    def terms(self, call: StudyCall, output: str, index: Index) -> NamedTerms:
        """Return the terms of an output element in float64, by name, in k order."""
        (token, column), tensor, live = index, call.tensors[self.source], self.live(call)
        positions = np.flatnonzero(live[token]).tolist()
        rows = call.tensors["sorted_indices"].reshape(live.shape)[token, positions].tolist()
        found = [(f"{self.name}[{row}, {column}]", float(tensor[row, column])) for row in rows]
        if "probs" not in call.tensors:
            return found
        probs = call.tensors["probs"][token, positions].astype(np.float64).tolist()
        return [
            (f"{name} * probs[{token}, {position}]", value * prob)
            for (name, value), position, prob in zip(found, positions, probs, strict=True)
        ]

    def claims(self, call: StudyCall) -> Iterator[Claim]:
        """Yield that rows are added one by one in k order, one claim per number of live rows."""
        counts = self.live(call).sum(axis=1)
        for count in np.unique(counts[counts > 0]).tolist():
            yield self.claim(call, np.flatnonzero(counts == count), left_fold(range(count)))

    def claim(self, call: StudyCall, tokens: Array, tree: Tree | None) -> Claim:
        """Return the claim that the live rows of some tokens are added as a tree."""
        token = int(tokens[0])
        return Claim(
            output=self.result,
            element=(token, 0),
            elements=int(tokens.size) * call.tensors[self.source].shape[1],
            terms=tuple(name for name, _ in self.terms(call, self.result, (token, 0))),
            tree=tree,
            outside=partial(self._outside, call, token),
        )

    def _outside(self, call: StudyCall, token: int, codes: Array) -> Array:
        """Return how many units survive when the rows are probes and the weights 1 or 0."""
        live, probs = self.live(call), call.tensors.get("probs")
        rows = call.tensors["sorted_indices"].reshape(live.shape)[token, live[token]]
        count, width = call.tensors[self.source].shape
        terms, columns = (self.source, (count, width), rows), range(width)
        ones = {} if probs is None else {"probs": live.astype(probs.dtype)}
        return surviving_units(
            call, terms, columns, lambda outputs: outputs[self.result][token], codes, **ones
        )

    def unfused(self, call: StudyCall, output: str) -> Formulas:
        """Yield the sums of frameworks, which round products, or every addition, to 16 bits."""
        rows, probs = call.tensors[self.source], call.tensors.get("probs")
        if not is_16_bit(rows):
            return
        dtype = short(rows.dtype)
        if probs is not None and probs.dtype == rows.dtype:
            text = Text("products rounded to {dtype} before the sum", dtype=dtype)
            yield text, partial(_rounded_products, call, self)
        orders = {"expert after expert": False, "row after row": True}
        for order, by_row in orders.items():
            text = Text(
                "every product and sum rounded to {dtype}, {order}", dtype=dtype, order=Text(order)
            )
            yield text, partial(_rounded_sums, call, self, by_row)


PERMUTE = Function(
    ("npu_moe_token_permute",), ("tokens", "indices", "num_out_tokens", "padded_mode"), ("tokens",)
)


def arguments_in_dump(wrapped: WrappedCall) -> dict[str, Any]:
    """Return the arguments of the forward function."""
    return wrapped.pick(
        "permuted_tokens", "sorted_indices", probs=None, padded_mode=False, restore_shape=None
    )


UNPERMUTE = Function(
    ("npu_moe_token_unpermute",),
    ("permuted_tokens", "sorted_indices", "probs", "padded_mode", "restore_shape"),
    ("permuted_tokens", "probs"),
)


def _products(call: StudyCall, sums: Sums) -> Array:
    """Return the rows (tokens, experts, columns) times their probs, rounded, in fp64."""
    rows, is_there = call.tensors[sums.source], sums.in_range(call)
    indices = call.tensors["sorted_indices"].reshape(is_there.shape)
    found = rows[np.where(is_there, indices, 0)].astype(FP64) * is_there[..., None]
    if "probs" not in call.tensors:
        return np.asarray(found)
    probs = call.tensors["probs"]
    products = found * probs.astype(FP64)[..., None]
    return rounded(products, rows.dtype) if probs.dtype == rows.dtype else products


def _rounded_products(call: StudyCall, sums: Sums) -> Ends:
    products = _products(call, sums)
    total, sizes = (terms.sum(axis=1) for terms in (products, np.abs(products)))
    return ends_of(total, sizes, call.tensors[sums.source].dtype)


def _rounded_sums(call: StudyCall, sums: Sums, by_row: bool) -> Ends:
    products = _products(call, sums)
    if by_row:
        order = np.argsort(call.tensors["sorted_indices"].reshape(products.shape[:2]), axis=1)
        products = np.take_along_axis(products, order[..., None], axis=1)
    terms = ((slice(None), products[:, place]) for place in range(products.shape[1]))
    shape = (products.shape[0], products.shape[2])
    return folded_in(call.tensors[sums.source].dtype, shape, terms)

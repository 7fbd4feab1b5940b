"""Studies of MoeTokenUnpermuteGrad: the tree of a gradient of probs, the terms of an element."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from npu_sim.framework.vocabulary import Array, Index, Result, TensorSpec, Text, canonical_dtype
from npu_sim.numbers.values import normal
from npu_sim.operators.shared.routed_tokens.study import (
    UNPERMUTE,
    arguments_in_dump,
    experts,
    grown,
    places,
)
from npu_sim.operators.shared.study import (
    Changes,
    Claim,
    Experiment,
    FoundCall,
    InDumps,
    LastWrites,
    NamedTerms,
    OpenRule,
    Shown,
    StudyCall,
    WrappedCall,
    different,
    folded,
    rows_of_last_axis,
    run,
    trees,
)
from npu_sim.operators.shared.unfused import (
    FP64,
    Ends,
    Formulas,
    ends_of,
    is_16_bit,
    rounded,
    short,
)
from npu_sim.tiling.moe_token_unpermute_grad import token_range

PROBED_ROWS = 32
"""Rows of random numbers that compare the kernel with the declared tree."""


def _original(call: StudyCall, output: str, values: Array) -> Array | None:
    """Return the original samples: rows and tokens come first in a larger call."""
    tensor = "permuted_tokens" if output == "permuted_tokens_grad" else "unpermuted_tokens_grad"
    return values[: len(call.tensors[tensor])]


CHANGES = Changes(grown=grown, found=_original, places=places)


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of a gradient of probs; the other gradient is not a sum."""
    if "probs" not in call.tensors:
        return
    hidden = call.tensors["unpermuted_tokens_grad"].shape[1]
    columns, piece = range(hidden), call.case.tiling.piece_columns
    pieces = [folded(columns[start : start + piece]) for start in range(0, hidden, piece)]
    yield sum_claim(call, trees.left_fold(pieces))


def sum_claim(call: StudyCall, tree: trees.Tree | None) -> Claim:
    """Return the claim that the products of a row are added as a tree."""
    columns = range(call.tensors["unpermuted_tokens_grad"].shape[1])
    return Claim(
        output="probs_grad",
        element=(0, 0),
        elements=call.tensors["probs"].size,
        terms=tuple(f"tokens * g of column {column}" for column in columns),
        tree=tree,
        evaluates=partial(_agrees, call, tree),
    )


def _agrees(call: StudyCall, tree: trees.Tree | None) -> bool:
    """Return whether the kernel has the bits of the declared tree on random numbers.

    Products can cancel, so equal bits are not a coincidence.
    """
    g, rows = (call.tensors[name] for name in ("unpermuted_tokens_grad", "permuted_tokens"))
    random = np.random.default_rng(0)
    drawn = [normal(random, TensorSpec(array.shape, str(array.dtype))) for array in (g, rows)]
    outputs = call.outputs(unpermuted_tokens_grad=drawn[0], permuted_tokens=drawn[1])
    gradient = outputs["probs_grad"]
    top_k, indices = experts(call), call.tensors["sorted_indices"]
    entries = np.flatnonzero((indices >= 0) & (indices < rows.shape[0]))[:PROBED_ROWS]
    products = drawn[1][indices[entries]].astype(np.float32) * drawn[0][entries // top_k].astype(
        np.float32
    )
    sums = trees.evaluate(tree, np.ascontiguousarray(products.T))
    return np.array_equal(gradient.reshape(-1)[entries], sums.astype(gradient.dtype))


def unfused(call: StudyCall, output: str) -> Formulas:
    """Yield the gradient of probs of frameworks, which round products to 16 bits."""
    rows = call.tensors.get("permuted_tokens")
    if output == "probs_grad" and rows is not None and is_16_bit(rows):
        text = Text("products rounded to {dtype} before the sum", dtype=short(rows.dtype))
        yield text, partial(_rounded_products, call)


def _rounded_products(call: StudyCall) -> Ends:
    rows, probs = call.tensors["permuted_tokens"], call.tensors["probs"]
    indices = call.tensors["sorted_indices"].reshape(probs.shape)
    is_there = (indices >= 0) & (indices < len(rows))
    found = rows[np.where(is_there, indices, 0)].astype(FP64) * is_there[..., None]
    gradient = call.tensors["unpermuted_tokens_grad"].astype(FP64)[:, None]
    products = rounded(found * gradient, rows.dtype)
    return ends_of(products.sum(axis=2), np.abs(products).sum(axis=2), probs.dtype)


def writes(call: StudyCall, result: Result, output: str) -> Iterator[LastWrites]:
    """Yield the rows that several cores write, and of every core the row that it writes last."""
    tiling = call.case.tiling
    stops = [token_range(tiling, core)[1] * tiling.top_k for core in range(tiling.block_dim)]
    yield from row_writes(call, result, output, stops)


def row_writes(
    call: StudyCall, result: Result, output: str, stops: Sequence[int]
) -> Iterator[LastWrites]:
    """Like :func:`writes`, given for every core the entry behind its last one."""
    from npu_sim.kernels.shared.elementwise import narrow_array

    indices, top_k = call.tensors["sorted_indices"].reshape(-1), experts(call)
    gradient, probs = call.tensors["unpermuted_tokens_grad"], call.tensors.get("probs")
    dtype = canonical_dtype(result.outputs[output].dtype)
    for row in np.flatnonzero(result.order_dependent[output].mask).tolist():
        entries = np.flatnonzero(indices == row)
        cores = np.searchsorted(stops, entries, side="right")
        last = entries[np.append(cores[1:] != cores[:-1], True)]
        values = gradient[last // top_k].astype(np.float32)
        if probs is not None:
            values *= probs.reshape(-1)[last, None].astype(np.float32)
        names = tuple(
            Text("the last of them: token {token}, expert {expert}", token=token, expert=expert)
            for token, expert in (divmod(entry, top_k) for entry in last.tolist())
        )
        writers = tuple(np.unique(cores).tolist())
        yield LastWrites((row,), narrow_array(values, dtype), writers, names)


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield the rows that no index names: they may have any content."""
    output = result.outputs["permuted_tokens_grad"]
    named = np.zeros(len(output), np.bool_)
    indices = call.tensors["sorted_indices"]
    named[indices[(indices >= 0) & (indices < len(output))]] = True
    if named.all():
        return
    # An empty interval allows nothing.
    lowest = np.where(named, np.inf, -np.inf).reshape(-1, 1)
    reason = "no index names this row: on the device it keeps the previous content of the memory"
    yield OpenRule("permuted_tokens_grad", lowest, -lowest, reason)


def terms(call: StudyCall, output: str, index: Index) -> NamedTerms:
    """Return the terms of an output element in float64, by name."""
    indices, top_k = call.tensors["sorted_indices"], experts(call)
    g, rows, probs = (
        call.tensors.get(name) for name in ("unpermuted_tokens_grad", "permuted_tokens", "probs")
    )
    assert g is not None
    if output == "probs_grad":
        token, expert = index
        row = int(indices[token * top_k + expert])
        if rows is None or not 0 <= row < rows.shape[0]:
            return []
        products = rows[row].astype(np.float64) * g[token].astype(np.float64)
        return [
            (f"tokens[{row}, {column}] * g[{token}, {column}]", float(value))
            for column, value in enumerate(products)
        ]
    row, column = index
    entries = np.flatnonzero(indices == row)[-1:].tolist()
    factors = np.ones(indices.size) if probs is None else probs.reshape(-1).astype(np.float64)
    named = "" if probs is None else " * probs"
    return [
        (f"g[{entry // top_k}, {column}]{named}", float(g[entry // top_k, column] * factors[entry]))
        for entry in entries
    ]


def _in_dump(wrapped: WrappedCall) -> FoundCall:
    arguments = {"unpermuted_tokens_grad": wrapped.output_gradient()}
    results = {
        "permuted_tokens_grad": wrapped.gradients.get("permuted_tokens"),
        "probs_grad": wrapped.gradients.get("probs"),
    }
    return arguments_in_dump(wrapped) | arguments, results


IN_DUMPS = InDumps(
    (UNPERMUTE,), _in_dump, index_ranges=partial(rows_of_last_axis, "sorted_indices")
)


FOLDED_COLUMNS = (100, 300, 700, 2048)
FOLDED_ROWS = 256


def _folds() -> Shown:
    random, differing = np.random.default_rng(0), {}
    for columns in FOLDED_COLUMNS:
        values = random.standard_normal((FOLDED_ROWS, columns), np.float32)
        first, second = (
            run(
                "moe_token_unpermute_grad",
                product=product,
                permuted_tokens=values,
                unpermuted_tokens_grad=values[::-1].copy(),
                sorted_indices=np.arange(FOLDED_ROWS, dtype=np.int32),
                probs=np.ones((FOLDED_ROWS, 1), np.float32),
            ).outputs["probs_grad"]
            for product in ("atlas_a2", "ascend_950")
        )
        differing[columns] = different(first, second)
    return {"rows": FOLDED_ROWS, "different": differing}, [
        *(
            Text(
                "{columns} columns: {count} of {rows} gradients of probs differ between A2 and "
                "Ascend 950",
                columns=columns,
                count=count,
                rows=FOLDED_ROWS,
            )
            for columns, count in differing.items()
        ),
        "Ascend 950 folds the products of a row once, to the largest power of two, A2 and A3 to "
        "64, 512 or 4096; read in the public sources, not run on a device",
    ]


CAVEATS: tuple[Experiment, ...] = (
    Experiment(
        "folds",
        "On Ascend 950 gradients of probs have other last bits than on A2 and A3",
        "public sources of summer 2026, MoeFinalizeRoutingV2Grad",
        _folds,
    ),
)

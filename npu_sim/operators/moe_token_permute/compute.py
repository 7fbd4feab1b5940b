"""MoeTokenPermute: computation, formula and generated data.

Source: specification page ``moe_token_permute``.
"""

from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    Argument,
    Array,
    Arrays,
    Caveat,
    Dtype,
    Run,
    Text,
    caveat,
    numpy_dtype,
    runtime_failure,
)
from npu_sim.kernels import moe_token_permute as kernels
from npu_sim.kernels.shared.row_copies import copy_rows
from npu_sim.numbers.values import normal
from npu_sim.operators.moe_token_permute.declaration import ID_DTYPES
from npu_sim.tiling import moe_token_permute as tiler

LARGEST_ID = 16777214
"""Largest documented id (page, "Contract" 8)."""

FEWEST_EXPERTS = 64
"""Smallest number of experts in generated data."""


def check_ids(ids: Array) -> None:
    """Check the values of ids (page, "Contract" 8).

    Raises
    ------
    AclnnError
        361001 for an id outside [0, 16777215) that is not an extreme value of an integer type, with
        position and value of the first one.
    """
    if not ids.size or (ids.min() >= 0 and ids.max() <= LARGEST_ID):
        return
    ends = [
        end
        for dtype in ID_DTYPES
        for end in (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if np.can_cast(dtype, ids.dtype)
    ]
    outside = ((ids < 0) | (ids > LARGEST_ID)) & ~np.isin(ids, ends)
    if outside.any():
        index = np.unravel_index(int(outside.argmax()), ids.shape)
        hint = Text(
            "0 <= id <= {largest_id}, or an end of its type: {ends}; {hardware} sorts ids as fp32",
            largest_id=LARGEST_ID,
            ends=", ".join(map(str, ends)),
            hardware=Argument("limits", "hardware"),
        )
        raise runtime_failure(
            "indices",
            Text(
                "indices[{index}] = {id} is outside the documented ids",
                index=", ".join(map(str, index)),
                id=ids[index],
            ),
            Text("{hint}; nothing was written", hint=hint),
        )


def compute(run: Run) -> None:
    """Sort the ids and copy the rows of the tokens."""
    with run.watch.stage("check"):
        if run.case.limits == "documented":
            check_ids(run.tensors["indices"])
    with run.watch.stage("compute"):
        row, ids = run.case.row, run.stored("indices").reshape(-1)
        places, permuted = run.written("sorted_indices"), run.written("permuted_tokens")
        kernels.sort_ids(ids, places)
        if row.hidden:
            copy_rows(
                run.stored("tokens").reshape(row.num_tokens, -1),
                places,
                permuted.reshape(-1, row.hidden),
                row.num_topk,
            )
        if run.case.limits == "hardware":
            run.caveats = _rounded_ids(np.flatnonzero(kernels.are_rounded(ids)), ids, places)


def _rounded_ids(rounded: Array, ids: Array, places: Array) -> tuple[Caveat, ...]:
    """Warn of ids that are not exact in fp32, given their positions (page, "Ids as fp32")."""
    if not rounded.size:
        return ()
    exact = np.empty_like(places)
    exact[np.argsort(ids, kind="stable")] = np.arange(ids.size, dtype=places.dtype)
    return (
        caveat(
            "ids_rounded",
            "indices",
            "{size} ids are not representable in fp32 and were rounded, the first at position "
            "{rounded} of the flattened indices; {moved} of them moved to another place than "
            "integer sorting gives",
            size=rounded.size,
            rounded=rounded[0],
            moved=int(np.count_nonzero(exact[rounded] != places[rounded])),
        ),
    )


def top_k_of(indices: tuple[int, ...]) -> int:
    """Return the number of experts per token, from the shape of indices."""
    return indices[1] if len(indices) == 2 else 1


def formula(arguments: Any, tensors: Arrays, precision: Dtype) -> Arrays:
    """Return stably sorted indices and the kept rows (page, "Formula")."""
    indices = tensors["indices"]
    first = np.argsort(indices, axis=None, kind="stable")
    sorted_indices = np.empty(first.size, precision)
    sorted_indices[first] = np.arange(first.size)
    kept = first[: tiler.kept_rows(arguments.num_out_tokens, first.size)]
    tokens = tensors["tokens"][kept // top_k_of(indices.shape)]
    return {"permuted_tokens": tokens.astype(precision), "sorted_indices": sorted_indices}


def data(arguments: Any, seed: int) -> Arrays:
    """Return normal tokens and distinct experts for each token, as a router chooses them."""
    random, spec = np.random.default_rng(seed), arguments.indices
    tokens, top_k = spec.shape[0], top_k_of(spec.shape)
    experts = FEWEST_EXPERTS
    while experts < top_k:
        experts *= 2
    # An odd step modulo a power of two visits distinct experts.
    start = random.integers(0, experts, (tokens, 1))
    step = 2 * random.integers(0, experts // 2, (tokens, 1)) + 1
    chosen = (start + step * np.arange(top_k)) % experts
    return {
        "tokens": normal(random, arguments.tokens),
        "indices": chosen.reshape(spec.shape).astype(numpy_dtype(spec.dtype)),
    }

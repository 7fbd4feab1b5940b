"""MoeTokenPermute: copies of tokens sorted by expert, the operator whose sorted indices MoeTokenPermuteGrad takes.

Source: public product document aclnnMoeTokenPermute; specification page ``moe_token_permute``.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.framework.arguments import INT64_MAX, Attribute, Output, Tensor
from npu_sim.framework.axes import Derived, Number, Word
from npu_sim.framework.case import Inspection
from npu_sim.framework.checks import Attributes, Given, Holds, NothingToDo, Supported
from npu_sim.framework.codes import FLOAT_DTYPES
from npu_sim.framework.operator import Operator
from npu_sim.framework.results import runtime_failure
from npu_sim.framework.tensor_checks import ND, Dtypes, Formats, Ranks, SameDtype, Shapes
from npu_sim.numbers.formats import numpy_dtype
from npu_sim.numbers.values import normal
from npu_sim.operators.moe_token_permute.plan import buffer_words, describe
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Caveat
from npu_sim.status import TILING_FAILURE, AclnnError
from npu_sim.tiling import moe_token_permute as tiler
from npu_sim.tiling.moe_token_permute import MOST_ENTRIES

if TYPE_CHECKING:
    from npu_sim.framework.execution import Run

ID_DTYPES = ("int32", "int64")
LARGEST_ID = 16777214
"""Documented ids lie in [0, 16777215) (page, "Contract" 8)."""
FEWEST_EXPERTS = 64
"""Experts of generated data at least."""


def check_padding(call: Inspection) -> None:
    """Refuse padding, which the product does not support yet: 561002, unlike MoeTokenPermuteGrad (page, "Contract" 3)."""
    if call.arguments.padded_mode:
        raise AclnnError(
            TILING_FAILURE,
            "padded_mode",
            "padded_mode = True is not supported yet",
            "padded_mode = False",
        )


def check_ids(ids: np.ndarray) -> None:
    """Check what only the data can tell (page, "Contract" 8).

    Raises
    ------
    AclnnError
        361001 for an id outside [0, 16777215) that is not the end of an integer type, naming the first one's position and value.
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
        place = np.unravel_index(int(outside.argmax()), ids.shape)
        message = f"indices[{', '.join(map(str, place))}] = {ids[place]} is no id that is documented to be sorted"
        hint = f'0 <= id <= {LARGEST_ID}, or an end of its type: {", ".join(map(str, ends))}; limits="hardware" sorts ids as fp32'
        raise runtime_failure("indices", message, f"{hint}; nothing was written")


def compute(run: "Run") -> None:
    """Sort the ids, and copy the rows of the tokens."""
    with run.watch.stage("check"):
        if run.case.limits == "documented":
            check_ids(run.tensors["indices"])
    with run.watch.stage("load"):
        from npu_sim.kernels import moe_token_permute as kernels
    with run.watch.stage("compute"):
        row, ids = run.case.row, run.stored("indices").reshape(-1)
        places, permuted = run.written("sorted_indices"), run.written("permuted_tokens")
        kernels.sort_ids(ids, places)
        if row.hidden:
            kernels.copy_rows(
                run.stored("tokens").reshape(row.num_tokens, -1),
                places,
                permuted.reshape(-1, row.hidden),
                row.num_topk,
            )
        if run.case.limits == "hardware":
            run.caveats = _rounded_ids(np.flatnonzero(kernels.are_rounded(ids)), ids, places)


def _rounded_ids(rounded: np.ndarray, ids: np.ndarray, places: np.ndarray) -> tuple[Caveat, ...]:
    """Warn of ids that fp32 does not hold, given where they are (page, "Ids as fp32")."""
    if not rounded.size:
        return ()
    exact = np.empty_like(places)
    exact[np.argsort(ids, kind="stable")] = np.arange(ids.size, dtype=places.dtype)
    moved = int(np.count_nonzero(exact[rounded] != places[rounded]))
    message = (
        f"{rounded.size} ids are no fp32 numbers and were rounded, the first at position {rounded[0]} of the flattened indices; "
        f"{moved} of them went to another place than sorting whole numbers gives"
    )
    return (Caveat(code="ids_rounded", argument="indices", message=message),)


def top_k_of(indices: tuple[int, ...]) -> int:
    """Return how many experts a token has, from the shape of indices."""
    return indices[1] if len(indices) == 2 else 1


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Sort stably, and take the rows that are kept (page, "Formula")."""
    indices = tensors["indices"]
    first = np.argsort(indices, axis=None, kind="stable")
    sorted_indices = np.empty(first.size, precision)
    sorted_indices[first] = np.arange(first.size)
    kept = first[: tiler.kept_rows(arguments.num_out_tokens, first.size)]
    tokens = tensors["tokens"][kept // top_k_of(indices.shape)]
    return {"permuted_tokens": tokens.astype(precision), "sorted_indices": sorted_indices}


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return normal tokens, and for each its experts as a router chooses them: no expert twice."""
    random, spec = np.random.default_rng(seed), arguments.indices
    tokens, top_k = spec.shape[0], top_k_of(spec.shape)
    experts = FEWEST_EXPERTS
    while experts < top_k:
        experts *= 2
    # Steps of an odd number through a power of two meet nobody twice.
    start, step = (
        random.integers(0, experts, (tokens, 1)),
        2 * random.integers(0, experts // 2, (tokens, 1)) + 1,
    )
    chosen = (start + step * np.arange(top_k)) % experts
    return {
        "tokens": normal(random, arguments.tokens),
        "indices": chosen.reshape(spec.shape).astype(numpy_dtype(spec.dtype)),
    }


def _timeline_hooks() -> dict[str, Any]:
    from npu_sim.operators.moe_token_permute import timeline, timeline_steps

    return {"program": timeline.program, "steps": timeline_steps.steps}


def _study_hooks() -> dict[str, Any]:
    from npu_sim.operators.moe_token_permute import study

    return {"claims": study.claims, "terms": study.terms, "changes": study.CHANGES}


OPERATOR = Operator(
    name="moe_token_permute",
    title="MoeTokenPermute",
    summary="Sort copies of tokens by expert as the product does.",
    arguments=(
        Tensor("tokens", "num_tokens hidden+", "tokens, (tokens, columns ...)", "dtype"),
        Tensor(
            "indices",
            "num_tokens num_topk*",
            "experts of every token, (tokens, experts), or (tokens,) for one each",
            "indices_dtype",
            addresses=True,
        ),
        Attribute(
            "num_out_tokens",
            int,
            "rows of permuted_tokens; 0 and negative numbers count from the end",
            0,
        ),
        Attribute("padded_mode", bool, "not supported yet: False", False),
        Output(
            "permuted_tokens",
            "kept_rows hidden~",
            "copies of the tokens sorted by expert, (num_out_tokens, columns ...)",
            "dtype",
            document="permuteTokensOut",
        ),
        Output(
            "sorted_indices",
            "entries",
            "place of every copy, (tokens * experts,), int32",
            "int32",
            document="sortedIndicesOut",
            parts="element",
        ),
    ),
    axes=(
        Word("dtype", "dtype of tokens", FLOAT_DTYPES, "bfloat16"),
        Word("indices_dtype", "dtype of indices", ID_DTYPES, "int32"),
        Number(
            "num_out_tokens",
            "numOutTokens",
            0,
            low=-INT64_MAX - 1,
            high=INT64_MAX,
            unit="row",
            aliases=("numOutTokens",),
        ),
        Number(
            "num_topk",
            "experts of a token, second axis of indices",
            8,
            unit="expert",
            aliases=("topk", "K"),
        ),
        Number(
            "hidden",
            "product of the axes of tokens but the first",
            1024,
            unit="column",
            aliases=("cols", "H", "hidden_size"),
        ),
        Number(
            "num_tokens",
            "tokens, first axis of tokens and indices",
            1024,
            unit="token",
            aliases=("n", "T"),
        ),
    ),
    derived=(
        Derived("entries", "num_tokens * num_topk"),
        Derived(
            "kept_rows", "max(0, min(num_out_tokens + entries * (num_out_tokens <= 0), entries))"
        ),
    ),
    checks=(
        Given(),
        Supported(),
        Dtypes("tokens", lambda profile: profile.product.dtypes),
        SameDtype("permuted_tokens", "tokens"),
        Dtypes("indices", ID_DTYPES),
        Dtypes("sorted_indices", ("int32",)),
        Formats(ND),
        Attributes("num_out_tokens padded_mode"),
        check_padding,
        Ranks("tokens permuted_tokens", 2, status=TILING_FAILURE),
        Ranks("indices", 1, 2, TILING_FAILURE),
        Shapes("tokens indices permuted_tokens sorted_indices", TILING_FAILURE),
        Holds(f"num_topk <= {tiler.MOST_TOPK}", "indices"),
        Holds(f"entries <= {MOST_ENTRIES}", "indices"),
        NothingToDo("entries == 0"),
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile_row,
    describe=describe,
    compute=compute,
    formula=formula,
    data=data,
    evidence=Evidence.EXACT,
    empty="empty: no ids, nothing runs",
    planner_words=buffer_words,
    timeline_hooks=_timeline_hooks,
    study_hooks=_study_hooks,
)

"""Tiling of MoeTokenPermute (Atlas A2, A3): pure integer functions.

Source: specification page ``moe_token_permute``, section "Tiling". The stages are in :mod:`npu_sim.tiling.moe_token_permute_sort`
and :mod:`npu_sim.tiling.moe_token_permute_copy`.
"""

from collections.abc import Sequence
from math import prod
from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.fields import REFUSED, SUCCESS, Field, Part, nothing, raw_result, vendor_fields
from npu_sim.tiling.integers import align
from npu_sim.tiling.moe_token_permute_copy import (
    BLOCK_BYTES,
    LEAST_SPLIT_BYTES,
    ROW_BUFFERS,
    Copies,
    moves_whole_rows,
    split_copies,
)
from npu_sim.tiling.moe_token_permute_sort import (
    MERGE_PIECE_ENTRIES,
    MERGE_UB_BYTES,
    MOST_ENTRIES,
    Sort,
    merging_cores,
    most_entries,
    sort_buffers,
    sorters,
    sorts_at_once,
    split_sort,
)

MOST_TOPK = 512
"""Experts of a token at most (page, "Contract" 5)."""
KEY_ONE_CORE, KEY_SEVERAL_CORES = 1, 2
KEY_SPLIT_ROWS, KEY_DROPPED = 2, 4
"""What split rows, and dropped ones, add to the tiling key."""
SORT_WORKSPACE_BYTES = 24
"""Workspace for every entry that is sorted."""
SYNC_WORKSPACE_BYTES = 64
"""Workspace for every core that may sort; no kernel touches it."""
AXIS_FP32 = 0
"""Code of fp32 on the axis ``dtype``; the others have 16 bits."""

ELSEWHERE = Part(vendor="")
"""Parts whose vendor fields lie in a structure of their own."""


class Problem(NamedTuple):
    """What the planner is asked.

    Attributes
    ----------
    tokens, top_k
        Axes of indices; ``top_k`` is 1 when they have one axis.
    columns
        Product of the other axes of tokens.
    element_bytes
        2 or 4.
    kept_rows
        Rows of permutedTokens; fewer than ``tokens * top_k`` when rows are dropped.
    """

    tokens: int
    top_k: int
    columns: int
    element_bytes: int
    kept_rows: int


class Tiling(NamedTuple):
    """Result of the planner."""

    status: int
    tiling_key: Annotated[
        int,
        Field(
            "tiling key: 1 or 2 for a sort on one core or several, 2 more for split rows, 4 more for dropped ones",
            "8",
        ),
    ]
    block_dim: Annotated[int, Field("cores that work", "vector_cores")]
    schedule_mode: Annotated[int, Field("1 when all cores start together, else -1", "1", none=-1)]
    workspace_bytes: Annotated[
        int,
        Field(
            "workspace of the kernel", "system_workspace_bytes + 24 * 16777214 + 64 * vector_cores"
        ),
    ]
    sorters: Annotated[int, Field("cores that may sort", "vector_cores", vendor="coreNum")]
    tokens: Annotated[int, Field("tokens", vendor="n")]
    columns: Annotated[int, Field("columns", vendor="cols")]
    columns_aligned: Annotated[
        int, Field("columns of a row in whole blocks", "hidden", vendor="colsAlign")
    ]
    top_k: Annotated[int, Field("experts of a token", vendor="topK")]
    sort: Annotated[Sort, ELSEWHERE]
    merging_cores: Annotated[
        int, Field("cores that merge before the last one does", "vector_cores")
    ]
    copies: Annotated[Copies, ELSEWHERE]


NO_TILING: Tiling = nothing(Tiling)


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call as the raw planner does.

    Parameters
    ----------
    problem
        What the planner is asked.
    device
        The SoC.
    rules
        What the release decides: ``schedule_mode``, and ``position_bytes`` of :func:`split_copies`.

    Returns
    -------
    Tiling
        With ``status`` 1 (the product's 561002) for no core, or a Unified Buffer too small to sort anything. Rows that leave no room for
        their positions are a success with ``copies.copy_rows`` 0, as in the product.
    """
    entries = problem.tokens * problem.top_k
    if device.vector_cores <= 0 or most_entries(entries, device) <= 0:
        return NO_TILING
    sort = split_sort(entries, device)
    copies = split_copies(
        problem.tokens,
        problem.top_k,
        problem.columns,
        problem.element_bytes,
        problem.kept_rows,
        device.vector_cores,
        device.ub_bytes,
        rules.position_bytes,
    )
    key = KEY_ONE_CORE if sorts_at_once(sort) else KEY_SEVERAL_CORES
    if not moves_whole_rows(copies.row_bytes, device.ub_bytes):
        key += KEY_SPLIT_ROWS
    if problem.kept_rows != entries:
        key += KEY_DROPPED
    may_sort = sorters(entries, device.vector_cores)
    return Tiling(
        status=SUCCESS,
        tiling_key=key,
        block_dim=max(may_sort, copies.cores),
        schedule_mode=rules.schedule_mode,
        workspace_bytes=SORT_WORKSPACE_BYTES * entries
        + SYNC_WORKSPACE_BYTES * may_sort
        + device.system_workspace_bytes,
        sorters=may_sort,
        tokens=problem.tokens,
        columns=problem.columns,
        columns_aligned=align(copies.row_bytes, BLOCK_BYTES) // problem.element_bytes,
        top_k=problem.top_k,
        sort=sort,
        merging_cores=merging_cores(sort),
        copies=copies,
    )


def leaves_room(tiling: Tiling) -> bool:
    """Whether the positions of a token fit beside its rows; the product plans on without (page, "Contract" 6)."""
    return tiling.copies.copy_rows > 0


def copy_bytes(tiling: Tiling) -> int:
    """Bytes in the Unified Buffer of a core that moves rows."""
    if tiling.copies.piece <= 0:
        return LEAST_SPLIT_BYTES
    return ROW_BUFFERS * tiling.copies.row_buffer_bytes + tiling.copies.position_buffer_bytes


def sort_bytes(tiling: Tiling) -> int:
    """Bytes in the Unified Buffer of a core that sorts, and merges where several do."""
    ids, positions, result, in_order = sort_buffers(tiling.sort)
    sorting = ids + positions + result + in_order
    return sorting if sorts_at_once(tiling.sort) else max(sorting, MERGE_UB_BYTES)


def stage_bytes(tiling: Tiling) -> int:
    """Bytes that the stages need, one after the other: a Unified Buffer that is no product's may have fewer (page, "What-if SoC")."""
    return max(sort_bytes(tiling), copy_bytes(tiling))


def problem_of_row(row: Any) -> Problem:
    """Return what the planner is asked for a call in whole numbers."""
    return Problem(
        row.num_tokens, row.num_topk, row.hidden, 4 if row.dtype == AXIS_FP32 else 2, row.kept_rows
    )


def tile_row(row: Any, device: Device, rules: Any) -> Tiling:
    """Plan a call given in whole numbers; there is no tiling where the product plans on and cannot work."""
    tiling = tile(problem_of_row(row), device, rules)
    if tiling.status != SUCCESS or not leaves_room(tiling) or stage_bytes(tiling) > device.ub_bytes:
        return NO_TILING
    return tiling


def kept_rows(num_out_tokens: int, entries: int) -> int:
    """Return the rows of permutedTokens: what numOutTokens says, 0 and negative values counted from the end."""
    wanted = num_out_tokens + entries if num_out_tokens <= 0 else num_out_tokens
    return max(0, min(wanted, entries))


def vendor_structure(tiling: Tiling) -> dict[str, Any]:
    """Return the tiling data under the vendor's names."""
    return {
        **vendor_fields(tiling),
        "vbsComputeParamsOp": vendor_fields(tiling.sort),
        "vmsMiddleComputeParamsOp": {"needCoreNum": tiling.merging_cores},
        "sortOutComputeParamsOp": {"oneLoopMaxElements": MERGE_PIECE_ENTRIES},
        "indexCopyComputeParamsOp": vendor_fields(tiling.copies),
    }


def takes_shapes(
    tokens: Sequence[int],
    indices: Sequence[int],
    permuted: Sequence[int],
    sorted_indices: Sequence[int],
    rows: int,
) -> bool:
    """Whether the raw planner takes these shapes, given the rows of permutedTokens; laxer than the contract, tokens may have rank 1."""
    if (
        len(tokens) < 1
        or len(indices) not in (1, 2)
        or indices[0] != tokens[0]
        or len(permuted) < 1
    ):
        return False
    same_rows = permuted[0] == rows and prod(permuted[1:]) == prod(tokens[1:])
    return same_rows and tuple(sorted_indices) == (prod(indices),)


def plan_kernel(
    kernel: str, inputs: dict[str, Any], device: Device, deterministic: bool, rules: Any
) -> dict[str, Any]:
    """Run the raw planner on one golden line's inputs; return its ``expect`` structure (see :mod:`npu_sim.tiling`)."""
    tokens, indices, permuted, sorted_indices = (
        inputs[f"{name}_shape"]
        for name in ("tokens", "indices", "permuted_tokens", "sorted_indices")
    )
    entries = prod(indices)
    rows = kept_rows(inputs["num_out_tokens"], entries)
    if inputs["padded_mode"] or not takes_shapes(tokens, indices, permuted, sorted_indices, rows):
        return REFUSED
    top_k = indices[1] if len(indices) == 2 else 1
    if top_k > MOST_TOPK or entries > MOST_ENTRIES:
        return REFUSED
    problem = Problem(
        tokens[0], top_k, prod(tokens[1:]), 4 if inputs["tokens_dtype"] == "float32" else 2, rows
    )
    tiling = tile(problem, device, rules)
    return raw_result(tiling, vendor_structure(tiling))

"""Tiling of MoeTokenPermuteGrad on Ascend 950: pure integer functions.

The call runs the kernel MoeInitRoutingV2Grad there, whose planner has nothing in common with that
of Atlas A2 and A3.

Source: specification page ``moe_token_permute_grad_950``, section "Tiling".
"""

from collections import namedtuple
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.common import (
    BLOCK_BYTES,
    DTYPE_CODES,
    FP32_BYTES,
    SUCCESS,
    SYSTEM_WORKSPACE_BYTES,
    Field,
    Range,
    Raw,
    WorkspaceBytes,
    align,
    chunk_range,
    element_bytes,
    equal_parts,
    nothing,
    raw_planner,
)

SPLIT_COLUMNS, ALL_ROWS, SOME_ROWS = 200000, 300000, 400000
"""Tiling keys without their last digit: columns are split over cores; tokens are, and all rows of a
token are in the Unified Buffer; tokens are, and some rows of one token are."""
ACTIVE, DROPLESS = 3, 1
"""Last digit of the tiling key; the second one in the raw planner only."""

MOST_SPLIT_ROWS = 64
"""Rows of a token that key 200003 takes at most."""
FEW_ROWS = 10
"""So many rows of a token stay together when they fit in pieces of columns only."""
LEAST_COLUMN_BYTES = 512
"""Part of the rule of key 200003: tokens < hidden // 512 // element bytes."""
MOST_AT_ONCE = 65535
"""Most tokens or rows at a time."""
WIDEST_PIECE = 4194240
"""Most columns at a time."""


class Tiling(NamedTuple):
    """Result of the planner; fields that a key does not have are 0."""

    status: int
    tiling_key: Annotated[
        int,
        Field(
            "tiling key: 200003 columns are split, 300003 all rows of a token, 400003 some",
            "400003",
        ),
    ]
    block_dim: Annotated[int, Field("cores that work", "vector_cores", "numBlocks")]
    workspace_bytes: WorkspaceBytes
    hidden: Annotated[int, Field("columns", vendor="h")]
    tokens: Annotated[int, Field("tokens", vendor="n")]
    top_k: Annotated[int, Field("rows of a token", vendor="k")]
    active_rows: Annotated[int, Field("rows of permutedOutputGrad", vendor="activeNum")]
    core_columns: Annotated[int, Field("columns of a core, key 200003", "hidden", "hBlockFactor")]
    core_tokens: Annotated[
        int, Field("tokens of a core, keys 300003 and 400003", "tokens", "nBlockFactor")
    ]
    ub_tokens: Annotated[
        int, Field("tokens at a time; key 200003 has them as kUbFactor", "ub_bytes", "nUbFactor")
    ]
    ub_rows: Annotated[int, Field("rows of a token at a time, key 400003", "ub_bytes", "kUbFactor")]
    ub_columns: Annotated[int, Field("columns at a time", "ub_bytes", "hUbFactor")]


NO_TILING = nothing(Tiling)
"""Result of a planner that found no tiling."""


class Problem(NamedTuple):
    """The axes of a call that the planner reads.

    ``grad_rows`` 0 is the mode without dropped rows of the raw planner.
    """

    tokens: int
    num_topk: int
    hidden: int
    grad_rows: int
    dtype: int


def row_bytes(problem: Problem) -> int:
    """Return the bytes of one column of a token: its rows twice, and the result (page, "row")."""
    return (2 * problem.num_topk + 1) * element_bytes(problem.dtype)


def padded(columns: int, size: int) -> int:
    """Return columns padded to whole blocks (page, "a")."""
    return align(columns * size, BLOCK_BYTES) // size


def whole_blocks(columns: int, size: int) -> int:
    """Return columns rounded down to whole blocks (page, "down")."""
    return columns * size // BLOCK_BYTES * BLOCK_BYTES // size


def splits_columns(problem: Problem, device: Device) -> bool:
    """Return whether cores split the columns instead of the tokens: key 200003."""
    wide = problem.hidden // LEAST_COLUMN_BYTES // element_bytes(problem.dtype)
    few = problem.tokens < device.vector_cores and problem.tokens < wide
    return problem.num_topk <= MOST_SPLIT_ROWS and few


def fits(problem: Problem, columns: int, device: Device) -> bool:
    """Return whether all rows of a token fit the Unified Buffer with so many columns."""
    return padded(columns, element_bytes(problem.dtype)) <= device.ub_bytes // row_bytes(problem)


def holds_all_rows(problem: Problem, device: Device, rules: Any) -> bool:
    """Return whether all rows of a token are in the Unified Buffer together: key 300003."""
    return problem.num_topk <= FEW_ROWS or fits(problem, problem.hidden, device)


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call.

    ``status`` is 1 (the product's 561002) without tokens, rows, columns or cores, and on a chip
    whose Unified Buffer is too small for one block of columns.
    """
    if min(problem.tokens, problem.num_topk, problem.hidden, device.vector_cores) <= 0:
        return NO_TILING
    size, cores, ub_bytes = element_bytes(problem.dtype), device.vector_cores, device.ub_bytes
    row = row_bytes(problem)
    core_columns = core_tokens = ub_rows = 0
    ub_tokens = 1
    if splits_columns(problem, device):
        key = SPLIT_COLUMNS
        block_dim, core_columns, _ = equal_parts(problem.hidden, cores)
        ub_columns = whole_blocks(ub_bytes // row, size)
        if fits(problem, core_columns, device):
            ub_tokens = ub_bytes // (row * padded(core_columns, size))
            ub_columns = core_columns
    else:
        block_dim, core_tokens, _ = equal_parts(problem.tokens, cores)
        wide = padded(problem.hidden, size)
        if holds_all_rows(problem, device, rules):
            key = ALL_ROWS
            ub_columns = whole_blocks(ub_bytes // row, size)
            if fits(problem, problem.hidden, device):
                ub_tokens = min(ub_bytes // (row * wide), MOST_AT_ONCE)
                ub_columns = wide
        else:
            key, ub_rows = SOME_ROWS, 1
            ub_columns = whole_blocks(ub_bytes // (3 * size + FP32_BYTES), size)
            if wide <= ub_bytes // (3 * size + FP32_BYTES):
                left = ub_bytes - (size + FP32_BYTES) * wide
                ub_rows = min(left // (2 * size * wide), MOST_AT_ONCE)
                ub_columns = wide
        ub_columns = min(ub_columns, WIDEST_PIECE)
    if ub_columns <= 0:
        return NO_TILING
    return Tiling(
        status=SUCCESS,
        tiling_key=key + (ACTIVE if problem.grad_rows else DROPLESS),
        block_dim=block_dim,
        workspace_bytes=SYSTEM_WORKSPACE_BYTES,
        hidden=problem.hidden,
        tokens=problem.tokens,
        top_k=problem.num_topk,
        active_rows=problem.grad_rows,
        core_columns=core_columns,
        core_tokens=core_tokens,
        ub_tokens=ub_tokens,
        ub_rows=ub_rows,
        ub_columns=ub_columns,
    )


def is_column_split(tiling: Tiling) -> bool:
    """Return whether cores split the columns."""
    return tiling.core_columns > 0


def core_range(tiling: Tiling, core: int) -> Range:
    """Return the half-open range of columns (key 200003) or tokens that a core takes."""
    if is_column_split(tiling):
        return chunk_range(core, tiling.core_columns, tiling.hidden)
    return chunk_range(core, tiling.core_tokens, tiling.tokens)


def vendor_structure(tiling: Tiling, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data under the vendor's names: each key has its own structure."""
    fields = {
        "h": tiling.hidden,
        "n": tiling.tokens,
        "k": tiling.top_k,
        "activeNum": tiling.active_rows,
        "numBlocks": tiling.block_dim,
        "hUbFactor": tiling.ub_columns,
    }
    if is_column_split(tiling):
        return fields | {"hBlockFactor": tiling.core_columns, "kUbFactor": tiling.ub_tokens}
    fields |= {"nBlockFactor": tiling.core_tokens, "nUbFactor": tiling.ub_tokens}
    return fields | {"kUbFactor": tiling.ub_rows} if tiling.ub_rows else fields


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs."""
    grad, indices, out = (
        tuple(inputs[f"{name}_shape"]) for name in ("permuted_output_grad", "sorted_indices", "out")
    )
    top_k, active_rows = inputs["num_topk"], inputs["active_num"]
    if inputs["sorted_indices_dtype"] != "int32" or len(grad) != 2 or len(indices) != 1:
        return None
    entries = indices[0]
    if top_k < 1 or entries <= 0 or entries % top_k or grad[0] != (active_rows or entries):
        return None
    if out != (entries // top_k, grad[1]):
        return None
    dtype = DTYPE_CODES[inputs["permuted_output_grad_dtype"]]
    return Problem(out[0], top_k, out[1], active_rows, dtype)


KERNELS = {"moe_token_permute_grad": raw_planner(problem_of, tile, vendor_structure)}


Buffers = namedtuple("Buffers", ("rows", "result", "sums"))
"""Bytes in the Unified Buffer of one core; 0 for buffers not in use."""


def buffers(tiling: Tiling, size: int) -> Buffers:
    """Return the bytes in the Unified Buffer of one core (page, "Unified Buffer")."""
    if is_column_split(tiling):
        result = tiling.ub_tokens * align(tiling.ub_columns * size, BLOCK_BYTES)
        return Buffers(2 * tiling.top_k * result, result, 0)
    if tiling.ub_rows:
        result = tiling.ub_columns * size
        return Buffers(2 * tiling.ub_rows * result, result, FP32_BYTES * tiling.ub_columns)
    result = tiling.ub_tokens * tiling.ub_columns * size
    return Buffers(2 * tiling.top_k * result, result, 0)


def used_bytes(row: Any, tiling: Tiling, device: Device, rules: Any) -> int:
    """Return the Unified Buffer in use on a core."""
    return sum(buffers(tiling, element_bytes(row.dtype)))

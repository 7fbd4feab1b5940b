"""Tiling of MoeTokenUnpermuteGrad on Ascend 950: pure integer functions.

The call runs the kernel MoeFinalizeRoutingV2Grad there, whose planner has nothing in common with
that of Atlas A2 and A3.

Source: specification page ``moe_token_unpermute_grad_950``, section "Tiling".
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
    VECTOR_LANES,
    BlockDim,
    Field,
    Part,
    Range,
    Raw,
    WorkspaceBytes,
    align,
    align_down,
    bit_length,
    element_bytes,
    even_range,
    largest_power,
    nothing,
    raw_planner,
    vendor_fields,
)

KEY_COPY, KEY_COPY_PIECES = 10001, 10002
"""Tiling keys without probs: whole rows, and rows in pieces."""
KEY_WHOLE, KEY_CUT = 20011, 20012
"""Tiling keys with probs: whole rows, and rows cut into blocks."""

INDEX_BYTES = 32
"""Unified Buffer for the index of an entry, without probs."""
SUM_BYTES = 32
"""Unified Buffer for the sum of an entry; key 20011 has two."""
SLOT_BYTES, REGISTER_SUM_BYTES = 3072, 1024
"""Unified Buffer of key 20012 for the sums of blocks and of registers (page, "Unified Buffer")."""
CUT_RESERVED_BYTES = SUM_BYTES + SLOT_BYTES + REGISTER_SUM_BYTES
ROW_BUFFERS = 6
"""Rows in the Unified Buffer with probs: gradient, tokens and result, two each."""


class BinarySum(NamedTuple):
    """How a row of products is summed: folded to a power of two, then sums of registers."""

    folded: Annotated[int, Field("products after the fold", "ub_bytes", "binaryAddQuotient")]
    halvings: Annotated[
        int, Field("times that the sums of registers are halved", "64", "binaryAddk")
    ]
    last: Annotated[
        int, Field("sums of registers of the last tree", str(VECTOR_LANES), "binaryAddLastNum")
    ]


class Cut(NamedTuple):
    """Blocks of a row, key 20012: the main ones, and those that are added to halves of them."""

    main_columns: Annotated[int, Field("columns of a main block", "ub_bytes", "mainFactor")]
    main_blocks: Annotated[int, Field("main blocks", "hidden", "mainBlockNum")]
    columns: Annotated[int, Field("columns of an added block", "ub_bytes", "foldFactor")]
    blocks: Annotated[int, Field("whole added blocks", "hidden", "foldBlockNum")]
    tail_columns: Annotated[
        int, Field("columns behind the whole added blocks", "hidden", "foldTailLen")
    ]
    tail_blocks: Annotated[int, Field("blocks of these columns", "2", "foldTailBlockNum")]


class Tiling(NamedTuple):
    """Result of the planner; fields that a key does not have are 0."""

    status: int
    tiling_key: Annotated[
        int,
        Field("tiling key: 10001 copies, 10002 in pieces, 20011 sums, 20012 in blocks", "20012"),
    ]
    block_dim: BlockDim
    workspace_bytes: WorkspaceBytes
    core_entries: Annotated[int, Field("entries of a core", "tokens * num_topk")]
    longer_cores: Annotated[int, Field("cores with one entry more", "vector_cores")]
    top_k: Annotated[int, Field("entries of a token", "", "topK")]
    hidden: Annotated[int, Field("columns", "", "hidden")]
    entries: Annotated[int, Field("entries", "tokens * num_topk", "expandedXDim0")]
    piece_columns: Annotated[
        int, Field("columns that fit the buffer, keys 1000x", "ub_bytes", "hiddenPrePart")
    ]
    pieces: Annotated[int, Field("whole pieces, key 10002", "hidden", "hiddenInnerLoops")]
    last_columns: Annotated[
        int, Field("columns of the last piece, key 10002", "hidden", "hiddenLastPart")
    ]
    padded_hidden: Annotated[
        int, Field("columns in whole blocks, key 20011", "hidden + 15", "hAlign")
    ]
    cut: Annotated[Cut, Part(prefix="")]
    main_sum: Annotated[BinarySum, Part(prefix="main_", help=", of a row or a main block")]
    added_sum: Annotated[BinarySum, Part(prefix="added_", help=", of an added block")]


NO_TILING = nothing(Tiling)


class Problem(NamedTuple):
    """The axes of a call that the planner reads."""

    entries: int
    top_k: int
    hidden: int
    dtype: int
    has_probs: int


def binary_sum(count: int) -> BinarySum:
    """Return how ``count`` products are summed (page, "bin")."""
    folded = largest_power(count)
    registers = folded // VECTOR_LANES
    halvings = max(bit_length(registers) - bit_length(VECTOR_LANES), 0)
    return BinarySum(folded, halvings, min(registers, VECTOR_LANES))


def register_sum_bytes(columns: int) -> int:
    """Return the bytes of the sums of registers of a whole row."""
    return align(FP32_BYTES * (largest_power(columns) // VECTOR_LANES), BLOCK_BYTES)


def holds_row(hidden: int, size: int, device: Device) -> bool:
    """Return whether whole rows fit: key 20011."""
    left = device.ub_bytes - 2 * SUM_BYTES - register_sum_bytes(hidden)
    room = align_down(left // (ROW_BUFFERS * size), BLOCK_BYTES // size)
    return room >= align(hidden * size, BLOCK_BYTES) // size


def columns_of_copies(size: int, device: Device) -> int:
    """Keys 1000x: the columns of a row that fit at a time."""
    return (device.ub_bytes - INDEX_BYTES) // size


def cut_of(hidden: int, size: int, device: Device) -> Cut:
    """Return the blocks of key 20012; nothing if none fits."""
    main = align_down((device.ub_bytes - CUT_RESERVED_BYTES) // ROW_BUFFERS, VECTOR_LANES) // size
    if main <= 1 or hidden < main:
        return NO_TILING.cut
    main_blocks = largest_power(hidden // main)
    behind, added = hidden - main * main_blocks, main // 2
    blocks = 2 * (behind // main)
    tail = behind - blocks * added
    return Cut(main, main_blocks, added, blocks, tail, int(tail > 0) + int(tail > added))


def tile(problem: Problem, device: Device, rules: Any) -> Tiling:
    """Plan one call.

    0 entries plan as in the product. ``status`` is 1 (the product's 561002) without cores, with
    probs without columns, and on a chip whose Unified Buffer is too small for one block.
    """
    entries, hidden, size = problem.entries, problem.hidden, element_bytes(problem.dtype)
    cores = device.vector_cores
    if cores <= 0 or (problem.has_probs == 1 and hidden <= 0):
        return NO_TILING
    core_entries, longer_cores = entries // cores, entries % cores
    block_dim = cores if core_entries > 0 else longer_cores
    piece_columns = pieces = last_columns = padded_hidden = 0
    cut, main_sum, added_sum = NO_TILING.cut, NO_TILING.main_sum, NO_TILING.added_sum
    if problem.has_probs == 0:
        piece_columns = columns_of_copies(size, device)
        if piece_columns <= 0:
            return NO_TILING
        key = KEY_COPY
        if hidden > piece_columns:
            key = KEY_COPY_PIECES
            pieces, last_columns = hidden // piece_columns, hidden % piece_columns
    elif holds_row(hidden, size, device):
        key, padded_hidden = KEY_WHOLE, align(hidden * size, BLOCK_BYTES) // size
        main_sum = binary_sum(hidden)
    else:
        key, cut = KEY_CUT, cut_of(hidden, size, device)
        if cut.main_columns == 0:
            return NO_TILING
        main_sum, added_sum = binary_sum(cut.main_columns), binary_sum(cut.columns)
    return Tiling(
        status=SUCCESS,
        tiling_key=key,
        block_dim=block_dim,
        workspace_bytes=SYSTEM_WORKSPACE_BYTES,
        core_entries=core_entries,
        longer_cores=longer_cores,
        top_k=problem.top_k,
        hidden=hidden,
        entries=entries,
        piece_columns=piece_columns,
        pieces=pieces,
        last_columns=last_columns,
        padded_hidden=padded_hidden,
        cut=cut,
        main_sum=main_sum,
        added_sum=added_sum,
    )


def core_range(tiling: Tiling, core: int) -> Range:
    """Return the half-open range of entries that a core takes."""
    return even_range(core, tiling.core_entries, tiling.longer_cores)


def vendor_structure(tiling: Tiling, arguments: Mapping[str, Any], rules: Any) -> Raw:
    """Return the tiling data under the vendor's names: each key has its own structure."""
    base = {
        "initOutNeedCoreNum": tiling.block_dim,
        "initOutEachCoreBatchNum": tiling.core_entries,
        "initOutModCoreNum": tiling.longer_cores,
        "computeNeedCoreNum": tiling.block_dim,
        "computeEachCoreBatchNum": tiling.core_entries,
        "computeModCoreNum": tiling.longer_cores,
        "dropPadMode": 0,
        "topK": tiling.top_k,
        "hidden": tiling.hidden,
        "expandedXDim0": tiling.entries,
    }
    if tiling.tiling_key in (KEY_COPY, KEY_COPY_PIECES):
        return {
            **base,
            "hiddenPrePart": tiling.piece_columns,
            "hiddenInnerLoops": tiling.pieces,
            "hiddenLastPart": tiling.last_columns,
            "tilingKey": tiling.tiling_key,
        }
    main = vendor_fields(tiling.main_sum)
    if tiling.tiling_key == KEY_WHOLE:
        return {"baseParams": base, "hAlign": tiling.padded_hidden, "binAddParams": main}
    return {
        "baseParams": base,
        **vendor_fields(tiling.cut),
        "mainBinAddParams": main,
        "foldBinAddParams": vendor_fields(tiling.added_sum),
    }


def problem_of(inputs: Raw, rules: Any) -> Problem | None:
    """Return the problem of the raw planner's inputs."""
    grad, indices = inputs["unpermuted_tokens_grad_shape"], inputs["sorted_indices_shape"]
    probs, result = inputs["probs_shape"], inputs["permuted_tokens_grad_shape"]
    if inputs["sorted_indices_dtype"] != "int32" or len(grad) != 2 or len(indices) != 1:
        return None
    (tokens, hidden), entries = grad, indices[0]
    if len(result) not in (2, 3) or list(result[:2]) != [entries, hidden]:
        return None
    if probs is None and tokens != entries:
        return None
    if probs is not None and not _probs_agree(inputs, tokens, hidden, entries):
        return None
    top_k = 1 if probs is None else probs[1]
    return Problem(entries, top_k, hidden, DTYPE_CODES[inputs["dtype"]], int(probs is not None))


def _probs_agree(inputs: dict[str, Any], tokens: int, hidden: int, entries: int) -> bool:
    """Return whether permuted_tokens, probs and its gradient agree with the other tensors."""
    if inputs["permuted_tokens_shape"] != [entries, hidden]:
        return False
    dtypes = (
        inputs.get("permuted_tokens_dtype", inputs["dtype"]) == inputs["dtype"]
        and inputs.get("probs_grad_dtype", inputs["probs_dtype"]) == inputs["probs_dtype"]
    )
    shapes = (inputs["probs_shape"], inputs["probs_grad_shape"])
    return dtypes and all(
        len(shape) == 2 and shape[0] == tokens and shape[0] * shape[1] == entries
        for shape in shapes
    )


KERNELS = {"moe_finalize_routing_v2_grad": raw_planner(problem_of, tile, vendor_structure)}


Buffers = namedtuple(
    "Buffers", ("gradient", "tokens", "result", "indices", "sums", "slots", "register_sums")
)
"""Bytes in the Unified Buffer of one core; 0 for buffers not in use."""


def buffers(tiling: Tiling, size: int) -> Buffers:
    """Return the bytes in the Unified Buffer of one core (page, "Unified Buffer")."""
    if tiling.tiling_key in (KEY_COPY, KEY_COPY_PIECES):
        return Buffers(
            gradient=tiling.piece_columns * size,
            tokens=0,
            result=0,
            indices=INDEX_BYTES,
            sums=0,
            slots=0,
            register_sums=0,
        )
    if tiling.tiling_key == KEY_WHOLE:
        row = 2 * tiling.padded_hidden * size
        return Buffers(
            gradient=row,
            tokens=row,
            result=row,
            indices=0,
            sums=2 * SUM_BYTES,
            slots=0,
            register_sums=register_sum_bytes(tiling.hidden),
        )
    row = 2 * tiling.cut.main_columns * size
    return Buffers(
        gradient=row,
        tokens=row,
        result=row,
        indices=0,
        sums=SUM_BYTES,
        slots=SLOT_BYTES,
        register_sums=REGISTER_SUM_BYTES,
    )


def used_bytes(row: Any, tiling: Tiling, device: Device, rules: Any) -> int:
    """Return the Unified Buffer in use on a core."""
    return sum(buffers(tiling, element_bytes(row.dtype)))

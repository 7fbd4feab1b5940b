"""How MoeTokenPermute spreads the copies of its rows over cores, groups of tokens and pieces of rows.

Source: specification page ``moe_token_permute``, "indexCopyComputeParamsOp, moving rows". Where the product divides by 0, the result is 0.
"""

from typing import Annotated, NamedTuple

from npu_sim.tiling.fields import Field, Part
from npu_sim.tiling.integers import align, align_down, ceil_div

BLOCK_BYTES = 32
"""Rows lie in the Unified Buffer on multiples of this."""
POSITION_BYTES = 4
"""An entry of sortedIndices."""
TOKEN_POSITION_BYTES = 8
"""Unified Buffer counted for every position of a token, beside its rows."""
ROW_BUFFERS = 2
SPLIT_POSITIONS_BYTES = 2048
"""Unified Buffer for positions while rows are split; whole rows leave as much."""
SPLIT_POSITIONS = SPLIT_POSITIONS_BYTES // POSITION_BYTES
MOST_ROWS = 4095
"""Rows of one copy; met only by rows without columns."""
PIECE_STEP_BYTES = 512
"""Pieces of a row are a multiple of this."""
LEAST_SPLIT_BYTES = SPLIT_POSITIONS_BYTES + ROW_BUFFERS * PIECE_STEP_BYTES
"""Unified Buffer that split rows need at least."""


class CoreLoops(NamedTuple):
    """How the tokens of a core pass: groups whose positions are loaded together, and in each so many rows at a time."""

    groups: Annotated[int, Field("groups of tokens", "num_tokens", vendor="CoreLoop")]
    last_tokens: Annotated[
        int,
        Field("tokens of the last group", "max(num_tokens, ub_bytes)", vendor="CoreLastTokenNums"),
    ]
    last_copies: Annotated[
        int,
        Field(
            "copies in the last group",
            "max(num_tokens, ub_bytes)",
            vendor="LastonceIndicesTokenMoveTimes",
        ),
    ]
    last_rows: Annotated[
        int,
        Field(
            "rows of the last copy", "max(num_tokens, ub_bytes)", vendor="LastIndicesLastTokenNums"
        ),
    ]


class Copies(NamedTuple):
    """Cores that move rows, the front ones a token more than the tail ones, and what passes their buffers at a time."""

    cores: Annotated[int, Field("cores that move rows", "vector_cores", vendor="needCoreNum")]
    front_cores: Annotated[
        int, Field("cores with the longer share of tokens", "vector_cores", vendor="frontCoreNum")
    ]
    tail_cores: Annotated[
        int, Field("cores with the shorter share of tokens", "vector_cores", vendor="tailCoreNum")
    ]
    front_tokens: Annotated[
        int, Field("tokens of a front core", "num_tokens", vendor="coreCalcNum")
    ]
    tail_tokens: Annotated[int, Field("tokens of a tail core", "num_tokens", vendor="coreCalcTail")]
    row_bytes: Annotated[int, Field("bytes of a row", vendor="oneTokenBtypeSize")]
    group_copies: Annotated[
        int, Field("copies of rows in a group", "ub_bytes", vendor="onceIndicesTokenMoveTimes")
    ]
    copy_rows: Annotated[int, Field("rows of one copy", str(MOST_ROWS), vendor="onceUbTokenNums")]
    group_tokens: Annotated[
        int,
        Field(
            "tokens whose positions are loaded together", "ub_bytes", vendor="onceIndicesTokenNums"
        ),
    ]
    group_positions: Annotated[int, Field("their positions", "ub_bytes", vendor="onceIndices")]
    last_piece: Annotated[
        int,
        Field(
            "elements of a row's last piece; 1 for whole rows",
            "ub_bytes",
            vendor="oneTokenlastMove",
        ),
    ]
    piece: Annotated[
        int,
        Field(
            "elements of a piece of a row; 1 for whole rows", "ub_bytes", vendor="oneTokenOnceMove"
        ),
    ]
    pieces: Annotated[int, Field("pieces of a row", "hidden", vendor="oneTokenMoveTimes")]
    front: Annotated[CoreLoops, Part("front{}", " of a front core")]
    tail: Annotated[CoreLoops, Part("tail{}", " of a tail core")]
    kept_rows: Annotated[
        int, Field("rows of permuted_tokens", "num_tokens * num_topk", vendor="numOutTokens")
    ]
    row_buffer_bytes: Annotated[
        int, Field("bytes of one of the two row buffers", "ub_bytes", vendor="tokenUB")
    ]
    position_buffer_bytes: Annotated[
        int, Field("bytes of the buffer of positions", "ub_bytes", vendor="indicesUB")
    ]


def quotient(a: int, b: int) -> int:
    """Return a // b, 0 where b is."""
    return a // b if b else 0


def quotient_up(a: int, b: int) -> int:
    """Return a / b rounded up, 0 where b is 0."""
    return ceil_div(a, b) if b else 0


def aligned_row_bytes(row_bytes: int) -> int:
    """Return the bytes of a row in the Unified Buffer."""
    return align(row_bytes, BLOCK_BYTES)


def moves_whole_rows(row_bytes: int, ub_bytes: int) -> bool:
    """Whether two rows fit beside the least positions; longer rows are split into pieces."""
    return ROW_BUFFERS * aligned_row_bytes(row_bytes) <= ub_bytes - SPLIT_POSITIONS_BYTES


def most_topk(row_bytes: int, ub_bytes: int) -> int:
    """Positions of a token that fit beside two of its rows, in a plan with whole rows."""
    return (ub_bytes - ROW_BUFFERS * aligned_row_bytes(row_bytes)) // TOKEN_POSITION_BYTES


def split_core(tokens: int, group_tokens: int, copy_rows: int) -> CoreLoops:
    """Split the tokens of a core."""
    groups = quotient_up(tokens, group_tokens)
    last_tokens = tokens - (groups - 1) * group_tokens
    last_copies = quotient_up(last_tokens, copy_rows)
    return CoreLoops(groups, last_tokens, last_copies, last_tokens - (last_copies - 1) * copy_rows)


def split_copies(
    tokens: int,
    top_k: int,
    columns: int,
    element_bytes: int,
    kept_rows: int,
    cores: int,
    ub_bytes: int,
    position_bytes: int,
) -> Copies:
    """Spread the copies of rows.

    Parameters
    ----------
    tokens, top_k, columns, kept_rows
        Sizes of the call; ``kept_rows`` is the first axis of permutedTokens.
    element_bytes
        Bytes of an element of tokens.
    cores, ub_bytes
        Vector cores, and the Unified Buffer of one; both above 0.
    position_bytes
        Bytes that a release counts for a position in the buffer of whole rows: 1 or 4 (page, "Releases").
    """
    row_bytes = columns * element_bytes
    aligned = aligned_row_bytes(row_bytes)
    if moves_whole_rows(row_bytes, ub_bytes):
        copy_rows = min(
            quotient(ub_bytes, ROW_BUFFERS * aligned + TOKEN_POSITION_BYTES * top_k), MOST_ROWS
        )
        group_copies = quotient(
            ub_bytes - ROW_BUFFERS * copy_rows * aligned, POSITION_BYTES * copy_rows * top_k
        )
        group_tokens = copy_rows * group_copies
        row_buffer_bytes = copy_rows * aligned
        position_buffer_bytes = align(position_bytes * group_tokens * top_k, BLOCK_BYTES)
        piece, pieces, last_piece = 1, 1, 1
    else:
        copy_rows, group_copies, group_tokens = 1, 1, quotient(SPLIT_POSITIONS, top_k)
        piece = (
            align_down((ub_bytes - SPLIT_POSITIONS_BYTES) // ROW_BUFFERS, PIECE_STEP_BYTES)
            // element_bytes
        )
        pieces = quotient_up(columns, piece)
        last_piece = columns - (pieces - 1) * piece
        row_buffer_bytes, position_buffer_bytes = piece * element_bytes, SPLIT_POSITIONS_BYTES
    front_tokens, tail_tokens = ceil_div(tokens, cores), tokens // cores
    front_cores = tokens % cores or cores
    tail_cores = 0 if tokens <= cores else cores - front_cores
    return Copies(
        cores=front_cores + tail_cores,
        front_cores=front_cores,
        tail_cores=tail_cores,
        front_tokens=front_tokens,
        tail_tokens=tail_tokens,
        row_bytes=row_bytes,
        group_copies=group_copies,
        copy_rows=copy_rows,
        group_tokens=group_tokens,
        group_positions=group_tokens * top_k,
        last_piece=last_piece,
        piece=piece,
        pieces=pieces,
        front=split_core(front_tokens, group_tokens, copy_rows),
        tail=split_core(tail_tokens, group_tokens, copy_rows),
        kept_rows=kept_rows,
        row_buffer_bytes=row_buffer_bytes,
        position_buffer_bytes=position_buffer_bytes,
    )


def token_range(copies: Copies, core: int) -> tuple[int, int]:
    """Return the half-open range of tokens that a core moves."""
    first = core * copies.front_tokens - max(core - copies.front_cores, 0) * (
        copies.front_tokens - copies.tail_tokens
    )
    return first, first + (copies.front_tokens if core < copies.front_cores else copies.tail_tokens)

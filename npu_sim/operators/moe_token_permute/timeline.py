"""Timeline of MoeTokenPermute: work of the cores and descriptions of tiles.

Source: specification page ``moe_token_permute``, "Instructions and copies, for the timeline". The
dropped copies depend on the data. Every core is assumed to keep at most an even part of the kept
copies, so the bound holds for any data.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from npu_sim.framework.vocabulary import Plan, TensorSpec, Text, align, ceil_div
from npu_sim.tiling.moe_token_permute import (
    ENTRY_BYTES,
    MERGE_ENTRIES,
    MERGE_WAYS,
    POSITION_BYTES,
    ROW_BUFFERS,
    SORT_ENTRIES,
    aligned_row_bytes,
    merge_rounds,
)
from npu_sim.timelines import (
    VECTOR_PIPES,
    Copy,
    Hold,
    Instruction,
    Loop,
    Nodes,
    Phase,
    Program,
    Step,
    View,
    Work,
    Works,
    fp32,
    ranged,
    vector_phase,
    vector_tile,
)

REPEAT = 64
"""fp32 or int32 elements of one repeat of an instruction."""
BLOCK = 8
"""fp32 or int32 elements of a 32-byte block."""
NOT_COUNTED = (
    "positions that a library call counts up (one-core sort), "
    "and places extracted from sorted entries",
    "the place of every copy, read and compared as a scalar",
)
Cores = dict[int, Nodes]
SORTING = ("ids", "positions", "result", "sorted")
PIECES_MERGED = Step(
    "merge", "entries {entries}: up to four sorted pieces of this core are merged", live=SORTING
)
LISTS_MERGED = replace(
    PIECES_MERGED, says="entries {entries}: sorted lists of up to four cores are merged"
)


@dataclass(frozen=True)
class Keys:
    """What is sorted: expert ids, then the resulting order, which gives the places."""

    name: str
    caption: str
    dtype: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()

    def copy(self, entries: int) -> tuple[Copy, ...]:
        """Return the copy of so many keys."""
        return (Copy(TensorSpec((), self.dtype).itemsize * entries, entries),)


def program(plan: Plan) -> Program:
    """Return the work of every core: sort the ids, sort the resulting order, move the rows."""
    sort, ids = plan.tiling["vbsComputeParamsOp"], TensorSpec.parse(plan.arguments["indices"])
    core_ids = [work.ranges["ids"] for work in plan.cores if "ids" in work.ranges]
    at_once = sort["needCoreNum"] == 1 and sort["perCoreLoops"] == 1
    phases: list[Phase] = []
    for keys in (
        Keys("ids", "ids", ids.dtype, ("indices",)),
        Keys("order", "places that the first sort has left", "int32", writes=("sorted_indices",)),
    ):
        phases += (
            [_sort_at_once(ids.numel, keys)] if at_once else _sort_in_pieces(sort, core_ids, keys)
        )
    is_dropping = plan.tiling["indexCopyComputeParamsOp"]["numOutTokens"] < ids.numel
    return Program(
        (*phases, _move_rows(plan)),
        NOT_COUNTED,
        ("dropped copies are spread evenly over the cores",) if is_dropping else (),
        views=_views(plan),
    )


def _views(plan: Plan) -> tuple[View, ...]:
    tokens, top_k, columns = plan.tiling["n"], plan.tiling["topK"], plan.tiling["cols"]
    kept_rows = plan.tiling["indexCopyComputeParamsOp"]["numOutTokens"]
    entries = {"tokens": top_k, "rows": top_k, "ids": 1}
    return (
        View("tokens", tokens, columns, {"tokens": 1, "rows": 1}, {"columns": 1}),
        View("indices", tokens * top_k, by_row={"ids": 1}),
        View("sorted_indices", tokens * top_k, by_row=entries),
        View("permuted_tokens", kept_rows, columns, by_column={"columns": 1}),
    )


def _scores(entries: int, dtype: str, cast: int, negated: int) -> Works:
    """Return the conversion to fp32, the negation, and the fill of unused sort lanes."""
    kind = "cast_int32_float32" if dtype == "int32" else "cast_to_or_from_int64"
    scores = Instruction(kind, dtype, cast), fp32.combine_scalar(negated)
    if entries % SORT_ENTRIES:
        return (*scores, fp32.fill(REPEAT))
    return scores


def _ordered(entries: int) -> Work:
    """Return sorting or merging, whose rate is not published."""
    return Instruction("sort_and_merge", "float32", entries)


def _sort_at_once(entries: int, keys: Keys) -> Phase:
    """Return the phase that sorts in one piece on core 0."""
    counted = align(entries, BLOCK)
    tile = vector_tile(
        keys.copy(entries),
        (*_scores(entries, keys.dtype, counted, counted), _ordered(align(entries, SORT_ENTRIES))),
        (Copy(POSITION_BYTES * entries, entries),),
        Step(
            "",
            Text("all {keys} become fp32 times -1 and are sorted in one piece", keys=keys.caption),
            keys.reads,
            keys.writes,
            live=SORTING,
        ),
    )
    return vector_phase(Text("sort {what}", what=keys.name), {0: (tile,)}, memory="sort")


def _sort_in_pieces(
    sort: Mapping[str, Any], core_ids: Sequence[tuple[int, int]], keys: Keys
) -> list[Phase]:
    """Return the phases: cores sort and merge pieces, neighbours merge, core 0 merges the rest."""
    cores: Cores = {}
    for core, (start, stop) in enumerate(core_ids):
        piece = sort[
            "lastCorePerLoopElements" if core == len(core_ids) - 1 else "perCorePerLoopElements"
        ]
        cores[core] = _sorted_pieces(start, stop, piece, keys)
    phases = [vector_phase(Text("sort {what}", what=keys.name), cores, memory="sort")]
    lists = [stop - start for start, stop in core_ids]
    while len(lists) > MERGE_WAYS:
        lists = [
            sum(lists[first : first + MERGE_WAYS]) for first in range(0, len(lists), MERGE_WAYS)
        ]
        merging: Cores = {
            core: _merged(entries, ENTRY_BYTES, LISTS_MERGED) for core, entries in enumerate(lists)
        }
        phases.append(vector_phase(Text("merge {what}", what=keys.name), merging, memory="sort"))
    step = Step(
        "merge",
        "entries {entries}: the last lists are merged, positions are copied out",
        (),
        keys.writes,
        live=SORTING,
        by_data=keys.writes,
    )
    last = {0: _merged(sum(lists), POSITION_BYTES, step)}
    return [*phases, vector_phase(Text("merge last {what}", what=keys.name), last, memory="sort")]


def _sorted_pieces(start: int, stop: int, piece: int, keys: Keys) -> Nodes:
    """Return the work of one core: positions, sorted pieces, rounds of merging."""
    next_piece = Instruction("adds_muls_maxs_mins", "int32", piece)
    step = Step(
        "piece",
        Text(
            "{keys} {{ids}} become fp32 times -1 and are sorted, with their positions",
            keys=keys.caption,
        ),
        keys.reads,
        live=SORTING,
    )

    def sorted_piece(entries: int, moves_on: bool) -> Nodes:
        scores = _scores(entries, keys.dtype, entries, align(entries, SORT_ENTRIES))
        vector = (*scores, _ordered(entries))
        if moves_on:
            vector = (*vector, next_piece)
        copy_out = (Copy(ENTRY_BYTES * entries, entries),)
        return (vector_tile(keys.copy(entries), vector, copy_out, step),)

    loops = ceil_div(stop - start, piece)
    last = start + (loops - 1) * piece
    rounds = Loop(_merged(stop - start, ENTRY_BYTES, PIECES_MERGED), merge_rounds(loops))
    positions = vector_tile(
        vector=_positions(piece),
        step=Step("positions", "positions are counted up", live=("positions",)),
    )
    others = ranged("ids", start, last, piece, partial(sorted_piece, moves_on=True))
    final = ranged("ids", last, stop, piece, partial(sorted_piece, moves_on=False))
    return positions, *others, *final, rounds


def _positions(entries: int) -> Works:
    """Return the generation of positions: within a repeat, then repeat after repeat."""
    times = (
        max(ceil_div(entries, BLOCK) - 1, 0)
        if entries <= REPEAT
        else BLOCK - 1 + entries // REPEAT - 1 + (entries % REPEAT > 0)
    )
    return (Instruction("adds_muls_maxs_mins", "int32", REPEAT, times),)


def _merged(entries: int, out_bytes: int, step: Step) -> Nodes:
    """Return one round of merging in steps of the buffer size."""

    def piece(count: int) -> Nodes:
        copy_in, out = (Copy(ENTRY_BYTES * count, count),), (Copy(out_bytes * count, count),)
        return (vector_tile(copy_in, (_ordered(count),), out, step),)

    return ranged("entries", 0, entries, MERGE_ENTRIES, piece)


def _move_rows(plan: Plan) -> Phase:
    """Return the phase that copies rows: each is copied in once and copied out once per place."""
    copies = plan.tiling["indexCopyComputeParamsOp"]
    rows, top_k = _row_tiles(plan, copies), plan.tiling["topK"]
    drops = copies["numOutTokens"] < plan.tiling["n"] * top_k
    rows_per_core = ceil_div(copies["numOutTokens"], copies["needCoreNum"])

    def group(tokens: int, copies_per_row: int) -> Nodes:
        return vector_tile(
            (Copy(POSITION_BYTES * top_k * tokens, top_k * tokens),),
            step=Step(
                "places",
                "tokens {tokens}: where each of their copies goes",
                ("sorted_indices",),
                live=("places",),
            ),
        ), *ranged(
            "rows",
            0,
            tokens,
            copies["onceUbTokenNums"],
            lambda count: rows(count, copies_per_row * count),
        )

    cores: Cores = {}
    for work in plan.cores:
        start, stop = work.ranges["tokens"]
        if start < stop:
            copies_of_core = (stop - start) * top_k
            copies_per_row, others = divmod(
                min(rows_per_core, copies_of_core) if drops else copies_of_core, stop - start
            )
            # Every row is copied out ``copies_per_row`` times; remaining copies are counted first.
            first = rows(0, others) if others else ()
            body = partial(group, copies_per_row=copies_per_row)
            groups = ranged("tokens", start, stop, copies["onceIndicesTokenNums"], body)
            cores[work.core] = (*first, *groups)
    held = (Hold(VECTOR_PIPES.index("MTE2"), VECTOR_PIPES.index("MTE3"), ROW_BUFFERS),)
    return Phase("move rows", VECTOR_PIPES, held, cores)


def _row_tiles(plan: Plan, copies: Mapping[str, Any]) -> Callable[[int, int], Nodes]:
    """Return the function from rows in and copies out to tiles."""
    columns, row_bytes = plan.tiling["cols"], copies["oneTokenBtypeSize"]
    tokens = TensorSpec.parse(plan.arguments["tokens"])
    permuted_bytes = copies["numOutTokens"] * row_bytes

    def piece(width: int, rows: int, copies_out: int) -> Nodes:
        width_bytes = tokens.itemsize * width
        read_bytes = aligned_row_bytes(row_bytes) if width == columns else width_bytes
        read = Copy(read_bytes * rows, width * rows, tensor_bytes=tokens.nbytes)
        written = Copy(width_bytes, width, copies_out, tensor_bytes=permuted_bytes)
        return (
            vector_tile(
                (read,) if rows else (),
                (),
                (written,) if copies_out else (),
                Step(
                    "rows",
                    "rows {rows} of these tokens, columns {columns}: "
                    "in once, and out once for every expert of the token",
                    ("tokens",),
                    ("permuted_tokens",),
                    ("sorted_indices",),
                    ("rows", "places"),
                    ("permuted_tokens",),
                ),
            ),
        )

    if copies["oneTokenMoveTimes"] == 1:
        return partial(piece, columns)
    return lambda rows, copies_out: ranged(
        "columns",
        0,
        columns,
        copies["oneTokenOnceMove"],
        lambda width: piece(width, rows, copies_out),
    )

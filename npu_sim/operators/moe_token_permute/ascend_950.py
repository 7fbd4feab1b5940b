"""MoeTokenPermute on Ascend 950: int8 tokens too, own planners and kernels.

Rates of vector instructions are not published for this product: the bound is that of the copies.
Int8 tokens leave out ids beyond the experts.

Source: specification page ``moe_token_permute_950``.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    FLOAT_DTYPES,
    SYSTEM_WORKSPACE_BYTES,
    TILING_FAILURE,
    Argument,
    Assumed,
    Case,
    Caveat,
    Condition,
    Decision,
    Description,
    Evidence,
    Inspection,
    Launch,
    Plan,
    Result,
    Run,
    TensorSpec,
    Text,
    Word,
    WorkspacePart,
    caveat,
    ceil_div,
    checks,
    chunk_range,
    decision,
    intermediate,
    kernel_parts,
    ub_memory,
    vector_plan,
)
from npu_sim.operators.moe_token_permute import compute as common
from npu_sim.operators.moe_token_permute import declaration
from npu_sim.operators.moe_token_permute.plan import KEPT, orders_of
from npu_sim.operators.shared.launches import Executor
from npu_sim.operators.shared.study import LastWrites, StudyCall
from npu_sim.operators.shared.token_sums import check_padding
from npu_sim.tiling.ascend_950 import moe_token_permute as tiler
from npu_sim.tiling.moe_token_permute import MOST_TOPK
from npu_sim.timelines import (
    Copy,
    Instruction,
    Node,
    Program,
    Step,
    View,
    fp32,
    ranged_cores,
    vector_phase,
    vector_tile,
)

KERNEL, INT8_KERNEL = "MoeInitRoutingV2", "MoeInitRoutingV3"
COUNT_ITEMS = 10240
"""Elements of the tensor of counts that the int8 kernel has (page, "Launches, V3")."""

ONE_CORE = Condition(
    "one-core sort",
    "ids <= what a core sorts at a time",
    lambda row, device, rules: row.num_tokens * row.num_topk <= tiler.most_entries(row, device),
    "core 0 alone sorts while all others wait",
    "pieces are sorted on several cores and merged, four lists at a time",
    ("num_tokens",),
)
SCATTER = Condition(
    "rows are scattered",
    Text(
        "rows are whole blocks, 2 fit half the Unified Buffer, num_topk <= {most}",
        most=tiler.MOST_SCATTERED,
    ),
    lambda row, device, rules: tiler.scatters(row, device),
    "every core writes consecutive rows, each fetched from its token",
    "every core reads its tokens once and writes each row to its places",
    ("num_topk", "hidden"),
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    row, tiling = case.row, case.tiling
    is_int8 = row.dtype == tiler.INT8
    kernel_bytes = tiling.workspace_bytes - SYSTEM_WORKSPACE_BYTES
    parts = kernel_parts(case, {"sort": kernel_bytes} if kernel_bytes else {})
    size = ceil_div(row.entries, tiling.block_dim)
    stages = tiler.stage_buffers(row, tiling)._asdict().items()
    return vector_plan(
        case,
        path=_path(case),
        memories=lambda: [ub_memory(case, {stage: used}, stage) for stage, used in stages if used],
        ranges=[chunk_range(core, size, row.entries) for core in range(tiling.block_dim)],
        unit="row",
        kernel=INT8_KERNEL if is_int8 else KERNEL,
        conditions=lambda: _decisions(case),
        fields=tiler.vendor_structure(tiling, case.arguments, case.rules),
        workspace=parts,
        launches=_int8_launches(case, parts) if is_int8 else None,
        order=orders_of(ROW_OVERWRITTEN if _reuses_buffer(case) else ""),
        caveats=_caveats(case),
        evidence=Evidence.MODEL if is_int8 else None,
    )


def _decisions(case: Case) -> Iterator[Decision]:
    row, tiling = case.row, case.tiling
    if tiling.tiling_key != tiler.KEY_V3_EMPTY:
        ids = {"ids": row.entries, "what a core sorts at a time": tiling.sort.most_entries}
        yield decision(case, ONE_CORE, **ids)
    if row.dtype != tiler.INT8:
        yield decision(case, SCATTER, num_topk=row.num_topk)
    yield decision(case, KEPT, **{"rows of permuted_tokens": row.kept_rows, "ids": row.entries})


def _path(case: Case) -> str:
    key, one_core = case.tiling.tiling_key, (tiler.KEY_ONE_CORE, tiler.KEY_V3_ONE_CORE)
    if key == tiler.KEY_V3_EMPTY:
        return "no columns"
    return Text(
        "{sort} sort, {manner} rows",
        sort="one-core" if key in one_core else "multi-core",
        manner=Text("scattered") if case.tiling.moves.scatters else Text("gathered"),
    )


def _int8_launches(case: Case, parts: tuple[WorkspacePart, ...]) -> tuple[Launch, ...]:
    """Return the launches of int8 tokens (page, "Launches, V3")."""
    entries, columns = case.row.entries, case.row.hidden
    executor = Executor(case)
    tokens, indices = (
        executor.contiguous(name, case.specs[name]) for name in ("tokens", "indices")
    )
    ids = executor.cast(indices, "indices as int32", "int32")
    rows = intermediate("all rows", (entries, columns), "int8")
    places = intermediate("all places", (entries,), "int32")
    return (
        *executor.launches,
        Launch(
            kernel=INT8_KERNEL,
            inputs=(tokens, ids),
            outputs=(
                rows,
                places,
                intermediate("counts", (COUNT_ITEMS,), "int64"),
                intermediate("scales, never written", (entries,), "float32"),
            ),
            block_dim=case.tiling.block_dim,
            workspace=parts,
        ),
        Launch(kernel="Slice", inputs=(rows,), outputs=(case.tensor("permuted_tokens"),)),
        Launch(kernel="Slice", inputs=(places,), outputs=(case.tensor("sorted_indices"),)),
    )


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings")."""
    row, tiling, moves = case.row, case.tiling, case.tiling.moves
    if moves.core_loops != moves.last_loops and not moves.scatters:
        yield caveat(
            "gather_loops_swapped",
            "permuted_tokens",
            "the kernel swaps the number of loops of the last core, {last}, and that of the "
            "others, {others}: rows are never written, and the last core reads and writes "
            "beyond its range; the simulator gives the intended rows. Read in the public "
            "sources; not run on a device",
            last=moves.last_loops,
            others=moves.core_loops,
            not_modelled="permuted_tokens",
            since="9.1",
        )
    usable, sort = tiler.usable_bytes(row, case.device), tiler.stage_buffers(row, tiling).sort
    if row.dtype != tiler.INT8 and sort > usable:
        yield caveat(
            "sort_beyond_local_memory",
            "indices",
            "the sort uses {sort} bytes of the {usable} set as local memory: the rest lies in "
            "the threads' cache, the effect is not known. Read in the public sources; not run "
            "on a device",
            sort=sort,
            usable=usable,
            not_modelled="*",
            since="9.1",
        )
    if _reuses_buffer(case):
        yield caveat(
            "scatter_reuses_row_buffer",
            "permuted_tokens",
            "a race: no wait is visible between the copy out of a row buffer and the next fetch "
            "into it, so a row can hold, in part, the row that its core fetches two rounds later; "
            "the simulator computes as if there were a wait. Read in the public sources; not run "
            "on a device",
            since="9.1",
            until="release 9.2",
        )


ROW_OVERWRITTEN = "scatter_reuses_row_buffer"


def _rounds(case: Case) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Yield every core that scatters, with the rows of each of its rounds of fetches."""
    moves = case.tiling.moves
    for core in range(moves.cores):
        first, count = core * moves.core_rows, moves.core_rows
        count = moves.last_rows if core == moves.cores - 1 else count
        starts = (
            (start, min(start + moves.core_at_once, count))
            for start in range(0, count, moves.core_at_once)
        )
        yield (
            core,
            [
                (first + start, first + min(start + moves.piece, stop))
                for begin, stop in starts
                for start in range(begin, stop, moves.piece)
            ],
        )


def _reuses_buffer(case: Case) -> bool:
    """Return whether a row buffer is fetched into again while its copy out may not be done."""
    row, moves = case.row, case.tiling.moves
    return bool(
        case.rules.reuses_row_buffer
        and row.dtype != tiler.INT8
        and moves.scatters
        and moves.cores
        and moves.core_rows > 2 * min(moves.piece, moves.core_at_once)
    )


def _overwriting_rows(case: Case) -> np.ndarray:
    """Return, for every row of permuted_tokens, the row that can overwrite it; -1 for none."""
    overwriting = np.full(case.row.kept_rows, -1, np.int64)
    for _, rounds in _rounds(case) if _reuses_buffer(case) else ():
        for (start, stop), (later, end) in zip(rounds, rounds[2:], strict=False):
            count = min(stop - start, end - later)
            overwriting[start : start + count] = np.arange(later, later + count)
    return overwriting


def writes(call: StudyCall, result: Result, output: str) -> Iterator[LastWrites]:
    """Yield the rows that a race can overwrite, with what they can hold."""
    rows, overwriting = result.outputs[output], _overwriting_rows(call.case)
    names = Text("its own row"), Text("the row that its core fetches two rounds later")
    for row in np.flatnonzero(result.order_dependent[output].mask).tolist():
        core = row // call.case.tiling.moves.core_rows
        yield LastWrites((row,), rows[[row, overwriting[row]]], (core, core), names)


def compute(run: Run) -> None:
    """Sort the ids and copy the rows; with int8 tokens only ids from 0 to 10239 take part."""
    if run.case.row.dtype == tiler.INT8:
        _compute_int8(run)
    else:
        common.compute(run)
    if _reuses_buffer(run.case):
        run.masks["permuted_tokens"] = lambda: _overwriting_rows(run.case) >= 0
        run.races["permuted_tokens"] = ROW_OVERWRITTEN


def _compute_int8(run: Run) -> None:
    """Copy the rows of the valid ids; the others have place -1, and rows without one stay 0."""
    with run.watch.stage("check"):
        if run.case.limits == "documented":
            common.check_ids(run.tensors["indices"])
    with run.watch.stage("load"):
        from npu_sim.kernels.moe_token_permute import sort_ids
    with run.watch.stage("compute"):
        ids = run.stored("indices").reshape(-1)
        places, permuted = run.written("sorted_indices"), run.written("permuted_tokens")
        permuted.fill(0)
        if not run.case.row.hidden:
            places.fill(0)
            return
        (valid,) = np.nonzero((ids >= 0) & (ids < tiler.EXPERTS))
        positions = np.empty(valid.size, np.int32)
        sort_ids(ids[valid], positions)
        places.fill(-1)
        places[valid] = positions
        entries = np.empty_like(valid)
        entries[positions] = valid
        kept = entries[: len(permuted)]
        permuted[: kept.size] = run.stored("tokens")[kept // run.case.row.num_topk]
    if valid.size < ids.size:
        run.caveats += (
            caveat(
                "rows_not_written",
                "indices",
                "{missing} ids are outside 0..{last}: their place is -1 and their rows are never "
                "written, the memory keeps what it held (here 0). Read in the public sources; not "
                "run on a device",
                missing=ids.size - valid.size,
                last=tiler.EXPERTS - 1,
            ),
        )


NOT_COUNTED = ("the threads that write places", "barriers")
"""Work that the bound leaves out."""
IDS = Step(
    "ids", "ids are copied in and sorted; their places are copied out", ("indices",), live=("sort",)
)
ROWS = Step(
    "rows",
    "entries {rows}: rows of tokens are copied to their places",
    ("tokens",),
    ("permuted_tokens",),
    live=("move",),
)


def program(plan: Plan) -> Program:
    """Return the copies of every core, in a phase that sorts ids and one that moves rows.

    Each token is read once; dropped rows are not written.
    """
    tokens, indices = (TensorSpec.parse(plan.arguments[name]) for name in ("tokens", "indices"))
    columns, entries = tokens.shape[1], indices.numel
    written = (tensor for launch in plan.launches for tensor in launch.outputs)
    kept = next(tensor.shape[0] for tensor in written if tensor.name == "permuted_tokens")
    sort = plan.tiling["vbsComputeParamsOp"]
    size, entries_per_core = tokens.itemsize * columns, sort["perCoreElements"]
    cores: dict[int, tuple[Node, ...]] = {}
    for core in range(sort["needCoreNum"]):
        core_entries = max(min(entries_per_core, entries - core * entries_per_core), 0)
        cores[core] = (
            vector_tile(
                (Copy(indices.itemsize * core_entries, core_entries),),
                (Instruction("sort_and_merge", "float32", core_entries),),
                (Copy(fp32.BYTES * core_entries, core_entries),),
                IDS,
            ),
        )

    def rows(count: int) -> tuple[Node, ...]:
        places = Copy(fp32.BYTES * count, count)
        read = Copy(size, columns, max(1, count * tokens.shape[0] // entries), tokens.nbytes)
        written_rows = count * kept // entries
        out: tuple[Copy, ...] = (
            (Copy(size, columns, written_rows, kept * size),) if written_rows and columns else ()
        )
        return (vector_tile((places, read) if columns else (places,), (), out, ROWS),)

    moves = ranged_cores(plan, "rows", max(1, entries // plan.block_dim), rows)
    return Program(
        (vector_phase("sort", cores), vector_phase("move", moves)),
        NOT_COUNTED,
        ("dropped rows are spread evenly",),
        views=(
            View("tokens", tokens.shape[0], columns),
            View("indices", entries, by_row={"rows": 1}),
            View("permuted_tokens", entries, columns, by_row={"rows": 1}),
        ),
    )


DTYPES = (*FLOAT_DTYPES, "int8")


def is_documented(row: Any, device: Any, rules: Any) -> bool:
    """Return whether an int8 call keeps the document's limits."""
    return bool(
        row.limits == 1
        or row.dtype != tiler.INT8
        or max(row.entries, row.num_out_tokens) <= tiler.EXPERTS
    )


def _int8_message(call: Inspection) -> tuple[str, str]:
    return Text(
        "indices has {entries} elements, num_out_tokens = {num_out_tokens}: with int8 tokens the "
        "product document allows {most} of each",
        entries=call.size("entries"),
        num_out_tokens=call.size("num_out_tokens"),
        most=tiler.EXPERTS,
    ), Text("{hardware} allows more", hardware=Argument("limits", "hardware"))


FIELDS: dict[str, Any] = {
    "axes": (Word("dtype", "dtype of tokens", DTYPES, "bfloat16"), *declaration.AXES[1:]),
    "checks": (
        checks.Attributes("num_out_tokens padded_mode"),
        check_padding,
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("tokens", DTYPES),
        checks.SameDtype("permuted_tokens", "tokens"),
        checks.Dtypes("indices", declaration.ID_DTYPES),
        checks.Dtypes("sorted_indices", ("int32",)),
        checks.Formats(checks.ND),
        checks.Ranks("tokens permuted_tokens", 2, 2, TILING_FAILURE),
        checks.Ranks("indices", 1, 2, TILING_FAILURE),
        checks.Shapes("tokens indices permuted_tokens sorted_indices", TILING_FAILURE),
        checks.Holds(f"num_topk <= {MOST_TOPK}", "indices"),
        checks.Fits(is_documented, "indices", _int8_message),
        checks.NothingToDo("entries == 0"),
    ),
    "tiling": tiler.Tiling,
    "tile": tiler.tile,
    "used_bytes": tiler.used_bytes,
    "assumed": (
        Assumed(
            "system_workspace_bytes",
            SYSTEM_WORKSPACE_BYTES,
            "specification page moe_token_permute_950, Tiling",
        ),
    ),
    "planner_message": None,
}
"""Fields of the declaration that differ on Ascend 950."""

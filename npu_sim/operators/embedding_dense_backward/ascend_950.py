"""EmbeddingDenseBackward on Ascend 950: own kernels; no bound on embeddingDim.

Rates of vector instructions are not published for this product: the bound is that of the copies.
The timeline assumes that a batch of rows has one index, so that the bound holds for any data. Trees
follow the specification and the plan, not the marks of the kernel, so that probes of the kernel are
an independent check.

Source: specification page ``embedding_dense_backward_950``.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from math import prod
from typing import Annotated, Any, NamedTuple

import numpy as np

from npu_sim.framework.vocabulary import (
    FLOAT32,
    FP32_BYTES,
    SUCCESS,
    SYSTEM_WORKSPACE_BYTES,
    Assumed,
    Case,
    Caveat,
    Condition,
    Description,
    Device,
    Evidence,
    Field,
    Launch,
    LaunchTensor,
    Memory,
    OutputOrder,
    Part,
    Plan,
    Run,
    TensorSpec,
    Text,
    WorkspacePart,
    aligned_bytes,
    caveat,
    decision,
    intermediate,
    kernel_parts,
    nothing,
    storage_view,
    ub_memory,
    vector_plan,
)
from npu_sim.operators.embedding_dense_backward import study as shared
from npu_sim.operators.embedding_dense_backward.compute import checked_indices
from npu_sim.operators.embedding_dense_backward.plan import (
    INDEX_DTYPES,
    INT32,
    INT32_MAX,
    INT64,
    KERNEL_GRAD,
    KERNEL_GRAD_V2,
    KERNELS,
    TOTAL_BOUND,
    area_bytes,
    launches_of,
    padding_caveats,
)
from npu_sim.operators.embedding_dense_backward.study import IndexRun, TreeOfRow, chunks_of
from npu_sim.operators.shared.study import Changes, Claim, StudyCall, Tree, left_fold
from npu_sim.tiling.ascend_950 import embedding_dense_backward as v2
from npu_sim.tiling.ascend_950.embedding_dense_backward import embedding_dense_grad as v1
from npu_sim.tiling.ascend_950.embedding_dense_backward.embedding_dense_grad import Problem
from npu_sim.timelines import (
    Copy,
    Node,
    Phase,
    Program,
    Step,
    Tile,
    View,
    Work,
    fp32,
    ranged,
    ranged_cores,
    rows_of_cores,
    vector_phase,
    vector_tile,
)

FLOAT64 = INDEX_DTYPES.index("float64")
MANY_ROWS_OF_FP32, MANY_ROWS_OF_16_BIT = 512, 1024
"""From so many rows on V2 runs, if there are at least as many as columns."""
WIDE_COLUMNS, WEIGHTS_OF_A_COLUMN = 2048, 5
"""Beyond so many columns, more weight rows than five times the columns decide for V2."""


class CallTiling(NamedTuple):
    """Result of the planner: ``v2`` is set for EmbeddingDenseGradV2, ``v1`` otherwise."""

    status: int
    kernel: Annotated[int, Field("kernel that runs", "2", words=KERNELS)]
    tiling_key: Annotated[int, Field("tiling key of the kernel that runs", "2 * 1000011")]
    block_dim: Annotated[int, Field("cores that work", "vector_cores")]
    total_workspace_bytes: Annotated[
        int,
        Field(
            "workspace of the whole call, contiguous tensors, without what is not published",
            TOTAL_BOUND,
        ),
    ]
    v2: Annotated[v2.Tiling, Part(help=" (EmbeddingDenseGradV2)")]
    v1: Annotated[v1.Tiling, Part(help=" (EmbeddingDenseGrad)")]


NO_TILING: CallTiling = nothing(CallTiling)


def has_fitting_weights(row: Any) -> bool:
    """Return whether columns and weight rows select V2 (page, rule B)."""
    if row.dim <= WIDE_COLUMNS:
        return False
    many = row.num_weights > WEIGHTS_OF_A_COLUMN * row.dim
    scales = row.scale_grad_by_freq == 1 and row.num_weights > 0
    return bool(many or (scales and row.dim // max(row.num_weights, 1) < 2))


def takes_v2(row: Any) -> bool:
    """Return whether EmbeddingDenseGradV2 runs, not EmbeddingDenseGrad (page, rules A and B)."""
    many = MANY_ROWS_OF_FP32 if row.grad_dtype == FLOAT32 else MANY_ROWS_OF_16_BIT
    fits = row.rows >= max(row.dim, many) or has_fitting_weights(row)
    return bool(fits and row.rows <= INT32_MAX)


def casts_indices(row: Any) -> bool:
    """Return whether indices are cast before the kernel."""
    return bool(row.indices_dtype != INT32 and row.indices_dtype != INT64)


def index_bytes(row: Any) -> int:
    """Return the bytes of an index in the kernel."""
    return 8 if row.indices_dtype == INT64 or row.indices_dtype == FLOAT64 else 4


def sorts(row: Any) -> bool:
    """Return whether Sort runs before the kernel: before V2, unless there is one row."""
    return takes_v2(row) and row.rows > 1


def problem_of_row(row: Any) -> Problem:
    """Return the problem of a call given as integers."""
    return Problem(
        row.rows,
        row.dim,
        row.num_weights,
        row.grad_dtype,
        index_bytes(row),
        row.scale_grad_by_freq == 1,
    )


def total_workspace_bytes(row: Any, kernel_bytes: int) -> int:
    """Return the workspace of the call for contiguous tensors, without that of Sort.

    After the sort the place of the cast indices is free for the workspace of the kernel.
    """
    size = index_bytes(row) * row.rows
    indices = area_bytes(size, casts_indices(row))
    kernel = aligned_bytes(kernel_bytes)
    if sorts(row):
        return aligned_bytes(size) + aligned_bytes(4 * row.rows) + max(indices, kernel)
    return indices + kernel


def tile_row(row: Any, device: Device, rules: Any) -> CallTiling:
    """Plan a call given as integers, which has rows and columns."""
    problem, newer, older = problem_of_row(row), v2.NO_TILING, v1.NO_TILING
    if takes_v2(row):
        newer = v2.tile(problem, device, rules)
    else:
        older = v1.tile(problem, device, rules)
    if newer.status != SUCCESS and older.status != SUCCESS:
        return NO_TILING
    # The numbers of the kernel that does not run are 0.
    kernel_bytes = max(newer.workspace_bytes, older.workspace_bytes)
    return CallTiling(
        status=SUCCESS,
        kernel=KERNEL_GRAD_V2 if takes_v2(row) else KERNEL_GRAD,
        tiling_key=max(newer.tiling_key, older.tiling_key),
        block_dim=max(newer.block_dim, older.block_dim),
        total_workspace_bytes=total_workspace_bytes(row, kernel_bytes),
        v2=newer,
        v1=older,
    )


FIRST_GROUPED = 3
"""Rows of grad from which on the order can differ from that of A2 and A3."""
PAIRS_TESTED = 64
"""Neighbouring cores that V2 tests for a shared index."""

V2 = Condition(
    "EmbeddingDenseGradV2",
    Text(
        "rows <= 2147483647, and either rows >= dim and rows >= {fp32} (16-bit grad: {half}), or "
        "dim > {wide} and num_weights > {many} * dim, or dim > {wide} and scale_grad_by_freq and "
        "dim // num_weights < 2",
        fp32=MANY_ROWS_OF_FP32,
        half=MANY_ROWS_OF_16_BIT,
        wide=WIDE_COLUMNS,
        many=WEIGHTS_OF_A_COLUMN,
    ),
    lambda row, device, rules: takes_v2(row),
    "the rows are sorted, and cores split the sorted rows",
    "EmbeddingDenseGrad: cores split the columns, and sort the rows in batches of their own order",
    ("rows", "dim", "num_weights"),
)
ALL_ROWS = Condition(
    "all rows at once",
    Text(
        "rows <= {rows}, and they fit the Unified Buffer with {least} bytes of columns",
        rows=v1.MOST_FULL_LOAD_ROWS,
        least=v1.LEAST_COLUMN_BYTES,
    ),
    lambda row, device, rules: (
        v1.full_load_columns(problem_of_row(row)._replace(rows=max(row.rows, 1)), device) > 0
    ),
    "the rows are one batch",
    "the rows come in batches, and the groups of five restart at every batch",
    ("rows",),
)
IN_PIECES = Condition(
    "columns in pieces",
    Text("a row of grad has more than {most} bytes", most=v2.PIECE_BYTES),
    lambda row, device, rules: v2.has_pieces(problem_of_row(row)),
    "a batch takes its columns piece by piece; the same order",
    "a batch takes all columns at once",
    ("dim",),
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    is_v2, row = case.tiling.kernel == KERNEL_GRAD_V2, case.row
    tiling, planner = (case.tiling.v2, v2) if is_v2 else (case.tiling.v1, v1)
    path, per_core, reason = _texts_of_v2(case) if is_v2 else _texts_of_v1(case)
    values = {"rows": row.rows, "dim": row.dim, "num_weights": row.num_weights}
    return vector_plan(
        case,
        path=path,
        path_reason=Text("{rows} rows of {dim} columns", rows=row.rows, dim=row.dim),
        per_core=per_core,
        memories=lambda: _memories(case),
        ranges=[planner.core_range(tiling, core) for core in range(tiling.block_dim)],
        unit="sorted row" if is_v2 else "column",
        kernel=KERNELS[case.tiling.kernel],
        tiling=tiling,
        fields=planner.vendor_structure(tiling, case.arguments, case.rules),
        launches=launches_of(
            case,
            _kernel_parts(case),
            index_dtype=f"int{8 * index_bytes(row)}" if casts_indices(row) else "",
            sort=_sort if sorts(row) else None,
            zeros=is_v2,
        ),
        conditions=lambda: [
            decision(case, V2, scale_grad_by_freq=row.scale_grad_by_freq, **values),
            decision(case, IN_PIECES if is_v2 else ALL_ROWS, **values),
        ],
        order=(OutputOrder(output="grad_weight", fixed=True, reason=reason),),
        caveats=(*_caveats(case), *padding_caveats(case)),
    )


def _texts_of_v2(case: Case) -> tuple[str, str, str]:
    """Return the path, the work of a core, and the order of EmbeddingDenseGradV2."""
    tiling = case.tiling.v2
    return (
        "sorted rows over cores, columns in pieces"
        if v2.has_pieces(problem_of_row(case.row))
        else "sorted rows over cores",
        Text(
            "up to {batches} batches of {rows} rows, {columns} columns at a time",
            batches=tiling.core_batches,
            rows=tiling.batch_rows,
            columns=tiling.piece_columns,
        ),
        Text(
            "every core adds the rows of an index in groups of ten, which restart after every "
            "{rows} sorted rows; the sums of several cores are added in the order of the cores",
            rows=tiling.batch_rows,
        ),
    )


def _texts_of_v1(case: Case) -> tuple[str, str, str]:
    """Return the path, the work of a core, and the order of EmbeddingDenseGrad."""
    tiling = case.tiling.v1
    path = (
        "columns over cores, all rows at once"
        if v1.is_full_load(tiling)
        else "columns over cores, batches of rows"
    )
    sizes = {"rows": tiling.batch_rows, "columns": min(tiling.columns, tiling.core_columns)}
    if tiling.batches == 1:
        order = (
            "every column belongs to one core, which adds the rows of an index in groups of five"
        )
        return path, Text("{rows} rows and up to {columns} columns at a time", **sizes), order
    per_core = Text(
        "{batches} batches of {rows} rows, up to {columns} columns at a time",
        batches=tiling.batches,
        **sizes,
    )
    order = Text(
        "every column belongs to one core, which adds the rows of an index in groups of five; the "
        "groups restart after every {rows} rows",
        rows=tiling.batch_rows,
    )
    return path, per_core, order


def _memories(case: Case) -> Iterator[Memory]:
    """Yield the buffers of the rows, and those of what follows after a barrier."""
    size, index_size = case.specs["grad"].itemsize, index_bytes(case.row)
    if case.tiling.kernel == KERNEL_GRAD_V2:
        phases = {
            "rows": v2.buffers(case.tiling.v2, size, index_size),
            "merge of the cores": v2.merge_buffers(case.tiling.v2, size, index_size),
        }
    else:
        scales = case.row.scale_grad_by_freq == 1
        phases = {
            "rows": v1.buffers(case.tiling.v1, size, index_size),
            "second pass": v1.scan_buffers(case.tiling.v1, size, index_size, scales),
        }
    for phase, buffers in phases.items():
        if any(buffers.values()):
            yield ub_memory(case, buffers, phase)


def _kernel_parts(case: Case) -> tuple[WorkspacePart, ...]:
    """Return the workspace of the kernel by part."""
    row, sizes = case.row, {}
    if case.tiling.kernel == KERNEL_GRAD_V2:
        kernel_bytes = case.tiling.v2.workspace_bytes - case.device.system_workspace_bytes
        sizes["first and last sum of every core"] = kernel_bytes
    elif not v1.is_full_load(case.tiling.v1):
        sizes["counters"] = row.num_weights * index_bytes(row)
        sizes["fp32 copy of out"] = FP32_BYTES * row.num_weights * row.dim
    return kernel_parts(case, sizes)


def _sort(indices: LaunchTensor) -> Launch:
    """Return the launch that sorts the indices, stably and ascending."""
    indices = indices.viewed((prod(indices.shape),), indices.dtype)
    return Launch(
        kernel="Sort",
        inputs=(indices,),
        outputs=(
            intermediate("sorted indices", indices.shape, indices.dtype),
            intermediate("positions", indices.shape, "int32"),
        ),
        workspace=(
            WorkspacePart(
                name="workspace of Sort",
                bytes=0,
                kind="kernel",
                evidence=Evidence.UNKNOWN,
                note="not published for Ascend 950",
            ),
        ),
    )


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Kernel and order", "Warnings")."""
    is_v2 = case.tiling.kernel == KERNEL_GRAD_V2
    tiling = case.tiling.v2 if is_v2 else case.tiling.v1
    if case.row.rows >= FIRST_GROUPED:
        yield caveat(
            "sum_differs_between_products",
            "grad_weight",
            "Ascend 950 adds the rows of an index in other groups than A2 and A3: the last "
            "bits of grad_weight can differ from theirs. Read in the public sources; not run on a "
            "device",
        )
    if tiling.batches > 1:
        yield caveat(
            "order_depends_on_sizes",
            "grad_weight",
            "groups of rows restart after every {rows} rows, a number that sizes, dtypes and "
            "the SoC decide: other sizes, or more rows of other indices, can change the last "
            "bits. Read in the public sources; not run on a device",
            rows=tiling.batch_rows,
        )
    if is_v2 and tiling.block_dim > PAIRS_TESTED + 1:
        yield caveat(
            "merge_test_sees_64_pairs",
            "indices",
            "{cores} cores, but whether neighbours share an index is tested for cores 0 to 64 "
            "only: if only later cores do, the row of that index holds the sum of one core. "
            "Read in the public sources; not run on a device",
            cores=tiling.block_dim,
            since="9.1",
        )


def compute(run: Run) -> None:
    """Compute the gradient."""
    case, row = run.case, run.case.row
    with run.watch.stage("load"):
        from npu_sim.kernels.ascend_950 import embedding_dense_backward as kernels
    with run.watch.stage("check"):
        indices = checked_indices(run.tensors["indices"], row.num_weights)
    with run.watch.stage("compute"):
        call = kernels.Call(
            run.stored("grad").reshape(row.rows, row.dim),
            indices,
            storage_view(run.outputs["grad_weight"]),
            row.padding_idx,
            row.scale_grad_by_freq == 1,
        )
        if case.tiling.kernel == KERNEL_GRAD_V2:
            tiling = case.tiling.v2
            core_rows = tiling.batch_rows * tiling.core_batches
            run.caveats += tuple(_unmerged(kernels.sum_v2(call, core_rows, tiling.batch_rows)))
        else:
            kernels.sum_v1(call, case.tiling.v1.batch_rows, v1.is_full_load(case.tiling.v1))


def _unmerged(rows: "np.ndarray") -> Iterator[Caveat]:
    """Warn of rows that hold the sum of one core, because the merge was left out."""
    if rows.size:
        yield caveat(
            "sum_of_one_core",
            "indices",
            "{count} rows of grad_weight hold the sum of one core only, the first one is row {row}"
            ": no index is shared among cores 0 to 64, so the merge is left out. Read in the "
            "public sources; not run on a device",
            count=rows.size,
            row=int(rows[0]),
        )


GRAD, INDICES, RESULT = ("grad",), ("indices",), ("grad_weight",)


class Call:
    """The call of a plan, in sizes and tensors."""

    def __init__(self, plan: Plan) -> None:
        self.grad = TensorSpec.parse(plan.arguments["grad"])
        self.rows, self.dim = prod(self.grad.shape[:-1]), self.grad.shape[-1]
        self.num_weights = plan.arguments["num_weights"]
        (launch,) = (launch for launch in plan.launches if launch.kernel == plan.kernel)
        self.index_bytes = TensorSpec((), launch.inputs[1].dtype).itemsize
        self.is_v2 = plan.kernel == KERNELS[KERNEL_GRAD_V2]

    def indices(self, rows: int) -> Tile:
        """Return the tile that copies in the indices of rows, and on V2 their positions."""
        copy = Copy(self.index_bytes * rows, rows)
        if self.is_v2:
            return vector_tile(
                (copy, Copy(v2.POSITION_BYTES * rows, rows)),
                step=Step(
                    "indices",
                    "sorted rows {sorted rows}: their indices and positions are copied in",
                    INDICES,
                    live=("indices", "positions"),
                ),
            )
        return vector_tile(
            (copy,),
            step=Step(
                "indices",
                "rows {rows}: their indices are copied in and sorted",
                INDICES,
                live=("indices", "positions"),
            ),
        )

    def gradient(self, rows: int, columns: int) -> Copy:
        """Return the copy of pieces of rows of grad, one by one."""
        return Copy(self.grad.itemsize * columns, columns, rows, self.grad.nbytes)


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    call, padding = Call(plan), plan.arguments["padding_idx"]
    phases = (_sorted_rows(plan, call),) if call.is_v2 else _columns(plan, call)
    others = ["sorting the rows of a batch", "clearing the output"]
    if call.is_v2:
        others = ["adding the sums of an index in several cores"] if plan.block_dim > 1 else []
    assumptions = ["as few different indices as possible: one in every batch of rows"]
    otherwise: tuple[tuple[str, tuple[Phase, ...]], ...] = ()
    if 0 <= padding < call.num_weights:
        assumptions.append("no row carries the padding index")
        otherwise = (("every row carries the padding index", (_only_indices(plan, call),)),)
    by_row, by_column = {"rows": 1, "sorted rows": 1}, {"columns": 1}
    views = (
        View("grad", call.rows, call.dim, by_row, by_column),
        View("indices", call.rows, by_row=by_row),
        View("grad_weight", call.num_weights, call.dim, {"weight rows": 1}, by_column),
    )
    return Program(phases, tuple(others), tuple(assumptions), otherwise, views)


def _only_indices(plan: Plan, call: Call) -> Phase:
    """Return the least that the rows take: their indices."""
    cores: dict[int, tuple[Node, ...]] = {}
    for core, (first, last) in rows_of_cores(plan).items():
        rows = last - first if call.is_v2 else call.rows
        cores[core] = (call.indices(rows),) if first < last else ()
    return vector_phase("rows", cores)


def _sorted_rows(plan: Plan, call: Call) -> Phase:
    """Return the phase of V2 in which every core sums its sorted rows."""
    batch_rows, columns_at_once = plan.tiling["scatterFactor"], plan.tiling["elewiseFactor"]

    def batch(rows: int) -> tuple[Node, ...]:
        def piece(columns: int) -> tuple[Node, ...]:
            return (
                vector_tile(
                    (call.gradient(rows, columns),),
                    (fp32.combine(columns, rows),),
                    (Copy(call.grad.itemsize * columns, columns),),
                    Step(
                        "sum",
                        "sorted rows {sorted rows}, columns {columns}: the rows of an index are "
                        "added in groups of ten, the sum goes to its row of grad_weight",
                        GRAD,
                        RESULT,
                        INDICES,
                        ("gradient rows", "results", "running row"),
                        RESULT,
                    ),
                ),
            )

        return (call.indices(rows), *ranged("columns", 0, call.dim, columns_at_once, piece))

    return vector_phase("rows", ranged_cores(plan, "sorted rows", batch_rows, batch))


def _columns(plan: Plan, call: Call) -> tuple[Phase, ...]:
    """Return the phases of V1: the sums of every core's columns, then scaling and narrowing."""
    tiling = plan.tiling
    result_bytes = FP32_BYTES if (plan.tiling_key or 0) >= 200 else call.grad.itemsize

    def sums(rows: int, columns: int) -> tuple[Node, ...]:
        return (
            vector_tile(
                (call.gradient(rows, columns),),
                (fp32.combine(columns, rows),),
                (Copy(result_bytes * columns, columns),),
                Step(
                    "sum",
                    "rows {rows}, columns {columns}: the rows of an index are added in groups of "
                    "five, the sum goes to its row of grad_weight",
                    GRAD,
                    RESULT,
                    INDICES,
                    ("gradient rows", "results", "groups"),
                    RESULT,
                ),
            ),
        )

    steps = tiling["indicesFactor"], tiling["gradFactorPerRow"]
    first = vector_phase("rows", _column_cores(plan, "rows", call.rows, steps, sums, call.indices))
    rows, columns = (
        ("indicesFactorFreq", "gradFactorPerRowFreq")
        if tiling["scaleGradByFreq"]
        else ("baseWCast", "baseACast")
    )
    if not tiling[rows]:
        return (first,)
    return first, _second_pass(plan, call, (tiling[rows], tiling[columns]))


def _column_cores(
    plan: Plan,
    axis: str,
    size: int,
    steps: tuple[int, int],
    piece: Callable[[int, int], tuple[Node, ...]],
    head: Callable[[int], Node] | None = None,
) -> dict[int, tuple[Node, ...]]:
    """Return the work of every core on its columns of an axis of rows.

    ``steps`` are the rows and columns at a time, ``piece(rows, columns)`` is the work on them, and
    ``head(rows)`` what comes before.
    """
    cores: dict[int, tuple[Node, ...]] = {}
    for core, (first, last) in rows_of_cores(plan).items():

        def rows(count: int, first: int = first, last: int = last) -> tuple[Node, ...]:
            nodes = ranged("columns", first, last, steps[1], lambda width: piece(count, width))
            return nodes if head is None else (head(count), *nodes)

        cores[core] = ranged(axis, 0, size, steps[0], rows) if first < last else ()
    return cores


def _second_pass(plan: Plan, call: Call, steps: tuple[int, int]) -> Phase:
    """Return the phase that reads the fp32 sums, scales or narrows them, and writes the output."""

    def piece(rows: int, width: int) -> tuple[Node, ...]:
        copy_in: tuple[Work, ...] = (Copy(FP32_BYTES * width, width, rows),)
        if plan.tiling["scaleGradByFreq"]:
            copy_in = (*copy_in, Copy(call.index_bytes * rows, rows))
        return (
            vector_tile(
                copy_in,
                (),
                (Copy(call.grad.itemsize * width, width, rows),),
                Step(
                    "",
                    "weight rows {weight rows}, columns {columns}: the sums are scaled or rounded "
                    "once",
                    RESULT,
                    RESULT,
                    live=("sums", "counters"),
                ),
            ),
        )

    return vector_phase(
        "second pass", _column_cores(plan, "weight rows", call.num_weights, steps, piece)
    )


parts = None
"""No sum depends on the order in which cores finish."""
open_rules = None
"""The rule that is open on other products concerns a kernel that does not run here."""

GROUP_OF_V2, GROUP_OF_V1 = 10, 5
"""Rows of a group."""
CHANGES = Changes(grown=shared.CHANGES.grown, found=shared.CHANGES.found, others=shared.as_fp32)


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the summation trees of the output rows.

    There is none for a row that holds the sum of one core, because V2 left out the merge.
    """
    yield from shared.claims_of_rows(call, _tree_maker)


def causes(call: StudyCall, dtype: str, golden: np.ndarray) -> list[tuple[str, float, str]]:
    """Return the error of scaling by the reciprocal, in ulp; counters are integers here."""
    tiling = call.case.tiling
    if tiling.kernel != KERNEL_GRAD_V2 and v1.is_full_load(tiling.v1):
        return []
    return shared.causes(call, dtype, golden)[:1]


def _tree_maker(call: StudyCall, in_order: np.ndarray) -> TreeOfRow:
    tiling, padding = call.case.tiling, call.case.row.padding_idx
    if tiling.kernel == KERNEL_GRAD_V2:
        ranges = [v2.core_range(tiling.v2, core) for core in range(tiling.v2.block_dim)]
        slices = [in_order[begin:stop] for begin, stop in ranges]
        return partial(
            tree_of_v2,
            starts=[begin for begin, _ in ranges],
            batch_rows=tiling.v2.batch_rows,
            # The first slot of a core is there and holds zeros.
            zeros=[
                core > 0 and bool(part[0] == padding or np.unique(part[part != padding]).size == 1)
                for core, part in enumerate(slices)
            ],
            merges=merges(slices, padding),
        )
    return lambda run: tree_of_v1(run, tiling.v1.batch_rows)


def merges(slices: Sequence[np.ndarray], padding: int) -> bool:
    """Return whether one of the pairs that V2 tests has an index in common."""
    return any(
        left[-1] == other[0] != padding for left, other in pairwise(slices[: PAIRS_TESTED + 1])
    )


def tree_of_v1(run: IndexRun, batch_rows: int) -> Tree | None:
    """Return the tree of a run on EmbeddingDenseGrad; terms are numbered in row order."""
    batches = groupby(range(len(run.rows)), key=lambda term: run.rows[term] // batch_rows)
    return left_fold([left_fold(chunks_of(list(batch), GROUP_OF_V1)) for _, batch in batches])


def tree_of_v2(
    run: IndexRun, starts: Sequence[int], batch_rows: int, zeros: Sequence[bool], merges: bool
) -> Tree | None:
    """Return the tree of a run on EmbeddingDenseGradV2; None when the merge leaves rows out.

    - ``run``: the rows of one index, at least one.
    - ``starts``: first sorted row of every core, a multiple of ``batch_rows``.
    - ``zeros``: whether a slot of zeros comes before the sum of a core.
    - ``merges``: whether the sums of several cores are added.
    """
    slots: list[Tree | None] = []
    terms = range(len(run.rows))
    core_of = np.searchsorted(starts, run.first + np.arange(len(run.rows)), side="right") - 1
    for core, core_terms in groupby(terms, key=lambda term: int(core_of[term])):
        batches = groupby(core_terms, key=lambda term: (run.first + term) // batch_rows)
        groups = [group for _, batch in batches for group in chunks_of(list(batch), GROUP_OF_V2)]
        slots += [None] if zeros[core] else []
        slots.append(left_fold(groups))
    if core_of[0] == core_of[-1]:
        return slots[-1]
    return left_fold(chunks_of(slots, GROUP_OF_V2)) if merges else None


FIELDS: dict[str, Any] = {
    "tiling": CallTiling,
    "tile": tile_row,
    "describe": describe,
    "assumed": (
        Assumed(
            "system_workspace_bytes",
            SYSTEM_WORKSPACE_BYTES,
            "specification page embedding_dense_backward_950, Tiling",
        ),
    ),
    "bounds": {},
}
"""Fields of the declaration that differ on Ascend 950."""

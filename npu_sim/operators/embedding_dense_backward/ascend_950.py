"""EmbeddingDenseBackward on Ascend 950: own kernels; no bound on embeddingDim.

Rates of vector instructions are not published for this product: the bound is that of the copies.
The timeline assumes that a batch of rows has one index, so that the bound holds for any data. Trees
follow the specification and the plan, not the marks of the kernel, so that probes of the kernel are
an independent check.

Source: specification page ``embedding_dense_backward_950``.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.framework.operator import Assumed
from npu_sim.numbers.formats import TensorSpec
from npu_sim.numbers.storage import storage_view
from npu_sim.operators.embedding_dense_backward import study as shared
from npu_sim.operators.embedding_dense_backward.ascend_950_plan import (
    CallTiling,
    describe,
    tile_row,
)
from npu_sim.operators.embedding_dense_backward.compute import checked_indices
from npu_sim.operators.embedding_dense_backward.planner import KERNEL_GRAD_V2
from npu_sim.operators.embedding_dense_backward.study import IndexRun, TreeOfRow, chunks_of
from npu_sim.operators.shared.study import Changes, StudyCall
from npu_sim.orders.claims import Claim
from npu_sim.orders.trees import Tree, left_fold
from npu_sim.plans.model import Caveat, Plan, caveat
from npu_sim.tiling.ascend_950 import embedding_dense_backward as v2
from npu_sim.tiling.ascend_950 import embedding_dense_grad as v1
from npu_sim.tiling.common import SYSTEM_WORKSPACE_BYTES
from npu_sim.timelines import fp32
from npu_sim.timelines.program import (
    Copy,
    Node,
    Phase,
    Program,
    Step,
    View,
    Work,
    ranged,
    rows_of_cores,
    vector_phase,
    vector_tile,
)

if TYPE_CHECKING:
    from npu_sim.framework.execution import Run


def compute(run: "Run") -> None:
    """Compute the gradient."""
    case, row = run.case, run.case.row
    with run.watch.stage("load"):
        from npu_sim.kernels.embedding_dense_backward import ascend_950 as kernels
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
            run.caveats += _unmerged(kernels.sum_v2(call, core_rows, tiling.batch_rows))
        else:
            kernels.sum_v1(call, case.tiling.v1.batch_rows, v1.is_full_load(case.tiling.v1))


def _unmerged(rows: "np.ndarray") -> tuple[Caveat, ...]:
    """Warn of rows that hold the sum of one core, because the merge was left out."""
    if not rows.size:
        return ()
    return (
        caveat(
            "sum_of_one_core",
            "indices",
            "{count} rows of grad_weight hold the sum of one core only, the first one is row {row}"
            ": no index is shared among cores 0 to 64, so the merge is left out. Read in the "
            "public sources; not run on a device",
            count=rows.size,
            row=int(rows[0]),
        ),
    )


FP32 = 4
POSITION_BYTES = 4
ONE_INDEX = "as few different indices as possible: one in every batch of rows"


GRAD, INDICES, RESULT = ("grad",), ("indices",), ("grad_weight",)
LIST_IN = Step(
    "indices",
    "sorted rows {sorted rows}: their indices and positions are copied in",
    INDICES,
    live=("indices", "positions"),
)
SORTED_SUM = Step(
    "sum",
    "sorted rows {sorted rows}, columns {columns}: the rows of an index are added in groups of "
    "ten, the sum goes to its row of grad_weight",
    GRAD,
    RESULT,
    INDICES,
    ("gradient rows", "results", "running row"),
    RESULT,
)
INDICES_IN = Step(
    "indices",
    "rows {rows}: their indices are copied in and sorted",
    INDICES,
    live=("indices", "positions"),
)
SUM = Step(
    "sum",
    "rows {rows}, columns {columns}: the rows of an index are added in groups of five, the sum "
    "goes to its row of grad_weight",
    GRAD,
    RESULT,
    INDICES,
    ("gradient rows", "results", "groups"),
    RESULT,
)
FINISHED = Step(
    "",
    "weight rows {weight rows}, columns {columns}: the sums are scaled or rounded once",
    RESULT,
    RESULT,
    live=("sums", "counters"),
)


class Call:
    """The call of a plan, in sizes and tensors."""

    def __init__(self, plan: Plan) -> None:
        self.grad = TensorSpec.parse(plan.arguments["grad"])
        self.rows, self.dim = prod(self.grad.shape[:-1]), self.grad.shape[-1]
        self.num_weights = plan.arguments["num_weights"]
        (launch,) = (launch for launch in plan.launches if launch.kernel == plan.kernel)
        self.index_bytes = TensorSpec((), launch.inputs[1].dtype).itemsize

    def gradient(self, rows: int, columns: int) -> Copy:
        """Return the copy of pieces of rows of grad, one by one."""
        size = self.grad.itemsize * columns
        return Copy(size, columns, rows, self.grad.nbytes)


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    call, padding = Call(plan), plan.arguments["padding_idx"]
    is_v2 = plan.kernel == "EmbeddingDenseGradV2"
    phases = (_sorted_rows(plan, call),) if is_v2 else _columns(plan, call)
    others = ["sorting the rows of a batch", "clearing the output"]
    if is_v2:
        others = ["adding the sums of an index in several cores"] if plan.block_dim > 1 else []
    assumptions = [ONE_INDEX]
    otherwise: tuple[tuple[str, tuple[Phase, ...]], ...] = ()
    if 0 <= padding < call.num_weights:
        assumptions.append("no row carries the padding index")
        least = (_only_indices(plan, call, is_v2),)
        otherwise = (("every row carries the padding index", least),)
    by_row, by_column = {"rows": 1, "sorted rows": 1}, {"columns": 1}
    views = (
        View("grad", call.rows, call.dim, by_row, by_column),
        View("indices", call.rows, by_row=by_row),
        View("grad_weight", call.num_weights, call.dim, {"weight rows": 1}, by_column),
    )
    return Program(phases, tuple(others), tuple(assumptions), otherwise, views)


def _indices(call: Call, rows: int, is_v2: bool) -> tuple[Work, ...]:
    """Return the copies of the indices of rows, and on V2 of their positions."""
    indices = Copy(call.index_bytes * rows, rows)
    return (indices, Copy(POSITION_BYTES * rows, rows)) if is_v2 else (indices,)


def _only_indices(plan: Plan, call: Call, is_v2: bool) -> Phase:
    """Return the least that the rows take: their indices."""
    cores: dict[int, tuple[Node, ...]] = {}
    for core, (first, last) in rows_of_cores(plan).items():
        rows = last - first if is_v2 else call.rows
        tile = vector_tile(_indices(call, rows, is_v2), step=LIST_IN if is_v2 else INDICES_IN)
        cores[core] = (tile,) if first < last else ()
    return vector_phase("rows", cores)


def _sorted_rows(plan: Plan, call: Call) -> Phase:
    """Return the phase of V2 in which every core sums its sorted rows."""
    batch_rows, columns_at_once = plan.tiling["scatterFactor"], plan.tiling["elewiseFactor"]

    def batch(rows: int) -> tuple[Node, ...]:
        def piece(columns: int) -> tuple[Node, ...]:
            out = (Copy(call.grad.itemsize * columns, columns),)
            add = (fp32.combine(columns, rows),)
            return (vector_tile((call.gradient(rows, columns),), add, out, SORTED_SUM),)

        indices = vector_tile(_indices(call, rows, True), step=LIST_IN)
        return (indices, *ranged("columns", 0, call.dim, columns_at_once, piece))

    cores = {
        core: ranged("sorted rows", first, last, batch_rows, batch)
        for core, (first, last) in rows_of_cores(plan).items()
    }
    return vector_phase("rows", cores)


def _columns(plan: Plan, call: Call) -> tuple[Phase, ...]:
    """Return the phases of V1: the sums of every core's columns, then scaling and narrowing."""
    tiling = plan.tiling
    batch_rows, at_once = tiling["indicesFactor"], tiling["gradFactorPerRow"]
    in_batches = (plan.tiling_key or 0) >= 200
    result_bytes = FP32 if in_batches else call.grad.itemsize

    def batch(rows: int) -> tuple[Node, ...]:
        return (vector_tile(_indices(call, rows, False), step=INDICES_IN),)

    def sums(columns: int, rows: int) -> tuple[Node, ...]:
        out = (Copy(result_bytes * columns, columns),)
        add = (fp32.combine(columns, rows),)
        return (vector_tile((call.gradient(rows, columns),), add, out, SUM),)

    cores = {}
    for core, (first, last) in rows_of_cores(plan).items():

        def rows(count: int, first: int = first, last: int = last) -> tuple[Node, ...]:
            nodes = ranged("columns", first, last, at_once, lambda width: sums(width, count))
            return (*batch(count), *nodes)

        cores[core] = ranged("rows", 0, call.rows, batch_rows, rows) if first < last else ()
    phases = [vector_phase("rows", cores)]
    suffix = "Freq" if tiling["scaleGradByFreq"] else "Cast"
    weights, columns = (
        (tiling["indicesFactorFreq"], tiling["gradFactorPerRowFreq"])
        if suffix == "Freq"
        else (tiling["baseWCast"], tiling["baseACast"])
    )
    if weights:
        phases.append(_second_pass(plan, call, weights, columns))
    return tuple(phases)


def _second_pass(plan: Plan, call: Call, weights: int, columns: int) -> Phase:
    """Return the phase that reads the fp32 sums, scales or narrows them, and writes the output."""
    counters = plan.tiling["scaleGradByFreq"]

    def piece(rows: int, width: int) -> tuple[Node, ...]:
        copy_in: tuple[Work, ...] = (Copy(FP32 * width, width, rows),)
        if counters:
            copy_in = (*copy_in, Copy(call.index_bytes * rows, rows))
        copy_out = (Copy(call.grad.itemsize * width, width, rows),)
        return (vector_tile(copy_in, (), copy_out, FINISHED),)

    cores = {}
    for core, (first, last) in rows_of_cores(plan).items():

        def rows(count: int, first: int = first, last: int = last) -> tuple[Node, ...]:
            return ranged("columns", first, last, columns, lambda width: piece(count, width))

        nodes = ranged("weight rows", 0, call.num_weights, weights, rows)
        cores[core] = nodes if first < last else ()
    return vector_phase("second pass", cores)


parts = None
"""No sum depends on the order in which cores finish."""
open_rules = None
"""The rule that is open on other products concerns a kernel that does not run here."""

GROUP_OF_V2, GROUP_OF_V1 = 10, 5
"""Rows of a group."""
PAIRS_TESTED = 64
"""Neighbouring cores that V2 tests for a shared index."""
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
            zeros=zero_slots(slices, padding),
            merges=merges(slices, padding),
        )
    return lambda run: tree_of_v1(run, tiling.v1.batch_rows)


def zero_slots(slices: Sequence[np.ndarray], padding: int) -> list[bool]:
    """Return for every core whether its first slot is there and holds zeros."""
    return [
        core > 0
        and (
            bool(core_slice[0] == padding) or np.unique(core_slice[core_slice != padding]).size == 1
        )
        for core, core_slice in enumerate(slices)
    ]


def merges(slices: Sequence[np.ndarray], padding: int) -> bool:
    """Return whether one of the pairs that V2 tests has an index in common."""
    pairs = pairwise(slices[: PAIRS_TESTED + 1])
    return any(left[-1] == other[0] != padding for left, other in pairs)


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

"""Timeline of EmbeddingDenseBackward on Ascend 950.

It assumes that a batch of rows has one index, so that the bound holds for any data.

Source: specification page ``embedding_dense_backward_950``.
"""

from collections.abc import Callable
from math import prod

from npu_sim.framework.vocabulary import FP32_BYTES, Plan, TensorSpec
from npu_sim.operators.embedding_dense_backward.declaration import KERNEL_GRAD_V2, KERNELS
from npu_sim.tiling.ascend_950 import embedding_dense_backward as v2
from npu_sim.timelines import (
    Copy,
    Node,
    Nodes,
    Phase,
    Program,
    Step,
    Tile,
    View,
    Works,
    fp32,
    ranged,
    ranged_cores,
    rows_of_cores,
    vector_phase,
    vector_tile,
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
    cores: dict[int, Nodes] = {}
    for core, (first, last) in rows_of_cores(plan).items():
        rows = last - first if call.is_v2 else call.rows
        cores[core] = (call.indices(rows),) if first < last else ()
    return vector_phase("rows", cores)


def _sorted_rows(plan: Plan, call: Call) -> Phase:
    """Return the phase of V2 in which every core sums its sorted rows."""
    batch_rows, columns_at_once = plan.tiling["scatterFactor"], plan.tiling["elewiseFactor"]

    def batch(rows: int) -> Nodes:
        def piece(columns: int) -> Nodes:
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

    def sums(rows: int, columns: int) -> Nodes:
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
    piece: Callable[[int, int], Nodes],
    head: Callable[[int], Node] | None = None,
) -> dict[int, Nodes]:
    """Return the work of every core on its columns of an axis of rows.

    ``steps`` are the rows and columns at a time, ``piece(rows, columns)`` is the work on them, and
    ``head(rows)`` what comes before.
    """
    cores: dict[int, Nodes] = {}
    for core, (first, last) in rows_of_cores(plan).items():

        def rows(count: int, first: int = first, last: int = last) -> Nodes:
            nodes = ranged("columns", first, last, steps[1], lambda width: piece(count, width))
            return nodes if head is None else (head(count), *nodes)

        cores[core] = ranged(axis, 0, size, steps[0], rows) if first < last else ()
    return cores


def _second_pass(plan: Plan, call: Call, steps: tuple[int, int]) -> Phase:
    """Return the phase that reads the fp32 sums, scales or narrows them, and writes the output."""

    def piece(rows: int, width: int) -> Nodes:
        copy_in: Works = (Copy(FP32_BYTES * width, width, rows),)
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

"""Timeline of EmbeddingDenseBackward on Ascend 950: work of the cores, descriptions of tiles.

Rates of vector instructions are not published for this product: the bound is that of the copies.
The program assumes that a batch of rows has one index, so that the bound holds for any data.

Source: specification page ``embedding_dense_backward_950``.
"""

from math import prod

from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Plan
from npu_sim.timelines import fp32
from npu_sim.timelines.program import (
    Copy,
    Node,
    Phase,
    Program,
    Work,
    ranged,
    rows_of_cores,
    vector_phase,
    vector_tile,
)
from npu_sim.timelines.steps import Step, StepTable, View

FP32 = 4
POSITION_BYTES = 4
ONE_INDEX = "as few different indices as possible: one in every batch of rows"


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
    return Program(phases, tuple(others), tuple(assumptions), otherwise)


def _indices(call: Call, rows: int, is_v2: bool) -> tuple[Work, ...]:
    """Return the copies of the indices of rows, and on V2 of their positions."""
    indices = Copy(call.index_bytes * rows, rows)
    return (indices, Copy(POSITION_BYTES * rows, rows)) if is_v2 else (indices,)


def _only_indices(plan: Plan, call: Call, is_v2: bool) -> Phase:
    """Return the least that the rows take: their indices."""
    cores: dict[int, tuple[Node, ...]] = {}
    for core, (first, last) in rows_of_cores(plan).items():
        rows = last - first if is_v2 else call.rows
        tile = vector_tile(_indices(call, rows, is_v2), note="indices")
        cores[core] = (tile,) if first < last else ()
    return vector_phase("rows", cores)


def _sorted_rows(plan: Plan, call: Call) -> Phase:
    """Return the phase of V2 in which every core sums its sorted rows."""
    batch_rows, columns_at_once = plan.tiling["scatterFactor"], plan.tiling["elewiseFactor"]

    def batch(rows: int) -> tuple[Node, ...]:
        def piece(columns: int) -> tuple[Node, ...]:
            out = (Copy(call.grad.itemsize * columns, columns),)
            add = (fp32.combine(columns, rows),)
            return (vector_tile((call.gradient(rows, columns),), add, out, note="sum"),)

        indices = vector_tile(_indices(call, rows, True), note="indices")
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
        return (vector_tile(_indices(call, rows, False), note="indices"),)

    def sums(columns: int, rows: int) -> tuple[Node, ...]:
        out = (Copy(result_bytes * columns, columns),)
        add = (fp32.combine(columns, rows),)
        return (vector_tile((call.gradient(rows, columns),), add, out, note="sum"),)

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
        return (vector_tile(copy_in, (), copy_out),)

    cores = {}
    for core, (first, last) in rows_of_cores(plan).items():

        def rows(count: int, first: int = first, last: int = last) -> tuple[Node, ...]:
            return ranged("columns", first, last, columns, lambda width: piece(count, width))

        nodes = ranged("weight rows", 0, call.num_weights, weights, rows)
        cores[core] = nodes if first < last else ()
    return vector_phase("second pass", cores)


def steps(plan: Plan) -> StepTable:
    """Return what every tile of the program reads, holds and writes."""
    call = Call(plan)
    by_row, by_column = {"rows": 1, "sorted rows": 1}, {"columns": 1}
    views = (
        View("grad", call.rows, call.dim, by_row, by_column),
        View("indices", call.rows, by_row=by_row),
        View("grad_weight", call.num_weights, call.dim, {"weight rows": 1}, by_column),
    )
    if plan.kernel == "EmbeddingDenseGradV2":
        live = "gradient rows", "results", "running row"
        read = "sorted rows {sorted rows}: their indices and positions are copied in"
        add = (
            "sorted rows {sorted rows}, columns {columns}: the rows of an index are added in "
            "groups of ten, the sum goes to its row of grad_weight"
        )
    else:
        live = "gradient rows", "results", "groups"
        read = "rows {rows}: their indices are copied in and sorted"
        add = (
            "rows {rows}, columns {columns}: the rows of an index are added in groups of five, "
            "the sum goes to its row of grad_weight"
        )
    finish = "weight rows {weight rows}, columns {columns}: the sums are scaled or rounded once"
    grad, indices, result = ("grad",), ("indices",), ("grad_weight",)
    table = {
        ("rows", "indices"): Step(read, indices, live=("indices", "positions")),
        ("rows", "sum"): Step(add, grad, result, indices, live, result),
        ("second pass", ""): Step(finish, result, result, live=("sums", "counters")),
    }
    return StepTable(views, table)

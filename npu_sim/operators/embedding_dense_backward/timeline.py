"""Timeline of EmbeddingDenseBackward: what every core does, from the tiling of the plan.

Source: specification page ``embedding_dense_backward``, "Tiling" and "Kernels and accumulation
order". The number of flushes depends on the data; the program assumes the fewest, all to one row,
which the L2 answers, so that the lower bound holds for any data.
"""

from collections.abc import Callable
from dataclasses import replace
from math import prod

from npu_sim.framework.vocabulary import Plan, TensorSpec, Text, ceil_div, release_rules
from npu_sim.operators.embedding_dense_backward.plan import rows_per_flush
from npu_sim.tiling import embedding_dense_backward as v2
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
    fp32,
    ranged,
    rows_of_cores,
    vector_phase,
    vector_tile,
)

WORD_BYTES = 4
"""Bytes of an fp32 number, of an int32 index, and of a counter."""

GRAD, INDICES, RESULT = ("grad",), ("indices",), ("grad_weight",)
OLDER = ("indices", "counters", "gradient rows", "accumulator row")
BATCH = ("indices", "positions", "indices as fp32", "sort scratch", "sort result", "gradient rows")
COME = "rows {rows} are copied in, their indices are sorted"
"""Sorting makes equal indices adjacent."""
ADDED = (
    "rows of one index are added up in the accumulator, which is added atomically to that row "
    "of grad_weight"
)
BATCH_ADDED = Step(
    "",
    Text("{come}; {add}", come=COME, add=ADDED),
    ("grad", "indices"),
    RESULT,
    live=(*BATCH, "accumulator"),
    by_data=RESULT,
)
BATCH_WIDENED = Step(
    "widen",
    Text("{come}, gradients are widened to fp32", come=COME),
    ("grad", "indices"),
    live=BATCH,
)
WIDENED_ADDED = Step(
    "add",
    Text("rows {{rows}}: {add}", add=ADDED),
    (),
    RESULT,
    ("grad", "indices"),
    (*BATCH, "accumulator"),
    RESULT,
)

ACCUMULATORS = ("accumulators", "cache row")
LIST = ("sorted index", "position", "frequency", *ACCUMULATORS)
LIST_AND_ROW = ("sorted index", "position", "frequency", "gradient row", *ACCUMULATORS)
SORTED_ROW = "row {row} of sorted rows {sorted rows}, columns {columns}"
LIST_IN = Step(
    "indices",
    "sorted rows {sorted rows}: their indices and positions are copied in, the accumulator is "
    "cleared",
    INDICES,
    live=LIST,
)
ROW_ADDED = Step(
    "row",
    Text("{row}: accumulator += its row of grad, in the order of the list", row=SORTED_ROW),
    GRAD,
    (),
    INDICES,
    LIST_AND_ROW,
    GRAD,
)
WIDENED_ROW_ADDED = replace(ROW_ADDED, note="add", reads=(), by_data=())
FLUSHED = Step(
    "flush",
    "what was added up of one index, at most this many rows of it, goes to its row of grad_weight",
    (),
    RESULT,
    (),
    LIST,
    RESULT,
)

ROWS_SPLIT = Step(
    "",
    "rows {rows} are copied in; every row is added atomically to the row of grad_weight that "
    "its index names",
    ("grad", "indices"),
    RESULT,
    live=OLDER,
    by_data=RESULT,
)
COUNTED = Step(
    "scan",
    "indices {indices}: those of this core's weight rows {weight rows} are counted",
    INDICES,
    live=("indices", "counters"),
)
SEARCHED = Step(
    "scan",
    "indices {indices} are looked through for this core's weight rows {weight rows}",
    INDICES,
    live=("indices", "counters"),
)
FOUND_ADDED = Step(
    "row",
    "a row with such an index, times 1 / its count, is added to its row of grad_weight",
    GRAD,
    RESULT,
    live=OLDER,
    by_data=("grad", "grad_weight"),
)


def program(plan: Plan) -> Program:
    """Return the program of every core."""
    grad, indices = (TensorSpec.parse(plan.arguments[name]) for name in ("grad", "indices"))
    rows, dim = prod(grad.shape[:-1]), grad.shape[-1]
    casts = plan.kernel == "EmbeddingDenseGrad" and grad.itemsize == 2
    casts = casts or any(
        decision.name == "cast to fp32" and decision.outcome for decision in plan.decisions
    )
    others, assumptions = [], []
    padded = 0 <= plan.arguments["padding_idx"] < plan.arguments["num_weights"]
    if padded:
        assumptions.append("no row carries the padding index")
    if plan.kernel == "EmbeddingDenseGrad":
        phases = _older_kernel(plan, rows, dim, 8 if indices.dtype == "int64" else 4)
        sparest = phases[:1] if plan.tiling["splits_weights"] else (_only_indices(plan),)
        others.append("clearing the output")
    else:
        element_bytes = WORD_BYTES if casts else grad.itemsize
        small = v2.is_small_dim(plan.tiling_key or 0)
        main = _small_dim(plan, dim, element_bytes) if small else _sorted_rows(plan, element_bytes)
        if element_bytes == 2:
            others.append(
                "rounding the fp32 copy of the output" if small else "summing the stage rows"
            )
        assumptions.append("as few distinct indices as possible, hence the fewest flushes")
        scaling = (_scale(plan),) if plan.tiling["params"]["scaleGradByFreq"] else ()
        phases, sparest = (main, *scaling), (_only_indices(plan), *scaling)
    otherwise = (("every row carries the padding index", sparest),) if padded else ()
    by_row, by_column = {"rows": 1, "sorted rows": 1, "indices": 1, "row": 1}, {"columns": 1}
    views = (
        View("grad", rows, dim, by_row, by_column),
        View("indices", rows, by_row=by_row),
        View("grad_weight", plan.arguments["num_weights"], dim, {"weight rows": 1}, by_column),
    )
    return Program(phases, tuple(others), tuple(assumptions), otherwise, views)


def _only_indices(plan: Plan) -> Phase:
    """Return the least that the rows take: their indices; rows of the padding index are skipped."""

    def indices(start: int, stop: int) -> Nodes:
        rows = stop - start
        return (vector_tile((Copy(WORD_BYTES * rows, rows),), step=LIST_IN),) if rows else ()

    return vector_phase(
        "rows", {core: indices(*rows) for core, rows in rows_of_cores(plan).items()}
    )


def _sizes(plan: Plan) -> tuple[int, int]:
    """Return the bytes of the gradient and of the result in the dtypes of the kernel."""
    (launch,) = (launch for launch in plan.launches if launch.kernel == plan.kernel)
    return launch.inputs[0].bytes, launch.written_bytes


def _small_dim(plan: Plan, dim: int, element_bytes: int) -> Phase:
    """Return the phase that adds unsorted rows, in batches that fill the Unified Buffer.

    Every batch is assumed to hold one index: one atomic copy.
    """
    most, grad = plan.tiling["smallDimTiling"]["maxRowInUb"], _sizes(plan)[0]

    def batch(rows: int) -> Nodes:
        copy_in = (
            Copy(WORD_BYTES * rows, rows),
            Copy(element_bytes * dim * rows, dim * rows, tensor_bytes=grad),
        )
        sort = (
            Instruction("cast_int32_float32", "int32", rows),
            Instruction("sort_and_merge", "float32", rows),
        )
        add = fp32.fill(dim), fp32.combine(dim, rows)
        copy_out = (Copy(WORD_BYTES * dim, dim), *_counter(plan))
        if element_bytes == WORD_BYTES:
            return (vector_tile(copy_in, (*sort, *add), copy_out, BATCH_ADDED),)
        # Whether 16-bit rows free their buffer once they are widened is not published; the lower
        # bound assumes it.
        adding = vector_tile((), add, copy_out, WIDENED_ADDED)
        return vector_tile(copy_in, (*sort, *fp32.widen(dim * rows)), step=BATCH_WIDENED), adding

    cores = {}
    for work in plan.cores:
        start, stop = work.ranges["rows"]
        cores[work.core] = ranged("rows", start, stop, max(min(most, stop - start), 1), batch)
    return vector_phase("rows", cores)


def _counter(plan: Plan) -> tuple[Copy, ...]:
    """Return the copy of a counter; none where rows are not scaled."""
    return (Copy(WORD_BYTES, 1),) if plan.tiling["params"]["scaleGradByFreq"] else ()


def _sorted_rows(plan: Plan, element_bytes: int) -> Phase:
    """Return the phase that adds sorted rows one by one, with at least one flush a chunk."""
    params = plan.tiling["params"]
    rules = release_rules(plan.release, plan.operator, plan.npu_arch)
    chunk_rows, grad = rows_per_flush(plan.tiling_key or 0, rules), _sizes(plan)[0]
    # Native 16-bit adds chunks to a second accumulator; each core writes two staged rows to memory.
    staged = element_bytes == 2

    def chunk(columns: int, rows: int) -> Nodes:
        bookkeeping = vector_tile(
            (Copy(WORD_BYTES * rows, rows, times=2),), (fp32.fill(columns),), step=LIST_IN
        )
        copy_in = (Copy(element_bytes * columns, columns, tensor_bytes=grad),)
        add = (fp32.combine(columns),)
        row: Nodes = (vector_tile(copy_in, add, step=ROW_ADDED),)
        if staged:  # a widened row frees its buffer, as in the small-dim kernel
            widening = vector_tile(
                copy_in,
                fp32.widen(columns),
                step=Step(
                    "widen",
                    Text("{row}: its row of grad is copied in and widened", row=SORTED_ROW),
                    GRAD,
                    (),
                    INDICES,
                    LIST_AND_ROW,
                    GRAD,
                ),
            )
            row = widening, vector_tile(vector=add, step=WIDENED_ROW_ADDED)
            flush = vector_tile(vector=add, step=FLUSHED)
        else:
            sums = Copy(WORD_BYTES * columns, columns)
            flush = vector_tile(copy_out=(sums, *_counter(plan)), step=FLUSHED)
        return bookkeeping, Loop(row, rows, "row", 1), flush

    def piece(columns: int, start: int, stop: int) -> Nodes:
        nodes = ranged("sorted rows", start, stop, chunk_rows, lambda rows: chunk(columns, rows))
        stage = vector_tile(
            copy_out=(Copy(WORD_BYTES * columns, columns, times=2),),
            step=Step(
                "stage rows",
                "the first and the last index may go on in another core: their sums go to the "
                "workspace",
                live=ACCUMULATORS,
            ),
        )
        return (*nodes, stage) if staged else nodes

    def core_nodes(start: int, stop: int) -> Nodes:
        dim, longest = params["embeddingDim"], params["formerEmbeddingDim"]
        return _in_pieces(dim, longest, lambda columns: piece(columns, start, stop))

    return vector_phase(
        "rows",
        {work.core: core_nodes(*work.ranges["sorted rows"]) for work in plan.cores},
        out_buffers=2,
    )


def _in_pieces(dim: int, longest: int, body: Callable[[int], Nodes]) -> Nodes:
    """Return the nodes of a row, in a loop over pieces of columns if it does not fit."""
    return body(dim) if dim <= longest else ranged("columns", 0, dim, longest, body)


def _scale(plan: Plan) -> Phase:
    """Return the phase that multiplies every weight row by the reciprocal of its counter."""
    params = plan.tiling["params"]

    def row(columns: int) -> Nodes:
        copy = Copy(WORD_BYTES * columns, columns, tensor_bytes=_sizes(plan)[1])
        return (
            vector_tile(
                (copy, Copy(WORD_BYTES, 1)),
                (Instruction("reciprocal_rsqrt", "float32", 1), fp32.combine_scalar(columns)),
                (copy,),
                Step(
                    "",
                    "weight row {weight rows}: grad_weight times 1 / how often its index occurs",
                    RESULT,
                    RESULT,
                    live=("row in", "counter", "row out"),
                ),
            ),
        )

    def rows_of(start: int, stop: int) -> Nodes:
        body = _in_pieces(params["embeddingDim"], params["formerEmbeddingDim"], row)
        return ranged("weight rows", start, stop, 1, lambda _: body)

    return vector_phase(
        "scale", {work.core: rows_of(*work.ranges["weight rows"]) for work in plan.cores}
    )


def _older_kernel(plan: Plan, rows: int, dim: int, index_bytes: int) -> tuple[Phase, ...]:
    """Return the phases of EmbeddingDenseGrad.

    If it splits rows, every row is an atomic copy. If it splits weights, every core scans all
    indices twice: to count, and to add.
    """
    tiling, grad = plan.tiling, _sizes(plan)[0]
    batch_rows, longest = tiling["batch_rows"], tiling["dim_piece"]

    def batch(columns: int, count: int) -> Nodes:
        return (
            vector_tile(
                (
                    Copy(index_bytes * count, count),
                    Copy(WORD_BYTES * columns * count, columns * count, tensor_bytes=grad),
                ),
                copy_out=(Copy(WORD_BYTES * columns, columns, count),),
                step=ROWS_SPLIT,
            ),
        )

    def batches(columns: int, start: int, stop: int) -> Nodes:
        return ranged("rows", start, stop, batch_rows, lambda count: batch(columns, count))

    def rows_of(start: int, stop: int) -> Nodes:
        return _in_pieces(dim, longest, lambda columns: batches(columns, start, stop))

    if not tiling["splits_weights"]:
        # Rows are written from the buffer that they were read into.
        held = (Hold(VECTOR_PIPES.index("MTE2"), VECTOR_PIPES.index("MTE3"), 1),)
        cores = {work.core: rows_of(*work.ranges["rows"]) for work in plan.cores}
        return (Phase("rows", VECTOR_PIPES, held, cores),)

    def scan(step: Step) -> Nodes:
        def batch_of_indices(count: int) -> Nodes:
            return (vector_tile((Copy(index_bytes * count, count),), step=step),)

        return ranged("indices", 0, rows, batch_rows, batch_of_indices)

    def add(columns: int) -> Nodes:
        vector = fp32.combine_scalar(columns), fp32.combine(columns)
        copy_in = (Copy(WORD_BYTES * columns, columns, tensor_bytes=grad),)
        return (vector_tile(copy_in, vector, (Copy(WORD_BYTES * columns, columns),), FOUND_ADDED),)

    # The rows of a core depend on the data; the slowest core has at least ceil(rows / cores).
    loop = Loop(_in_pieces(dim, longest, add), ceil_div(rows, plan.block_dim), "row", 1)
    counting = {work.core: scan(COUNTED) for work in plan.cores}
    adding = {work.core: (*scan(SEARCHED), loop) for work in plan.cores}
    return vector_phase("count", counting), vector_phase("add", adding)

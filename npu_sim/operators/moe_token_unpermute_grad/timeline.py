"""Timeline of MoeTokenUnpermuteGrad: work of the cores and descriptions of tiles.

Source: specification page ``moe_token_unpermute_grad``, "Instructions and copies of a tile".
"""

from dataclasses import dataclass

from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.orders.trees import fold_adds, width_of
from npu_sim.plans.model import Plan
from npu_sim.timelines import fp32
from npu_sim.timelines.program import (
    Copy,
    Instruction,
    Loop,
    Node,
    Program,
    Work,
    dropped_tokens,
    ranged,
    rows_of_cores,
    vector_phase,
    vector_tile,
)
from npu_sim.timelines.steps import Step, StepTable, View

INDEX_BYTES = 4
BLOCK_SUM = 8
"""Numbers that one tree instruction reduces to one."""


@dataclass(frozen=True)
class _Call:
    """Sizes of a call; ``live`` of the ``entries`` are not dropped."""

    tiling: dict[str, int]
    element_bytes: int
    probs_bytes: int
    entries: int
    live: int

    def live_of(self, count: int) -> int:
        """Return the number of live ones among ``count`` entries, with drops spread evenly."""
        return count * self.live // self.entries


def program(plan: Plan) -> Program:
    """Return the work of every core: groups of entries, each in pieces of rows."""
    size = TensorSpec.parse(plan.arguments["unpermuted_tokens_grad"]).itemsize
    probs = TensorSpec.parse(plan.arguments["probs"]).itemsize if "probs" in plan.arguments else 0
    entries, top_k = TensorSpec.parse(plan.arguments["sorted_indices"]).numel, plan.tiling["topK"]
    call = _Call(plan.tiling, size, probs, entries, min(plan.tiling["numOutTokens"], entries))
    cores = {}
    for core, (start, stop) in rows_of_cores(plan).items():
        body = (lambda count: _sums(call, count)) if probs else (lambda count: _copies(call, count))
        cores[core] = ranged(
            "entries", start * top_k, stop * top_k, plan.tiling["indicesReserveNum"], body
        )
    phase = vector_phase("entries", cores, in_buffers=2, out_buffers=2)
    return Program((phase,), assumptions=(dropped_tokens(call.live, entries),))


def _copies(call: _Call, count: int) -> tuple[Node, ...]:
    """Return the work of key 0: rows of g are copied to the rows of their indices."""
    live = call.live_of(count)

    def piece(columns: int) -> tuple[Node, ...]:
        rows = Copy(call.element_bytes * columns, columns, times=count)
        out = (Copy(call.element_bytes * columns, columns, times=live),) if live else ()
        return (vector_tile((rows,), copy_out=out, note="rows"),)

    indices = vector_tile((Copy(INDEX_BYTES * count, count),), note="indices")
    return indices, *_pieces(call, piece)


def _sums(call: _Call, count: int) -> tuple[Node, ...]:
    """Return the work of key 1: products of rows for a group of entries, and their sums."""
    probs, top_k = call.probs_bytes, call.tiling["topK"]
    copy = (Copy(probs * count, count),)

    def piece(columns: int) -> tuple[Node, ...]:
        sums = vector_tile(vector=(fp32.combine(count),), note="sums")
        return Loop(_token(call, columns), count // top_k, "token", 1), sums

    padded = call.tiling["indicesReserveNumAlign"]
    first = vector_tile(copy, (*_widen(count, probs, padded), fp32.fill(padded)), note="probs")
    last = vector_tile((), _narrow(count, probs, padded), copy, note="gradient of probs")
    return first, *_pieces(call, piece), last


def _pieces(call: _Call, body) -> tuple[Node, ...]:  # type: ignore[no-untyped-def]
    if call.tiling["hiddenSizeLoopTimes"] == 1:
        return tuple(body(call.tiling["hiddenSize"]))
    return ranged("columns", 0, call.tiling["hiddenSize"], call.tiling["hiddenSizeAlign"], body)


def _token(call: _Call, columns: int) -> tuple[Node, ...]:
    """Return the work of one token: its row of g, then the rows of its experts."""
    size, padded = call.element_bytes, call.tiling["hiddenSizeAlign"]
    copy, top_k = Copy(size * columns, columns), call.tiling["topK"]
    wide, narrow = _widen(columns, size, padded), _narrow(columns, size, padded)
    product = (*wide, fp32.combine(columns), *_reduce(columns))
    weighted = (fp32.combine_scalar(columns), *narrow)
    live = vector_tile((), weighted, (copy,), note="row of the gradient")
    dropped = vector_tile(vector=(fp32.fill(padded), *narrow), note="no row")
    live_experts = call.live_of(top_k)
    nodes: list[Node] = [vector_tile((copy,), wide, note="g")]
    if live_experts:
        row = vector_tile((copy,), product, note="row of the experts")
        nodes.append(Loop((live, row), live_experts, "expert", 1))
    if live_experts < top_k:
        nothing = vector_tile(vector=(fp32.fill(padded), *product), note="zeros for a row")
        nodes.append(Loop((dropped, nothing), top_k - live_experts, "expert", 1, live_experts))
    return tuple(nodes)


def _reduce(columns: int) -> tuple[Work, ...]:
    """Return a row sum: fold, block sums down to 8 lanes, and their sum in one repeat."""
    width = width_of(columns)
    sums = [fp32.combine(count) for count in fold_adds(columns)]
    lanes = width or columns
    while width and lanes > BLOCK_SUM:
        sums.append(Instruction("reduce_pair_or_block", "float32", lanes))
        lanes //= BLOCK_SUM
    return (*sums, fp32.add_up(lanes))


def _widen(elements: int, element_bytes: int, padded: int) -> tuple[Work, ...]:
    """Return a cast to fp32; fp32 rows are copied."""
    return fp32.widen(elements, element_bytes) or (fp32.copy(padded),)


def _narrow(elements: int, element_bytes: int, padded: int) -> tuple[Work, ...]:
    """Return a cast from fp32; fp32 rows are copied."""
    return fp32.narrow(elements, element_bytes) or (fp32.copy(padded),)


PROBS = ("probs", "probs in fp32", "probs gradients", "sums", "piece sums", "reserved")

ROWS = (
    "g rows",
    "token rows",
    "result rows",
    "token row in fp32",
    "g in fp32",
    "row products",
    *PROBS,
)


def steps(plan: Plan) -> StepTable:
    """Return the descriptions of the tiles."""
    grad = TensorSpec.parse(plan.arguments["unpermuted_tokens_grad"])
    top_k, (tokens, columns) = plan.tiling["topK"], grad.shape
    # Without permuted_tokens there is one row per index.
    rows_of = plan.arguments.get("permuted_tokens", plan.arguments["sorted_indices"])
    rows = TensorSpec.parse(rows_of).shape[0]
    by_token, by_column = {"tokens": 1, "entries": 1 / top_k, "token": 1}, {"columns": 1}
    views = [
        View("unpermuted_tokens_grad", tokens, columns, by_token, by_column),
        View(
            "sorted_indices",
            tokens * top_k,
            by_row={"tokens": top_k, "entries": 1, "token": top_k, "expert": 1},
        ),
        View("permuted_tokens_grad", rows, columns, by_column=by_column),
    ]
    if "permuted_tokens" in plan.arguments:
        views.insert(1, View("permuted_tokens", rows, columns, by_column=by_column))
    if "probs" not in plan.arguments:
        return StepTable(tuple(views), _copy_steps())
    by_entry = {"expert": 1}
    views += [
        View("probs", tokens, top_k, by_token, by_entry),
        View("probs_grad", tokens, top_k, by_token, by_entry),
    ]
    return StepTable(tuple(views), _sum_steps())


def _copy_steps() -> dict[tuple[str, str], Step]:
    read, written = ("unpermuted_tokens_grad",), ("permuted_tokens_grad",)
    indices = ("sorted_indices",)
    where = "entries {entries}: where their rows are"
    moved = (
        "entries {entries}, columns {columns}: rows of the gradient go to where their indices say"
    )
    return {
        ("entries", "indices"): Step(where, indices, live=("indices",)),
        ("entries", "rows"): Step(moved, read, written, indices, ("indices", "g rows"), written),
    }


def _sum_steps() -> dict[tuple[str, str], Step]:
    where = "token {token} of entries {entries}, columns {columns}"
    held, read = ("probs", "sorted_indices"), ("permuted_tokens",)
    written = ("permuted_tokens_grad",)
    probs = "entries {entries}: their probs are copied in, the sums are cleared"
    g = Text("{where}: its row g of the gradient is copied in", where=where)
    gradient = Text("{where}, expert {{expert}}: g * probs is copied out", where=where)
    product = "the entry's sum += g * row of the experts, folded to one number"
    row = Text("{where}, expert {{expert}}: {product}", where=where, product=product)
    no_row = Text("{where}, expert {{expert}}: a dropped row, nothing is copied out", where=where)
    zeros = Text("{where}, expert {{expert}}: a dropped row counts as zeros", where=where)
    sums = "entries {entries}: the sums of these columns are added to those of the columns before"
    out = "entries {entries}: their sums are rounded and copied out"
    table = {
        "probs": Step(probs, held, live=PROBS),
        "g": Step(g, ("unpermuted_tokens_grad",), (), held, ROWS),
        "row of the gradient": Step(gradient, (), written, held, ROWS, written),
        "row of the experts": Step(row, read, (), held, ROWS, read),
        "no row": Step(no_row, (), (), held, ROWS),
        "zeros for a row": Step(zeros, (), (), held, ROWS),
        "sums": Step(sums, (), (), held, PROBS),
        "gradient of probs": Step(out, (), ("probs_grad",), held, PROBS),
    }
    return {("entries", note): step for note, step in table.items()}

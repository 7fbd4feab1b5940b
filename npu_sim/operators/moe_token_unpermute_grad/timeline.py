"""Timeline of MoeTokenUnpermuteGrad: work of the cores and descriptions of tiles.

Source: specification page ``moe_token_unpermute_grad``, "Instructions and copies of a tile".
"""

from npu_sim.framework.vocabulary import Plan, TensorSpec, Text
from npu_sim.operators.shared.routed_tokens.timeline import TokenSums
from npu_sim.orders import fold_adds, width_of
from npu_sim.timelines import (
    Copy,
    Instruction,
    Loop,
    Node,
    Nodes,
    Program,
    Step,
    View,
    Works,
    dropped_tokens,
    fp32,
    ranged,
    rows_of_cores,
    vector_phase,
    vector_tile,
)

INDEX_BYTES = 4
BLOCK_SUM = 8
"""Numbers that one tree instruction reduces to one."""

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
HELD = ("probs", "sorted_indices")
GRADIENT, WRITTEN = ("unpermuted_tokens_grad",), ("permuted_tokens_grad",)
INDICES_IN = Step(
    "indices", "entries {entries}: where their rows are", ("sorted_indices",), live=("indices",)
)
ROWS_MOVED = Step(
    "rows",
    "entries {entries}, columns {columns}: rows of the gradient go to where their indices say",
    GRADIENT,
    WRITTEN,
    ("sorted_indices",),
    ("indices", "g rows"),
    WRITTEN,
)
PROBS_IN = Step(
    "probs", "entries {entries}: their probs are copied in, the sums are cleared", HELD, live=PROBS
)
SUMS = Step(
    "sums",
    "entries {entries}: the sums of these columns are added to those of the columns before",
    holds=HELD,
    live=PROBS,
)
SUMS_OUT = Step(
    "gradient of probs",
    "entries {entries}: their sums are rounded and copied out",
    (),
    ("probs_grad",),
    HELD,
    PROBS,
)
TOKEN = "token {token} of entries {entries}, columns {columns}"
G_IN = Step(
    "g",
    Text("{where}: its row g of the gradient is copied in", where=TOKEN),
    GRADIENT,
    (),
    HELD,
    ROWS,
)
GRADIENT_OUT = Step(
    "row of the gradient",
    Text("{where}, expert {{expert}}: g * probs is copied out", where=TOKEN),
    (),
    WRITTEN,
    HELD,
    ROWS,
    WRITTEN,
)
PRODUCT = Step(
    "row of the experts",
    Text(
        "{where}, expert {{expert}}: {product}",
        where=TOKEN,
        product="the entry's sum += g * row of the experts, folded to one number",
    ),
    ("permuted_tokens",),
    (),
    HELD,
    ROWS,
    ("permuted_tokens",),
)
NO_ROW = Step(
    "no row",
    Text("{where}, expert {{expert}}: a dropped row, nothing is copied out", where=TOKEN),
    holds=HELD,
    live=ROWS,
)
ZEROS = Step(
    "zeros for a row",
    Text("{where}, expert {{expert}}: a dropped row counts as zeros", where=TOKEN),
    holds=HELD,
    live=ROWS,
)


class _Call(TokenSums):
    """Sizes of a call; rows are those of the gradient, ``kept`` of the ``count`` entries stay."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, "unpermuted_tokens_grad", "permuted_tokens_grad")
        self.tiling, self.count = plan.tiling, self.tokens * self.top_k
        self.kept: int = min(plan.tiling["numOutTokens"], self.count)

    def live_of(self, count: int) -> int:
        """Return the number of live ones among ``count`` entries, with drops spread evenly."""
        return count * self.kept // self.count


def program(plan: Plan) -> Program:
    """Return the work of every core: groups of entries, each in pieces of rows."""
    call = _Call(plan)
    top_k, step = call.top_k, plan.tiling["indicesReserveNum"]
    work = _sums if call.probs else _copies
    cores = {
        core: ranged("entries", start * top_k, stop * top_k, step, lambda count: work(call, count))
        for core, (start, stop) in rows_of_cores(plan).items()
    }
    return Program(
        (vector_phase("entries", cores, in_buffers=2, out_buffers=2),),
        assumptions=(dropped_tokens(call.kept, call.count),),
        views=_views(call),
    )


def _views(call: _Call) -> tuple[View, ...]:
    """Return the tensors; without permuted_tokens there is one row per index."""
    top_k, tokens, columns = call.top_k, call.tokens, call.columns
    given = [name for name in ("permuted_tokens",) if name in call.plan.arguments]
    rows = TensorSpec.parse(call.plan.arguments[(*given, "sorted_indices")[0]]).shape[0]
    by_token, by_column = {"tokens": 1, "entries": 1 / top_k, "token": 1}, {"columns": 1}
    by_entry = {"tokens": top_k, "entries": 1, "token": top_k, "expert": 1}
    probs = ("probs", "probs_grad") if call.probs else ()
    return (
        View("unpermuted_tokens_grad", tokens, columns, by_token, by_column),
        *(View(name, rows, columns, by_column=by_column) for name in given),
        View("sorted_indices", tokens * top_k, by_row=by_entry),
        View("permuted_tokens_grad", rows, columns, by_column=by_column),
        *(View(name, tokens, top_k, by_token, {"expert": 1}) for name in probs),
    )


def _copies(call: _Call, count: int) -> Nodes:
    """Return the work of key 0: rows of g are copied to the rows of their indices."""
    live = call.live_of(count)

    def piece(columns: int) -> Nodes:
        rows = Copy(call.rows.itemsize * columns, columns, times=count)
        out = (Copy(call.rows.itemsize * columns, columns, times=live),) if live else ()
        return (vector_tile((rows,), copy_out=out, step=ROWS_MOVED),)

    indices = vector_tile((Copy(INDEX_BYTES * count, count),), step=INDICES_IN)
    return indices, *_pieces(call, piece)


def _sums(call: _Call, count: int) -> Nodes:
    """Return the work of key 1: products of rows for a group of entries, and their sums."""
    probs, copy = call.probs_bytes, call.probs_in(count)

    def piece(columns: int) -> Nodes:
        sums = vector_tile(vector=(fp32.combine(count),), step=SUMS)
        return Loop(_token(call, columns), count // call.top_k, "token", 1), sums

    padded = call.tiling["indicesReserveNumAlign"]
    first = vector_tile(copy, (*_widen(count, probs, padded), fp32.fill(padded)), step=PROBS_IN)
    last = vector_tile((), _narrow(count, probs, padded), copy, SUMS_OUT)
    return first, *_pieces(call, piece), last


def _pieces(call: _Call, body) -> Nodes:  # type: ignore[no-untyped-def]
    if call.tiling["hiddenSizeLoopTimes"] == 1:
        return tuple(body(call.tiling["hiddenSize"]))
    return ranged("columns", 0, call.tiling["hiddenSize"], call.tiling["hiddenSizeAlign"], body)


def _token(call: _Call, columns: int) -> Nodes:
    """Return the work of one token: its row of g, then the rows of its experts."""
    size, padded = call.rows.itemsize, call.tiling["hiddenSizeAlign"]
    copy, top_k = Copy(size * columns, columns), call.top_k
    wide, narrow = _widen(columns, size, padded), _narrow(columns, size, padded)
    product = (*wide, fp32.combine(columns), *_reduce(columns))
    weighted = (fp32.combine_scalar(columns), *narrow)
    live = (
        vector_tile((), weighted, (copy,), GRADIENT_OUT),
        vector_tile((copy,), product, step=PRODUCT),
    )
    dropped = (
        vector_tile(vector=(fp32.fill(padded), *narrow), step=NO_ROW),
        vector_tile(vector=(fp32.fill(padded), *product), step=ZEROS),
    )
    live_experts = call.live_of(top_k)
    nodes: list[Node] = [vector_tile((copy,), wide, step=G_IN)]
    if live_experts:
        nodes.append(Loop(live, live_experts, "expert", 1))
    if live_experts < top_k:
        nodes.append(Loop(dropped, top_k - live_experts, "expert", 1, live_experts))
    return tuple(nodes)


def _reduce(columns: int) -> Works:
    """Return a row sum: fold, block sums down to 8 lanes, and their sum in one repeat."""
    width = width_of(columns)
    sums = [fp32.combine(count) for count in fold_adds(columns)]
    lanes = width or columns
    while width and lanes > BLOCK_SUM:
        sums.append(Instruction("reduce_pair_or_block", "float32", lanes))
        lanes //= BLOCK_SUM
    return (*sums, fp32.add_up(lanes))


def _widen(elements: int, element_bytes: int, padded: int) -> Works:
    """Return a cast to fp32; fp32 rows are copied."""
    return fp32.widen(elements, element_bytes) or (fp32.copy(padded),)


def _narrow(elements: int, element_bytes: int, padded: int) -> Works:
    """Return a cast from fp32; fp32 rows are copied."""
    return fp32.narrow(elements, element_bytes) or (fp32.copy(padded),)

"""Timeline of MoeTokenUnpermute on Ascend 950: work of the cores and descriptions of tiles.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``moe_token_unpermute_950``, "Tiling" and "Order".
"""

from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Plan
from npu_sim.tiling.ascend_950 import moe_token_unpermute as tiler
from npu_sim.timelines import fp32
from npu_sim.timelines.program import (
    Copy,
    Loop,
    Node,
    Program,
    Work,
    dropped_tokens,
    ranged,
    ranged_cores,
    vector_phase,
    vector_tile,
)
from npu_sim.timelines.steps import Step, StepTable, View


class Call:
    """The call of a plan, in sizes and tensors."""

    def __init__(self, plan: Plan) -> None:
        self.rows = TensorSpec.parse(plan.arguments["permuted_tokens"])
        probs = plan.arguments.get("probs")
        self.probs_bytes = TensorSpec.parse(probs).itemsize if probs else 0
        self.tiling, self.key = plan.tiling, tiler.path_key(plan)
        self.tokens, self.columns, self.top_k = (plan.tiling[name] for name in ("row", "h", "k"))
        self.live = min(self.top_k, self.rows.shape[0] // self.tokens)
        """Rows that a token adds when dropped ones are spread evenly."""

    def row(self, columns: int, rows: int) -> tuple[Work, ...]:
        """Return the copies of as many pieces of rows."""
        return (Copy(self.rows.itemsize * columns, columns, rows, self.rows.nbytes),)

    def probs(self, count: int) -> tuple[Work, ...]:
        """Return the copy of probs; nothing without them."""
        return (Copy(self.probs_bytes * count, count),) if self.probs_bytes else ()

    def result(self, elements: int) -> tuple[Work, ...]:
        """Return the copy of a piece of the result."""
        size = self.rows.itemsize
        return (Copy(size * elements, elements, 1, self.tokens * self.columns * size),)

    def sums(self, elements: int, rows: int) -> tuple[Work, ...]:
        """Return the instructions that add ``rows`` rows of elements."""
        if not rows:
            return ()
        weigh = (fp32.combine(elements, rows),) if self.probs_bytes else ()
        widen = fp32.widen(elements, self.rows.itemsize, rows)
        return (*widen, *weigh, fp32.combine(elements, rows))


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    call = Call(plan)
    bodies = {
        tiler.ALL_TOKENS: _from_buffer,
        tiler.ALL_ROWS: _tokens,
        tiler.SOME_ROWS: _groups,
        tiler.SPLIT_COLUMNS: _pieces,
    }
    cores = ranged_cores(
        plan, "tokens", plan.tiling["rowFactor"], lambda count: bodies[call.key](call, count)
    )
    if call.key == tiler.ALL_TOKENS:
        elements = call.tokens * call.top_k * call.columns
        rows = vector_tile(call.row(elements, 1), note="rows of all tokens")
        cores = {core: (rows, *nodes) for core, nodes in cores.items()}
    phase = vector_phase("tokens", cores, in_buffers=2, out_buffers=2)
    return Program((phase,), assumptions=(dropped_tokens(call.live, call.top_k),))


def _result(call: Call, elements: int) -> Node:
    narrow = fp32.narrow(elements, call.rows.itemsize)
    return vector_tile((), narrow, call.result(elements), note="result")


def _from_buffer(call: Call, tokens: int) -> tuple[Node, ...]:
    """Return the work on a batch of tokens, whose rows are in the buffer."""
    elements = tokens * call.columns
    copies, vector = call.probs(tokens * call.top_k), call.sums(elements, call.live)
    return vector_tile(copies, vector, note="sums"), _result(call, elements)


def _tokens(call: Call, tokens: int) -> tuple[Node, ...]:
    """Return the work on a batch of tokens, all rows of a token at a time."""
    nodes: list[Node] = []
    probs = call.probs(tokens * call.top_k)
    if probs:
        nodes.append(vector_tile(probs, note="probs"))
    if call.live:
        copies, sums = call.row(call.columns, call.live), call.sums(call.columns, call.live)
        nodes.append(Loop((vector_tile(copies, sums, note="rows"),), tokens, "token", 1))
    return (*nodes, _result(call, tokens * call.columns))


def _groups(call: Call, tokens: int) -> tuple[Node, ...]:
    """Return the work on a batch of tokens, a group of rows of one token at a time."""

    def group(rows: int) -> tuple[Node, ...]:
        copies = (*call.probs(rows), *call.row(call.columns, rows))
        return (vector_tile(copies, call.sums(call.columns, rows), note="rows"),)

    groups = ranged("expert", 0, call.live, call.tiling["kFactor"], group)
    batch = (Loop(groups, tokens, "token", 1),) if groups else ()
    return (*batch, _result(call, tokens * call.columns))


def _pieces(call: Call, tokens: int) -> tuple[Node, ...]:
    """Return the work on one token, whose rows are copied in piece by piece."""

    def piece(columns: int) -> tuple[Node, ...]:
        row = vector_tile(call.row(columns, 1), call.sums(columns, 1), note="rows")
        rows = (Loop((row,), call.live, "expert", 1),) if call.live else ()
        return (*rows, _result(call, columns))

    return ranged("columns", 0, call.columns, call.tiling["hFactor"], piece)


def steps(plan: Plan) -> StepTable:
    """Return the descriptions of the tiles."""
    call = Call(plan)
    by_token, by_column = {"tokens": 1, "token": 1}, {"columns": 1}
    by_entry = {"tokens": call.top_k, "token": call.top_k, "expert": 1}
    views = [
        View("permuted_tokens", call.rows.shape[0], call.columns, by_column=by_column),
        View("sorted_indices", call.tokens * call.top_k, by_row=by_entry),
        View("unpermuted_tokens", call.tokens, call.columns, by_token, by_column),
    ]
    entries: tuple[str, ...] = ("sorted_indices",)
    row = "row"
    if call.probs_bytes:
        views.append(View("probs", call.tokens, call.top_k, by_token, {"expert": 1}))
        entries, row = ("sorted_indices", "probs"), "probs * row"
    rows, live, out = ("permuted_tokens",), ("rows", "probs", "sums"), ("unpermuted_tokens",)
    held = ("rows", "indices", "probs", "sums")
    table = {
        "rows of all tokens": Step("the rows of all tokens are copied in", rows, live=live[:1]),
        "probs": Step("tokens {tokens}: their probs are copied in", ("probs",), live=("probs",)),
        "sums": Step(
            Text("tokens {{tokens}}: sum += {row} of every expert, in fp32", row=row),
            entries,
            live=live,
        ),
        "rows": Step(
            Text("token of tokens {{tokens}}: sum += {row} of its experts, in fp32", row=row),
            rows,
            (),
            entries,
            held,
            rows,
        ),
        "result": Step(
            "tokens {tokens}: the sum is rounded once and copied out", writes=out, live=held
        ),
    }
    return StepTable(tuple(views), {("tokens", note): step for note, step in table.items()})

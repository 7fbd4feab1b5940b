"""Timeline of MoeTokenPermuteGrad on Ascend 950: work of the cores and descriptions of tiles.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``moe_token_permute_grad_950``, "Tiling" and "Order".
"""

from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Plan
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
        self.grad = TensorSpec.parse(plan.arguments["permuted_output_grad"])
        tiling = plan.tiling
        self.tokens, self.columns, self.top_k = tiling["n"], tiling["h"], tiling["k"]
        self.live = min(self.top_k, self.grad.shape[0] // self.tokens)
        """Rows that a token reads when dropped ones are spread evenly."""

    def rows(self, elements: int, rows: int) -> tuple[Work, ...]:
        """Return the copies of as many pieces of rows of the gradient."""
        size = self.grad.itemsize * elements
        return (Copy(size, elements, rows, self.grad.nbytes),) if rows else ()

    def result(self, elements: int) -> tuple[Work, ...]:
        """Return the copy of a piece of the result."""
        size = self.grad.itemsize
        return (Copy(size * elements, elements, 1, self.tokens * self.columns * size),)

    def sums(self, elements: int, rows: int) -> tuple[Work, ...]:
        """Return the additions of ``rows`` rows of elements."""
        return (fp32.combine(elements, max(rows, 1)),)


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    call, tiling = Call(plan), plan.tiling
    by_columns = "hBlockFactor" in tiling
    in_chunks = "nUbFactor" in tiling and "kUbFactor" in tiling
    at_once = tiling["kUbFactor"] if by_columns else tiling["nUbFactor"]

    def tokens(columns: int) -> tuple[Node, ...]:
        return ranged("tokens", 0, call.tokens, at_once, lambda count: _sums(call, count, columns))

    def columns(count: int) -> tuple[Node, ...]:
        nodes_of = _chunks if in_chunks else _sums
        return ranged(
            "columns",
            0,
            call.columns,
            tiling["hUbFactor"],
            lambda width: nodes_of(call, count, width),
        )

    if by_columns:
        cores = ranged_cores(plan, "columns", tiling["hUbFactor"], tokens)
    else:
        cores = ranged_cores(plan, "tokens", at_once, columns)
    phase = vector_phase("tokens", cores, in_buffers=2)
    return Program((phase,), assumptions=(dropped_tokens(call.live, call.top_k),))


def _sums(call: Call, tokens: int, columns: int) -> tuple[Node, ...]:
    elements = tokens * columns
    rows, vector = call.rows(elements, call.live), call.sums(elements, call.live)
    return (vector_tile(rows, vector, call.result(elements), note="sum"),)


def _chunks(call: Call, tokens: int, columns: int) -> tuple[Node, ...]:
    """Return the work on one token whose rows are copied in chunk by chunk, as single rows."""
    row = vector_tile(call.rows(columns, 1), call.sums(columns, 1), note="row")
    result = vector_tile((), (), call.result(columns), note="result")
    rows = (Loop((row,), call.live, "expert", 1),) if call.live else ()
    return (*rows, result)


def steps(plan: Plan) -> StepTable:
    """Return the descriptions of the tiles."""
    call = Call(plan)
    by_token, by_column = {"tokens": 1}, {"columns": 1}
    views = (
        View("permuted_output_grad", call.grad.shape[0], call.columns, by_column=by_column),
        View(
            "sorted_indices", call.tokens * call.top_k, by_row={"tokens": call.top_k, "expert": 1}
        ),
        View("input_grad", call.tokens, call.columns, by_token, by_column),
    )
    live, rows, out = ("rows", "result", "sums"), ("permuted_output_grad",), ("input_grad",)
    entries = ("sorted_indices",)
    sums = "tokens {tokens}, columns {columns}: the rows of every token are added in groups of four"
    row = "tokens {tokens}, columns {columns}: a row is copied in and added in groups of four"
    result = "tokens {tokens}, columns {columns}: the sum is rounded once and copied out"
    descriptions = {
        "sum": Step(sums, rows, out, entries, live, rows),
        "row": Step(row, rows, (), entries, live, rows),
        "result": Step(result, writes=out, live=live),
    }
    return StepTable(views, {("tokens", note): step for note, step in descriptions.items()})

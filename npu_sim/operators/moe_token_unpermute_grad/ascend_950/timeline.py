"""Timeline of MoeTokenUnpermuteGrad on Ascend 950: work of the cores and descriptions of tiles.

Rates of vector instructions are not published for this product: the bound is that of the copies.
Whether a core reads the gradient of a token again for every row of it is not described; the bound
counts one time.

Source: specification page ``moe_token_unpermute_grad_950``, "Tiling" and "Order".
"""

from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Plan
from npu_sim.tiling.ascend_950 import moe_token_unpermute_grad as tiler
from npu_sim.timelines import fp32
from npu_sim.timelines.program import (
    Copy,
    Loop,
    Node,
    Program,
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
        self.grad = TensorSpec.parse(plan.arguments["unpermuted_tokens_grad"])
        self.entries = TensorSpec.parse(plan.arguments["sorted_indices"]).numel
        self.tokens, self.columns = self.grad.shape
        self.top_k = self.entries // self.tokens
        probs = plan.arguments.get("probs")
        self.probs_bytes = TensorSpec.parse(probs).itemsize if probs else 0
        self.piece = self.columns
        if plan.tiling_key == tiler.KEY_COPY_PIECES:
            self.piece = plan.tiling["hiddenPrePart"]
        elif plan.tiling_key == tiler.KEY_CUT:
            self.piece = plan.tiling["mainFactor"]

    def gradient(self, columns: int) -> Copy:
        """Return the copy of a piece of a row of the gradient."""
        return Copy(self.grad.itemsize * columns, columns, 1, self.grad.nbytes)

    def row(self, columns: int) -> Copy:
        """Return the copy of a piece of a row of the experts, or of its gradient."""
        size = self.grad.itemsize * columns
        return Copy(size, columns, 1, self.entries * self.columns * self.grad.itemsize)


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    call = Call(plan)
    body = _sums if call.probs_bytes else _copies
    cores = ranged_cores(plan, "rows", call.top_k, lambda count: body(call, count))
    phase = vector_phase("rows", cores, in_buffers=2, out_buffers=2)
    return Program((phase,), assumptions=(dropped_tokens(call.top_k, call.top_k),))


def _copies(call: Call, rows: int) -> tuple[Node, ...]:
    """Return the copy of one row of the gradient."""

    def piece(columns: int) -> tuple[Node, ...]:
        return (vector_tile((call.gradient(columns),), (), (call.row(columns),), note="copy"),)

    return ranged("columns", 0, call.columns, call.piece, piece)


def _sums(call: Call, rows: int) -> tuple[Node, ...]:
    """Return the products and sums of as many rows of one token."""
    size = call.grad.itemsize

    def piece(columns: int) -> tuple[Node, ...]:
        wide, narrow = fp32.widen(columns, size), fp32.narrow(columns, size)
        products = (*wide, fp32.combine(columns), fp32.combine_scalar(columns), *narrow)
        sums = (fp32.combine(columns), fp32.add_up(columns))
        tile = vector_tile(
            (call.row(columns),), (*products, *sums), (call.row(columns),), note="row"
        )
        gradient = vector_tile((call.gradient(columns),), wide, note="gradient")
        return gradient, Loop((tile,), rows, "expert", 1)

    probs = (Copy(call.probs_bytes * rows, rows),)
    last = vector_tile(probs, fp32.narrow(rows, call.probs_bytes), probs, note="probs")
    return (*ranged("columns", 0, call.columns, call.piece, piece), last)


def steps(plan: Plan) -> StepTable:
    """Return the descriptions of the tiles."""
    call = Call(plan)
    by_row, by_column = {"rows": 1, "expert": 1}, {"columns": 1}
    by_token = {"rows": 1 / call.top_k}
    views = [
        View("unpermuted_tokens_grad", call.tokens, call.columns, by_token, by_column),
        View("sorted_indices", call.entries, by_row=by_row),
        View("permuted_tokens_grad", call.entries, call.columns, by_column=by_column),
    ]
    entries, gradient = ("sorted_indices",), ("unpermuted_tokens_grad",)
    written = ("permuted_tokens_grad",)
    copied = "rows {rows}, columns {columns}: a row of the gradient goes to where its index says"
    if not call.probs_bytes:
        copy = Step(copied, gradient, written, entries, ("gradient",), written)
        return StepTable(tuple(views), {("rows", "copy"): copy})
    views += [
        View("permuted_tokens", call.entries, call.columns, by_column=by_column),
        View("probs", call.tokens, call.top_k, by_token, {"expert": 1}),
        View("probs_grad", call.tokens, call.top_k, by_token, {"expert": 1}),
    ]
    live = ("gradient", "tokens", "result", "sums", "slots", "register_sums")
    comes = "rows {rows}, columns {columns}: their row of the gradient is copied in"
    row = "rows {rows}, columns {columns}: gradient * probs is copied out, gradient * row is summed"
    probs = "rows {rows}: their sums are rounded and copied out"
    table = {
        "gradient": Step(comes, gradient, live=live),
        "row": Step(row, ("permuted_tokens",), written, ("sorted_indices", "probs"), live, written),
        "probs": Step(probs, ("probs",), ("probs_grad",), entries, live),
    }
    return StepTable(tuple(views), {("rows", note): step for note, step in table.items()})

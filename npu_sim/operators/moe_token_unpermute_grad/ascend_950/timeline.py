"""Timeline of MoeTokenUnpermuteGrad on Ascend 950.

Whether a core reads the gradient of a token again for every row of it is not described; the bound
counts one time.

Source: specification page ``moe_token_unpermute_grad_950``.
"""

from npu_sim.framework.vocabulary import Plan
from npu_sim.operators.shared.routed_tokens.timeline import TokenSums
from npu_sim.timelines import (
    Copy,
    Loop,
    Nodes,
    Program,
    Step,
    View,
    Works,
    dropped_tokens,
    fp32,
    ranged,
    ranged_cores,
    vector_phase,
    vector_tile,
)

GRADIENT, ENTRIES = ("unpermuted_tokens_grad",), ("sorted_indices",)
WRITTEN = ("permuted_tokens_grad",)
LIVE = ("gradient", "tokens", "result", "sums", "slots", "register_sums")
COPY = Step(
    "copy",
    "rows {rows}, columns {columns}: a row of the gradient goes to where its index says",
    GRADIENT,
    WRITTEN,
    ENTRIES,
    ("gradient",),
    WRITTEN,
)
ROW = Step(
    "row",
    "rows {rows}, columns {columns}: gradient * probs is copied out, gradient * row is summed",
    ("permuted_tokens",),
    WRITTEN,
    ("sorted_indices", "probs"),
    LIVE,
    WRITTEN,
)


class Gradients(TokenSums):
    """Sizes and copies of the kernel; rows are those of the gradient of the tokens."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, "unpermuted_tokens_grad", "permuted_tokens_grad")
        # The columns of a piece, where the kernel has pieces.
        pieces = (plan.tiling.get(name, self.columns) for name in ("hiddenPrePart", "mainFactor"))
        self.piece = min(self.columns, *pieces)

    def row(self, columns: int) -> Works:
        """Return the copy of a piece of a row of the experts, or of its gradient."""
        rows_bytes = self.tokens * self.top_k * self.columns * self.rows.itemsize
        return (Copy(self.rows.itemsize * columns, columns, 1, rows_bytes),)


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    call = Gradients(plan)
    body = _sums if call.probs else _copies
    cores = ranged_cores(plan, "rows", call.top_k, lambda count: body(call, count))
    return Program(
        (vector_phase("rows", cores, in_buffers=2, out_buffers=2),),
        assumptions=(dropped_tokens(call.top_k, call.top_k),),
        views=_views(call),
    )


def _views(call: Gradients) -> tuple[View, ...]:
    by_row, by_column = {"rows": 1, "expert": 1}, {"columns": 1}
    by_token, entries = {"rows": 1 / call.top_k}, call.tokens * call.top_k
    experts: tuple[str, ...] = ("permuted_tokens_grad",)
    probs: tuple[str, ...] = ()
    if call.probs:
        experts, probs = ("permuted_tokens_grad", "permuted_tokens"), ("probs", "probs_grad")
    return (
        View("unpermuted_tokens_grad", call.tokens, call.columns, by_token, by_column),
        View("sorted_indices", entries, by_row=by_row),
        *(View(name, entries, call.columns, by_column=by_column) for name in experts),
        *(View(name, call.tokens, call.top_k, by_token, {"expert": 1}) for name in probs),
    )


def _copies(call: Gradients, rows: int) -> Nodes:
    """Return the copy of one row of the gradient."""

    def piece(columns: int) -> Nodes:
        return (vector_tile(call.rows_in(columns), (), call.row(columns), COPY),)

    return ranged("columns", 0, call.columns, call.piece, piece)


def _sums(call: Gradients, rows: int) -> Nodes:
    """Return the products and sums of as many rows of one token."""
    size = call.rows.itemsize

    def piece(columns: int) -> Nodes:
        wide, narrow = fp32.widen(columns, size), fp32.narrow(columns, size)
        products = (*wide, fp32.combine(columns), fp32.combine_scalar(columns), *narrow)
        sums = (fp32.combine(columns), fp32.add_up(columns))
        tile = vector_tile(call.row(columns), (*products, *sums), call.row(columns), ROW)
        gradient = vector_tile(
            call.rows_in(columns),
            wide,
            step=Step(
                "gradient",
                "rows {rows}, columns {columns}: their row of the gradient is copied in",
                GRADIENT,
                live=LIVE,
            ),
        )
        return gradient, Loop((tile,), rows, "expert", 1)

    probs = call.probs_in(rows)
    last = vector_tile(
        probs,
        fp32.narrow(rows, call.probs_bytes),
        probs,
        Step(
            "probs",
            "rows {rows}: their sums are rounded and copied out",
            ("probs",),
            ("probs_grad",),
            ENTRIES,
            LIVE,
        ),
    )
    return (*ranged("columns", 0, call.columns, call.piece, piece), last)

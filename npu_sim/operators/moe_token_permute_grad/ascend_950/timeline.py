"""Timeline of MoeTokenPermuteGrad on Ascend 950.

Source: specification page ``moe_token_permute_grad_950``.
"""

from npu_sim.framework.vocabulary import Plan
from npu_sim.operators.shared.routed_tokens.timeline import TokenSums
from npu_sim.timelines import (
    Loop,
    Nodes,
    Program,
    Step,
    fp32,
    ranged,
    ranged_cores,
    vector_phase,
    vector_tile,
)

ROWS, ENTRIES, RESULT = ("permuted_output_grad",), ("sorted_indices",), ("input_grad",)
LIVE = ("rows", "result", "sums")
SUM = Step(
    "sum",
    "tokens {tokens}, columns {columns}: the rows of every token are added in groups of four",
    ROWS,
    RESULT,
    ENTRIES,
    LIVE,
    ROWS,
)


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    sums, tiling = TokenSums(plan, "permuted_output_grad", "input_grad"), plan.tiling
    by_columns = "hBlockFactor" in tiling
    in_chunks = "nUbFactor" in tiling and "kUbFactor" in tiling
    at_once = tiling["kUbFactor"] if by_columns else tiling["nUbFactor"]

    def tokens(columns: int) -> Nodes:
        return ranged("tokens", 0, sums.tokens, at_once, lambda count: _sums(sums, count, columns))

    def columns(count: int) -> Nodes:
        nodes_of = _chunks if in_chunks else _sums
        width = tiling["hUbFactor"]
        return ranged("columns", 0, sums.columns, width, lambda cut: nodes_of(sums, count, cut))

    if by_columns:
        cores = ranged_cores(plan, "columns", tiling["hUbFactor"], tokens)
    else:
        cores = ranged_cores(plan, "tokens", at_once, columns)
    return Program(
        (vector_phase("tokens", cores, in_buffers=2),),
        assumptions=(sums.dropped,),
        views=sums.views("tokens"),
    )


def _sums(sums: TokenSums, tokens: int, columns: int) -> Nodes:
    elements = tokens * columns
    added = (fp32.combine(elements, max(sums.live, 1)),)
    return (vector_tile(sums.rows_in(elements, sums.live), added, sums.sums_out(elements), SUM),)


def _chunks(sums: TokenSums, tokens: int, columns: int) -> Nodes:
    """Return the work on one token whose rows are copied in chunk by chunk, as single rows."""
    row = vector_tile(
        sums.rows_in(columns),
        (fp32.combine(columns, 1),),
        step=Step(
            "row",
            "tokens {tokens}, columns {columns}: a row is copied in and added in groups of four",
            ROWS,
            (),
            ENTRIES,
            LIVE,
            ROWS,
        ),
    )
    result = vector_tile(
        copy_out=sums.sums_out(columns),
        step=Step(
            "result",
            "tokens {tokens}, columns {columns}: the sum is rounded once and copied out",
            writes=RESULT,
            live=LIVE,
        ),
    )
    if sums.live == 0:
        return (result,)
    return Loop((row,), sums.live, "expert", 1), result

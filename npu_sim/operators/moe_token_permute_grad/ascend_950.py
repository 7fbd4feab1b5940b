"""MoeTokenPermuteGrad on Ascend 950: own planner, kernel and checks of sizes.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``moe_token_permute_grad_950``.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    SYSTEM_WORKSPACE_BYTES,
    TILING_FAILURE,
    Assumed,
    Case,
    Caveat,
    Condition,
    Decision,
    Description,
    Inspection,
    OutputOrder,
    Plan,
    Run,
    Text,
    caveat,
    checks,
    decision,
    vector_plan,
)
from npu_sim.operators.moe_token_permute_grad.declaration import check_entries
from npu_sim.operators.moe_token_permute_grad.plan import dropped_rows, rows_beyond_int32
from npu_sim.operators.moe_token_permute_grad.study import SUMS
from npu_sim.operators.shared.study import Claim, StudyCall, trees
from npu_sim.operators.shared.timelines import TokenSums
from npu_sim.operators.shared.token_sums import check_padding, negative_indices, sum_rows
from npu_sim.tiling.ascend_950 import moe_token_permute_grad as tiler
from npu_sim.timelines import (
    Loop,
    Node,
    Program,
    Step,
    fp32,
    ranged,
    ranged_cores,
    vector_phase,
    vector_tile,
)

KERNEL = "MoeInitRoutingV2Grad"
FIRST_GROUPED = 4
"""Rows of a token from which on the order differs from that of A2 and A3."""

COLUMNS = Condition(
    "columns over cores",
    Text(
        "num_topk <= {most}, tokens < cores and tokens < hidden // {least} // element bytes",
        most=tiler.MOST_SPLIT_ROWS,
        least=tiler.LEAST_COLUMN_BYTES,
    ),
    lambda row, device, rules: tiler.splits_columns(
        row._replace(tokens=max(row.tokens, 1)), device
    ),
    "every core sums some columns of all tokens",
    "every core sums some tokens",
    ("tokens", "hidden", "num_topk"),
)
ALL_ROWS = Condition(
    "all rows of a token",
    Text(
        "num_topk <= {few}, or 2 * num_topk + 1 padded rows fit the Unified Buffer",
        few=tiler.FEW_ROWS,
    ),
    tiler.holds_all_rows,
    "the rows of a token are added in groups of four",
    "the rows of a token are copied in chunk by chunk; the groups of four restart at every chunk",
    ("num_topk", "hidden"),
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling, (path, reason, per_core) = case.tiling, _texts(case)
    return vector_plan(
        case,
        path=path,
        path_reason=reason,
        per_core=per_core,
        buffers=tiler.buffers(tiling, case.specs["permuted_output_grad"].itemsize)._asdict(),
        ranges=[tiler.core_range(tiling, core) for core in range(tiling.block_dim)],
        unit="column" if tiler.is_column_split(tiling) else "token",
        kernel=KERNEL,
        fields=tiler.vendor_structure(tiling, case.arguments, case.rules),
        conditions=lambda: _decisions(case),
        order=(OutputOrder(output="input_grad", fixed=True, reason=_order(case)),),
        caveats=(*_caveats(case), *dropped_rows(case), *rows_beyond_int32(case)),
    )


def _decisions(case: Case) -> Iterator[Decision]:
    values = {"num_topk": case.row.num_topk, "hidden": case.row.hidden}
    yield decision(case, COLUMNS, **values, tokens=case.row.tokens, cores=case.device.vector_cores)
    if not tiler.is_column_split(case.tiling):
        yield decision(case, ALL_ROWS, **values)


def _texts(case: Case) -> tuple[str, str, str]:
    """Return the path of a plan, its reason, and the work of a core."""
    row, tiling = case.row, case.tiling
    if tiling.ub_rows:
        reason = Text(
            "{top_k} rows of {hidden} columns do not fit the buffer",
            top_k=row.num_topk,
            hidden=row.hidden,
        )
        chunks = Text(
            "{rows} of {top_k} rows of a token and {columns} columns at a time",
            rows=tiling.ub_rows,
            top_k=tiling.top_k,
            columns=tiling.ub_columns,
        )
        return "rows of a token in chunks", reason, chunks
    at_once = Text(
        "up to {tokens} tokens and {columns} columns at a time",
        tokens=tiling.ub_tokens,
        columns=tiling.ub_columns,
    )
    if not tiler.is_column_split(tiling):
        reason = Text("{top_k} rows a token", top_k=row.num_topk)
        return "all rows of a token", reason, at_once
    reason = Text(
        "{tokens} tokens of {hidden} columns on {cores} cores",
        tokens=row.tokens,
        hidden=row.hidden,
        cores=case.device.vector_cores,
    )
    return "columns over cores", reason, at_once


def _order(case: Case) -> str:
    if chunk_rows(case) < case.row.num_topk:
        return Text(
            "every token is summed by one core: its rows in groups of four, which restart after "
            "every {rows} rows",
            rows=chunk_rows(case),
        )
    return "every element is summed by one core: the rows of its token in groups of four"


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Order")."""
    if case.row.num_topk >= FIRST_GROUPED:
        yield caveat(
            "sum_differs_between_products",
            "input_grad",
            "A2 and A3 add the rows of a token one by one, Ascend 950 in groups of four: "
            "the last bits of input_grad can differ from theirs. Read in the public sources; not "
            "run on a device",
        )
    if chunk_rows(case) < case.row.num_topk:
        yield caveat(
            "order_depends_on_sizes",
            "input_grad",
            "the groups of four restart after every {rows} rows, a number that hidden, numTopk "
            "and the dtype decide: other sizes can change the last bits. Read in the public "
            "sources; not run on a device",
            rows=chunk_rows(case),
        )


def chunk_rows(case: Case) -> int:
    """Return the rows of a token after which the groups of four restart."""
    return int(case.tiling.ub_rows or case.row.num_topk)


def compute(run: Run) -> None:
    """Sum the rows of every token; a negative index is a dropped row here."""
    sum_rows(
        run,
        "permuted_output_grad",
        "input_grad",
        run.case.row.num_topk,
        from_zero=True,
        chunk_rows=chunk_rows(run.case),
    )
    run.caveats = tuple(negative_indices(run.tensors["sorted_indices"]))


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

    def tokens(columns: int) -> tuple[Node, ...]:
        return ranged("tokens", 0, sums.tokens, at_once, lambda count: _sums(sums, count, columns))

    def columns(count: int) -> tuple[Node, ...]:
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


def _sums(sums: TokenSums, tokens: int, columns: int) -> tuple[Node, ...]:
    elements = tokens * columns
    added = (fp32.combine(elements, max(sums.live, 1)),)
    return (vector_tile(sums.rows_in(elements, sums.live), added, sums.sums_out(elements), SUM),)


def _chunks(sums: TokenSums, tokens: int, columns: int) -> tuple[Node, ...]:
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
    return (
        *((Loop((row,), sums.live, "expert", 1),) if sums.live else ()),
        vector_tile(
            (),
            (),
            sums.sums_out(columns),
            Step(
                "result",
                "tokens {tokens}, columns {columns}: the sum is rounded once and copied out",
                writes=RESULT,
                live=LIVE,
            ),
        ),
    )


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of a token's sum, one claim per number of rows that were not dropped.

    A claim is about the tokens whose rows are dropped at the same places.
    """
    live, chunk = SUMS.in_range(call), chunk_rows(call.case)
    counts = live.sum(axis=1)
    for count in np.unique(counts[counts > 0]).tolist():
        rows = live[int(np.argmax(counts == count))]
        tokens = np.flatnonzero((live == rows).all(axis=1))
        yield SUMS.claim(call, tokens, sum_tree(rows, chunk))


def sum_tree(live: Sequence[bool] | np.ndarray, chunk: int) -> trees.Tree | None:
    """Return the tree of the rows of a token, given which of them are not dropped."""
    numbers = iter(range(len(live)))
    rows = [next(numbers) if term else None for term in live]
    total: trees.Tree | None = None
    for begin in range(0, len(rows), chunk):
        total = trees.fours(rows[begin : begin + chunk], total)
    return total


def check_top_k(call: Inspection) -> None:
    """Check that num_topk is an integer; its planner checks the range."""
    checks.require_integer("num_topk", call.arguments.num_topk)


def _rows_message(call: Inspection) -> tuple[str, str]:
    return (
        Text("permuted_output_grad has no rows: Ascend 950 refuses it"),
        Text("at least 1 row, at most {entries}", entries=call.size("entries")),
    )


FIELDS: dict[str, Any] = {
    "checks": (
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("permuted_output_grad", checks.product_dtypes),
        checks.Dtypes("sorted_indices", ("int32",)),
        checks.SameDtype("out", "permuted_output_grad"),
        checks.Formats(checks.ND),
        checks.Attributes("padded_mode"),
        check_padding,
        check_top_k,
        checks.Holds("num_topk >= 1", "num_topk"),
        checks.Ranks("permuted_output_grad", 2, 2, TILING_FAILURE),
        checks.Ranks("sorted_indices", 1, 1, TILING_FAILURE),
        check_entries,
        checks.Holds("tokens >= 1", "sorted_indices"),
        checks.Holds("grad_rows >= 1", "permuted_output_grad", _rows_message),
        checks.Holds("hidden >= 1", "permuted_output_grad"),
        checks.Shapes("out", TILING_FAILURE),
    ),
    "tiling": tiler.Tiling,
    "tile": tiler.tile,
    "used_bytes": tiler.used_bytes,
    "assumed": (
        Assumed(
            "system_workspace_bytes",
            SYSTEM_WORKSPACE_BYTES,
            "specification page moe_token_permute_grad_950, Tiling",
        ),
    ),
    "planner_message": None,
}
"""Fields of the declaration that differ on Ascend 950."""

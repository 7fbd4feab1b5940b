"""Plan of MoeTokenPermuteGrad on Ascend 950.

Source: specification page ``moe_token_permute_grad_950``.
"""

from collections.abc import Iterator

from npu_sim.framework.vocabulary import (
    Case,
    Caveat,
    Condition,
    Decision,
    Description,
    OutputOrder,
    Text,
    caveat,
    core_ranges,
    decision,
    vector_plan,
)
from npu_sim.operators.moe_token_permute_grad.plan import dropped_rows, rows_beyond_int32
from npu_sim.tiling.ascend_950 import moe_token_permute_grad as tiler

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


def chunk_rows(case: Case) -> int:
    """Return the rows of a token after which the groups of four restart."""
    return int(case.tiling.ub_rows or case.row.num_topk)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling, (path, reason, per_core) = case.tiling, _texts(case)
    return vector_plan(
        case,
        path=path,
        path_reason=reason,
        per_core=per_core,
        buffers=tiler.buffers(tiling, case.specs["permuted_output_grad"].itemsize)._asdict(),
        ranges=core_ranges(tiler.core_range, tiling),
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

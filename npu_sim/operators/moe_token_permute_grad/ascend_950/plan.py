"""The plan of MoeTokenPermuteGrad on Ascend 950: path, buffers, conditions and warnings.

Source: specification page ``moe_token_permute_grad_950``.
"""

from collections.abc import Iterator
from typing import Any

from npu_sim.framework.case import Case
from npu_sim.framework.describing import Condition, decision, vector_plan
from npu_sim.language import Text
from npu_sim.operators.moe_token_permute_grad.ascend_950.compute import chunk_rows
from npu_sim.operators.moe_token_permute_grad.plan import dropped_rows, rows_beyond_int32
from npu_sim.plans.model import Caveat, OutputOrder
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
        tiler.problem_of_row(row)._replace(tokens=max(row.tokens, 1)), device
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
    lambda row, device, rules: tiler.holds_all_rows(tiler.problem_of_row(row), device),
    "the rows of a token are added in groups of four",
    "the rows of a token are copied in chunk by chunk; the groups of four restart at every chunk",
    ("num_topk", "hidden"),
)


def describe(case: Case) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case."""
    tiling, by_columns = case.tiling, tiler.is_column_split(case.tiling)
    values = {"hidden": case.row.hidden, "num_topk": case.row.num_topk}
    conditions = [
        decision(case, COLUMNS, tokens=case.row.tokens, cores=case.device.vector_cores, **values)
    ]
    if not by_columns:
        conditions.append(decision(case, ALL_ROWS, **values))
    plan = vector_plan(
        case,
        path=_path(tiling),
        path_reason=_path_reason(case),
        per_core=_per_core(tiling),
        buffers=tiler.buffers(tiling, case.specs["permuted_output_grad"].itemsize)._asdict(),
        ranges=[tiler.core_range(tiling, core) for core in range(tiling.block_dim)],
        unit="column" if by_columns else "token",
        kernel=KERNEL,
        conditions=conditions,
        order=(OutputOrder(output="input_grad", fixed=True, reason=_order(case)),),
        caveats=(*_caveats(case), *dropped_rows(case), *rows_beyond_int32(case)),
    )
    return {**plan, "tiling": tiler.vendor_structure(tiling)}


def _path(tiling: tiler.Tiling) -> str:
    if tiler.is_column_split(tiling):
        return "columns over cores"
    return "rows of a token in chunks" if tiling.ub_rows else "all rows of a token"


def _path_reason(case: Case) -> str:
    row, cores = case.row, case.device.vector_cores
    if tiler.is_column_split(case.tiling):
        return Text(
            "{tokens} tokens of {hidden} columns on {cores} cores",
            tokens=row.tokens,
            hidden=row.hidden,
            cores=cores,
        )
    if case.tiling.ub_rows:
        return Text(
            "{top_k} rows of {hidden} columns do not fit the buffer",
            top_k=row.num_topk,
            hidden=row.hidden,
        )
    return Text("{top_k} rows a token", top_k=row.num_topk)


def _per_core(tiling: tiler.Tiling) -> str:
    if tiling.ub_rows:
        return Text(
            "{rows} of {top_k} rows of a token and {columns} columns at a time",
            rows=tiling.ub_rows,
            top_k=tiling.top_k,
            columns=tiling.ub_columns,
        )
    return Text(
        "up to {tokens} tokens and {columns} columns at a time",
        tokens=tiling.ub_tokens,
        columns=tiling.ub_columns,
    )


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
        yield Caveat(
            code="sum_differs_between_products",
            argument="input_grad",
            message="A2 and A3 add the rows of a token one by one, Ascend 950 in groups of four: "
            "the last bits of input_grad can differ from theirs. Read in the public sources; not "
            "run on a device",
        )
    if chunk_rows(case) < case.row.num_topk:
        yield Caveat(
            code="order_depends_on_sizes",
            argument="input_grad",
            message=Text(
                "the groups of four restart after every {rows} rows, a number that hidden, numTopk "
                "and the dtype decide: other sizes can change the last bits. Read in the public "
                "sources; not run on a device",
                rows=chunk_rows(case),
            ),
        )

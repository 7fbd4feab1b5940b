"""Plan of MoeTokenUnpermute on Ascend 950.

Source: specification page ``moe_token_unpermute_950``.
"""

from collections.abc import Callable, Iterator
from typing import Any

from npu_sim.framework.vocabulary import (
    Case,
    Caveat,
    Condition,
    Description,
    Device,
    OutputOrder,
    Text,
    caveat,
    core_ranges,
    decision,
    vector_plan,
)
from npu_sim.operators.shared.routed_tokens.plan import dropped_tokens
from npu_sim.tiling.ascend_950 import moe_token_unpermute as tiler

KERNEL = "MoeFinalizeRoutingV2"

PATHS = {
    tiler.ALL_TOKENS: "rows of all tokens",
    tiler.ALL_ROWS: "all rows of a token",
    tiler.SOME_ROWS: "some rows of a token",
    tiler.SPLIT_COLUMNS: "rows in pieces",
}


def _holds(
    condition: Callable[[tiler.Problem, Device], bool],
) -> Callable[[Any, Device, Any], bool]:
    """Return a condition of the planner as a function of the call's integers.

    Of them only axes change in the search for flips: derived numbers are computed again.
    """

    def holds(row: Any, device: Device, rules: Any) -> bool:
        changed = row._replace(
            top_k=max(row.num_topk, 1) if row.has_probs else 1, hidden=max(row.hidden, 1)
        )
        return condition(tiler.problem_of_row(changed), device)

    return holds


ALL_TOKENS = Condition(
    "rows of all tokens",
    "rows of all tokens + 2 * (probs + sums of a token) fit the Unified Buffer, each in whole "
    "blocks of 32 bytes",
    _holds(tiler.holds_all_tokens),
    "every core holds the rows of all tokens",
    "rows are copied in token by token",
    ("tokens", "hidden", "num_topk"),
)
ALL_ROWS = Condition(
    "all rows of a token",
    "rows + probs + sums of a token fit half of the Unified Buffer, each in whole blocks of 32 "
    "bytes",
    _holds(tiler.holds_all_rows),
    "all rows of a token are in the buffer together",
    "some rows of a token, or pieces of one, are in the buffer at a time",
    ("hidden", "num_topk"),
)
ONE_ROW = Condition(
    "whole rows",
    "a row, its sums and a block of probs fit half of the Unified Buffer",
    _holds(tiler.holds_one_row),
    "whole rows are copied in",
    "rows are copied in piece by piece",
    ("hidden",),
)


def sums_stale_rows(case: Case) -> bool:
    """Return whether dropped entries add what the buffer held (page, ``one_expert_dropped``)."""
    return case.row.top_k == 1 and tiler.path_key(case.tiling) == tiler.ALL_ROWS


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    row, tiling, key = case.row, case.tiling, tiler.path_key(case.tiling)
    tested = {tiler.ALL_TOKENS: 1, tiler.ALL_ROWS: 2}.get(key, 3)
    values = {"rows": row.rows, "tokens": row.tokens, "num_topk": row.top_k, "hidden": row.hidden}
    buffers = tiler.buffers(tiling, row.dtype, tiler.problem_of_row(row).probs)
    return vector_plan(
        case,
        path=PATHS[key],
        path_reason=_path_reason(case),
        per_core=_per_core(tiling),
        buffers=buffers._asdict(),
        ranges=core_ranges(tiler.core_range, tiling),
        unit="token",
        kernel=KERNEL,
        fields=tiler.vendor_structure(tiling, case.arguments, case.rules),
        conditions=lambda: [
            decision(case, condition, **values)
            for condition in (ALL_TOKENS, ALL_ROWS, ONE_ROW)[:tested]
        ],
        order=(
            OutputOrder(
                output="unpermuted_tokens",
                fixed=True,
                reason="every token is summed by one core, from +0 and in k order",
            ),
        ),
        caveats=(*_caveats(case, sum(buffers) - case.device.ub_bytes), *dropped_tokens(row)),
    )


def _path_reason(case: Case) -> str:
    row = case.row
    if tiler.path_key(case.tiling) == tiler.ALL_TOKENS:
        return Text(
            "{entries} rows of {hidden} columns in all", entries=row.entries, hidden=row.hidden
        )
    return Text("{top_k} rows of {hidden} columns a token", top_k=row.top_k, hidden=row.hidden)


def _per_core(tiling: tiler.Tiling) -> str:
    key = tiler.path_key(tiling)
    if key == tiler.SPLIT_COLUMNS:
        return Text("one row in pieces of {columns} columns", columns=tiling.piece_columns)
    if key == tiler.SOME_ROWS:
        return Text(
            "{rows} of {top_k} rows of a token, sums of up to {tokens} tokens",
            rows=tiling.group_rows,
            top_k=tiling.top_k,
            tokens=tiling.batch_tokens,
        )
    return Text("sums of up to {tokens} tokens", tokens=tiling.batch_tokens)


def _caveats(case: Case, beyond: int) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings").

    ``beyond`` is the number of bytes by which the buffers exceed the Unified Buffer.
    """
    row = case.row
    if beyond > 0:
        yield caveat(
            "buffers_beyond_ub",
            "permuted_tokens",
            "the buffers exceed the Unified Buffer by {beyond} bytes, which the planner does "
            "not count; the simulator computes as if not. Read in the public sources; not run "
            "on a device",
            beyond=beyond,
            not_modelled="*",
            since="9.1",
        )
    if row.rows < row.entries and tiler.path_key(case.tiling) == tiler.ALL_TOKENS:
        yield caveat(
            "reads_rows_beyond_tokens",
            "permuted_tokens",
            "every core copies {entries} rows of permuted_tokens, which has {rows}: bytes "
            "behind the tensor are read, and not used. Read in the public sources; not run on "
            "a device",
            entries=row.entries,
            rows=row.rows,
            since="9.1",
        )
    if row.rows < row.entries and sums_stale_rows(case):
        yield caveat(
            "one_expert_dropped",
            "permuted_tokens",
            "at least {dropped} tokens have no row: the product adds what their places in the "
            "Unified Buffer held, the simulator gives 0. Read in the public sources; not run "
            "on a device",
            dropped=row.entries - row.rows,
            since="9.1",
        )

"""MoeTokenUnpermute on Ascend 950: own planner, and checks of sizes.

Rates of vector instructions are not published for this product: the bound is that of the copies.
Rows whose probs are 0 are added as well.

Source: specification page ``moe_token_unpermute_950``.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    FLOAT_DTYPES,
    SYSTEM_WORKSPACE_BYTES,
    TILING_FAILURE,
    Assumed,
    Case,
    Caveat,
    Condition,
    Description,
    Device,
    OutputOrder,
    Plan,
    Result,
    Run,
    Text,
    caveat,
    checks,
    decision,
    vector_plan,
)
from npu_sim.operators.moe_token_unpermute.compute import (
    indices_beyond_rows,
    nonfinite_rows_of_zero_probs,
)
from npu_sim.operators.shared import token_sums
from npu_sim.operators.shared.study import OpenRule, StudyCall
from npu_sim.operators.shared.timelines import TokenSums
from npu_sim.tiling.ascend_950 import moe_token_unpermute as tiler
from npu_sim.timelines import (
    Loop,
    Node,
    Program,
    Step,
    Work,
    fp32,
    ranged,
    ranged_cores,
    vector_phase,
    vector_tile,
)

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
        ranges=[tiler.core_range(tiling, core) for core in range(tiling.block_dim)],
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
        caveats=(
            *_caveats(case, sum(buffers) - case.device.ub_bytes),
            *token_sums.dropped_tokens(row),
        ),
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


def compute(run: Run) -> None:
    """Weight and sum the rows of every token; a negative index is a dropped row here."""
    token_sums.sum_rows(
        run, "permuted_tokens", "unpermuted_tokens", run.case.row.top_k, from_zero=True
    )
    run.caveats = (
        *token_sums.negative_indices(run.tensors["sorted_indices"]),
        *_indices_before_rows(run.tensors["sorted_indices"]),
        *indices_beyond_rows(run),
        *_rows_not_summed(run),
    )


def sums_stale_rows(case: Case) -> bool:
    """Return whether dropped entries add what the buffer held (page, ``one_expert_dropped``)."""
    return case.row.top_k == 1 and tiler.path_key(case.tiling) == tiler.ALL_ROWS


def _indices_before_rows(indices: np.ndarray) -> Iterator[Caveat]:
    """Warn of indices below -1."""
    found = int(np.count_nonzero(indices < -1))
    if found:
        yield caveat(
            "indices_below_minus_one",
            "sorted_indices",
            "{found} indices are below -1: the product reads in front of permuted_tokens there; "
            "the simulator counts them as dropped rows. Read in the public sources; not run on a "
            "device",
            found=found,
        )


def _rows_not_summed(run: Run) -> Iterator[Caveat]:
    """Warn of rows that the product replaces by leftovers, and of nan that A2 does not give."""
    row, indices = run.case.row, run.tensors["sorted_indices"]
    dropped = int(np.count_nonzero((indices < 0) | (indices >= row.rows)))
    if dropped and sums_stale_rows(run.case):
        yield caveat(
            "one_expert_dropped",
            "sorted_indices",
            "{dropped} tokens have no row: the product adds what their places in the Unified "
            "Buffer held, the simulator gives 0. Read in the public sources; not run on a device",
            dropped=dropped,
        )
    found = int(np.count_nonzero((indices >= row.entries) & (indices < row.rows)))
    if found and tiler.path_key(run.case.tiling) == tiler.ALL_TOKENS:
        yield caveat(
            "reads_rows_beyond_tokens",
            "sorted_indices",
            "{found} indices are at or beyond {entries}, and the product copies only so many rows: "
            "it adds leftovers of the Unified Buffer, the simulator the rows. Read in the public "
            "sources; not run on a device",
            found=found,
            entries=row.entries,
        )
    nonfinite = nonfinite_rows_of_zero_probs(run)
    if nonfinite:
        yield caveat(
            "zero_prob_gives_nan",
            "probs",
            "{found} rows with inf or nan have probs of 0 and give nan, as in the formula; A2 and "
            "A3 skip such rows. Read in the public sources; not run on a device",
            found=nonfinite,
        )


HELD = ("rows", "indices", "probs", "sums")


class Sums(TokenSums):
    """The kernel, with its instructions and descriptions of tiles."""

    def step(self, note: str, says: str, **tensors: tuple[str, ...]) -> Step:
        """Return the description of a tile that adds rows."""
        return Step(note, Text(says, row=self.row_name), **tensors)

    def added(self, elements: int, rows: int) -> tuple[Work, ...]:
        """Return the instructions that add ``rows`` rows of elements."""
        if not rows:
            return ()
        weigh = (fp32.combine(elements, rows),) if self.probs else ()
        widen = fp32.widen(elements, self.rows.itemsize, rows)
        return (*widen, *weigh, fp32.combine(elements, rows))

    def row(self, columns: int, rows: int, copies: tuple[Work, ...] = ()) -> Node:
        """Return the tile that adds rows of one token, after further copies."""
        step = self.step(
            "rows",
            "token of tokens {{tokens}}: sum += {row} of its experts, in fp32",
            reads=(self.source,),
            holds=self.entries,
            live=HELD,
            by_data=(self.source,),
        )
        copies = (*copies, *self.rows_in(columns, rows))
        return vector_tile(copies, self.added(columns, rows), step=step)

    def rounded(self, elements: int) -> Node:
        """Return the tile that copies a piece of the result out."""
        return vector_tile(
            (),
            fp32.narrow(elements, self.rows.itemsize),
            self.sums_out(elements),
            Step(
                "result",
                "tokens {tokens}: the sum is rounded once and copied out",
                writes=("unpermuted_tokens",),
                live=HELD,
            ),
        )


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    sums, key = Sums(plan, "permuted_tokens", "unpermuted_tokens"), tiler.path_key(plan)
    bodies = {
        tiler.ALL_TOKENS: _from_buffer,
        tiler.ALL_ROWS: _tokens,
        tiler.SOME_ROWS: _groups,
        tiler.SPLIT_COLUMNS: _pieces,
    }
    cores = ranged_cores(
        plan, "tokens", plan.tiling["rowFactor"], lambda count: bodies[key](sums, count)
    )
    if key == tiler.ALL_TOKENS:
        rows = vector_tile(
            sums.rows_in(sums.tokens * sums.top_k * sums.columns),
            step=Step(
                "rows of all tokens",
                "the rows of all tokens are copied in",
                ("permuted_tokens",),
                live=("rows",),
            ),
        )
        cores = {core: (rows, *nodes) for core, nodes in cores.items()}
    source, indices, *probs, result = sums.views("tokens", "token")
    return Program(
        (vector_phase("tokens", cores, in_buffers=2, out_buffers=2),),
        assumptions=(sums.dropped,),
        views=(source, indices, result, *probs),
    )


def _from_buffer(sums: Sums, tokens: int) -> tuple[Node, ...]:
    """Return the work on a batch of tokens, whose rows are in the buffer."""
    elements = tokens * sums.columns
    step = sums.step(
        "sums",
        "tokens {{tokens}}: sum += {row} of every expert, in fp32",
        reads=sums.entries,
        live=("rows", "probs", "sums"),
    )
    copies, vector = sums.probs_in(tokens * sums.top_k), sums.added(elements, sums.live)
    return vector_tile(copies, vector, step=step), sums.rounded(elements)


def _tokens(sums: Sums, tokens: int) -> tuple[Node, ...]:
    """Return the work on a batch of tokens, all rows of a token at a time."""
    nodes: list[Node] = []
    if sums.probs:
        nodes.append(
            vector_tile(
                sums.probs_in(tokens * sums.top_k),
                step=Step(
                    "probs",
                    "tokens {tokens}: their probs are copied in",
                    ("probs",),
                    live=("probs",),
                ),
            )
        )
    if sums.live:
        nodes.append(Loop((sums.row(sums.columns, sums.live),), tokens, "token", 1))
    return (*nodes, sums.rounded(tokens * sums.columns))


def _groups(sums: Sums, tokens: int) -> tuple[Node, ...]:
    """Return the work on a batch of tokens, a group of rows of one token at a time."""

    def group(rows: int) -> tuple[Node, ...]:
        return (sums.row(sums.columns, rows, sums.probs_in(rows)),)

    groups = ranged("expert", 0, sums.live, sums.plan.tiling["kFactor"], group)
    batch = (Loop(groups, tokens, "token", 1),) if groups else ()
    return (*batch, sums.rounded(tokens * sums.columns))


def _pieces(sums: Sums, tokens: int) -> tuple[Node, ...]:
    """Return the work on one token, whose rows are copied in piece by piece."""

    def piece(columns: int) -> tuple[Node, ...]:
        rows = (Loop((sums.row(columns, 1),), sums.live, "expert", 1),) if sums.live else ()
        return (*rows, sums.rounded(columns))

    return ranged("columns", 0, sums.columns, sums.plan.tiling["hFactor"], piece)


SUMS = token_sums.Sums("permuted_tokens", "unpermuted_tokens", "tokens")
claims, terms = SUMS.claims, SUMS.terms


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield that tokens whose one row was dropped hold anything (page, ``one_expert_dropped``)."""
    dropped = ~SUMS.in_range(call).any(axis=1, keepdims=True)
    if call.case.empty or not dropped.any() or not sums_stale_rows(call.case):
        return
    # An empty interval allows nothing.
    lowest = np.where(dropped, -np.inf, np.inf)
    reason = "the token has no row: the product adds what its place in the Unified Buffer held"
    yield OpenRule("unpermuted_tokens", lowest, -lowest, reason)


FIELDS: dict[str, Any] = {
    "checks": (
        checks.Attributes("padded_mode restore_shape"),
        token_sums.check_padding,
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("permuted_tokens", checks.product_dtypes),
        checks.Dtypes("sorted_indices", ("int32",)),
        checks.Dtypes("probs", FLOAT_DTYPES),
        checks.SameDtype("out", "permuted_tokens"),
        checks.Formats(checks.ND),
        checks.Ranks("permuted_tokens", 2, 2, TILING_FAILURE),
        checks.Ranks("sorted_indices", 1, 1, TILING_FAILURE),
        checks.Ranks("probs", 2, 2, TILING_FAILURE),
        checks.Shapes("permuted_tokens probs sorted_indices", TILING_FAILURE),
        checks.Shapes("out", TILING_FAILURE),
        checks.NothingToDo("tokens == 0 or hidden == 0"),
        checks.Holds("top_k >= 1", "probs"),
    ),
    "tiling": tiler.Tiling,
    "tile": tiler.tile_row,
    "used_bytes": tiler.used_bytes,
    "assumed": (
        Assumed(
            "system_workspace_bytes",
            SYSTEM_WORKSPACE_BYTES,
            "specification page moe_token_unpermute_950, Tiling",
        ),
    ),
    "empty": "empty: no tokens or no columns, nothing runs",
    "planner_message": None,
}
"""Fields of the declaration that differ on Ascend 950."""

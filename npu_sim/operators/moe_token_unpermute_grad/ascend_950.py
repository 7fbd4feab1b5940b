"""MoeTokenUnpermuteGrad on Ascend 950: own planner, sums and checks of sizes.

Rates of vector instructions are not published for this product: the bound is that of the copies.
Whether a core reads the gradient of a token again for every row of it is not described; the bound
counts one time.

Source: specification page ``moe_token_unpermute_grad_950``.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from npu_sim.framework.vocabulary import (
    BLOCK_BYTES,
    FLOAT_DTYPES,
    FP32_BYTES,
    NULL_POINTER,
    SYSTEM_WORKSPACE_BYTES,
    TILING_FAILURE,
    VECTOR_LANES,
    Assumed,
    Case,
    Caveat,
    Condition,
    Derived,
    Description,
    Inspection,
    Plan,
    Result,
    Run,
    TensorSpec,
    Text,
    caveat,
    ceil_div,
    checks,
    decision,
    element_bytes,
    largest_power,
    vector_plan,
)
from npu_sim.operators.moe_token_unpermute_grad.compute import (
    dropped_indices,
    find_last_writers,
    lost_rows,
    write_gradients,
)
from npu_sim.operators.moe_token_unpermute_grad.plan import orders
from npu_sim.operators.moe_token_unpermute_grad.study import row_writes, sum_claim
from npu_sim.operators.shared import token_sums
from npu_sim.operators.shared.study import Claim, LastWrites, StudyCall, trees, width_of
from npu_sim.operators.shared.timelines import TokenSums
from npu_sim.tiling.ascend_950 import moe_token_unpermute_grad as tiler
from npu_sim.timelines import (
    Copy,
    Loop,
    Node,
    Program,
    Step,
    View,
    Work,
    dropped_tokens,
    fp32,
    ranged,
    ranged_cores,
    vector_phase,
    vector_tile,
)

KERNEL = "MoeFinalizeRoutingV2Grad"
SPLIT_ON_A2 = 4096
"""Rows of so many columns and more may be summed in pieces on A2 and A3."""

ORDER = "every sum is one core's, its order depends on hidden and the dtype alone"
PATHS = {
    tiler.KEY_COPY: "copies of whole rows",
    tiler.KEY_COPY_PIECES: "copies of rows in pieces",
    tiler.KEY_WHOLE: "sums of whole rows",
    tiler.KEY_CUT: "sums of rows in blocks",
}

COPIED_WHOLE = Condition(
    "whole rows",
    "hidden <= (Unified Buffer - 32) / element bytes",
    lambda row, device, rules: (
        row.hidden <= tiler.columns_of_copies(element_bytes(row.dtype), device)
    ),
    "rows of the gradient are copied whole",
    "rows of the gradient are copied in pieces",
    ("hidden",),
)
SUMMED_WHOLE = Condition(
    "whole rows",
    "two rows each of gradient, tokens and result fit the Unified Buffer",
    lambda row, device, rules: tiler.holds_row(row.hidden, element_bytes(row.dtype), device),
    "the products of a row are folded once and added as a tree",
    "rows are cut into blocks, each folded and added as a tree; the sums of the blocks are added "
    "in a fixed order",
    ("hidden",),
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    row, tiling = case.row, case.tiling
    condition = SUMMED_WHOLE if row.has_probs else COPIED_WHOLE
    return vector_plan(
        case,
        path=PATHS[tiling.tiling_key],
        path_reason=Text(
            "{probs}, {hidden} columns",
            probs="with probs" if row.has_probs else "without probs",
            hidden=row.hidden,
        ),
        per_core=_per_core(tiling),
        buffers=tiler.buffers(tiling, element_bytes(row.dtype))._asdict(),
        ranges=[tiler.core_range(tiling, core) for core in range(tiling.block_dim)],
        unit="row",
        kernel=KERNEL,
        fields=tiler.vendor_structure(tiling, case.arguments, case.rules),
        conditions=lambda: [decision(case, condition, hidden=row.hidden)],
        order=lambda: orders(case, ORDER),
        caveats=_caveats(case),
    )


def _per_core(tiling: tiler.Tiling) -> str:
    if tiling.tiling_key == tiler.KEY_CUT:
        return Text(
            "one row at a time, in {blocks} blocks of {columns} columns and what lies behind",
            blocks=tiling.cut.main_blocks,
            columns=tiling.cut.main_columns,
        )
    return "one row at a time"


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings")."""
    row, tiling, size = case.row, case.tiling, element_bytes(case.row.dtype)
    if not row.has_probs:
        yield caveat(
            "probs_grad_not_written",
            "probs_grad",
            "without probs the call needs probsGradOut, and leaves in it what memory held. "
            "Read in the public sources; not run on a device",
        )
        return
    if row.hidden >= SPLIT_ON_A2 or width_of(row.hidden) not in (0, largest_power(row.hidden)):
        yield caveat(
            "sum_differs_between_products",
            "probs_grad",
            "A2 and A3 fold the products of a row in another way than Ascend 950: the last "
            "bits of probs_grad can differ from theirs. Read in the public sources; not run on a "
            "device",
        )
    beyond = _zeros_beyond(case)
    if beyond > 0:
        yield caveat(
            "zeros_behind_buffer",
            "unpermuted_tokens_grad",
            "the kernel stores zeros up to {beyond} bytes beyond the Unified Buffer; the "
            "simulator computes as if not. Read in the public sources; not run on a device",
            beyond=beyond,
            not_modelled="*",
            since="9.1",
        )
    if tiling.tiling_key == tiler.KEY_CUT and row.hidden * size % BLOCK_BYTES:
        yield caveat(
            "reads_behind_row",
            "permuted_tokens",
            "the last piece of a row is copied in whole blocks of 32 bytes: bytes behind "
            "the tensor are read at the last row, and not used. Read in the public sources; not "
            "run on a device",
        )


def _zeros_beyond(case: Case) -> int:
    """Return how far the stores of key 20011 pass the Unified Buffer; 0 or less if they do not."""
    tiling, hidden = case.tiling, case.row.hidden
    if tiling.tiling_key != tiler.KEY_WHOLE or hidden <= VECTOR_LANES:
        return 0
    used = tiler.used_bytes(case.row, tiling, case.device, case.rules)
    stored = FP32_BYTES * ceil_div(hidden, VECTOR_LANES)
    return used - tiler.register_sum_bytes(hidden) + stored - case.device.ub_bytes


def compute(run: Run) -> None:
    """Compute both gradients; a negative index is a dropped row here."""
    tiling, indices = run.case.tiling, run.tensors["sorted_indices"]
    with run.watch.stage("check"):
        stops = [tiler.core_range(tiling, core)[1] for core in range(tiling.block_dim)]
        writers = find_last_writers(indices, tiling.entries, stops, run.order)
    cut = tiling.cut.main_columns, tiling.cut.main_blocks
    write_gradients(run, writers, tiling.hidden, folds_once=True, cut=cut)
    run.caveats = (
        *token_sums.negative_indices(indices),
        *dropped_indices(indices, tiling.entries),
        *lost_rows(writers),
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

    def row(self, columns: int) -> tuple[Work, ...]:
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
    experts = ("permuted_tokens_grad", *(("permuted_tokens",) if call.probs else ()))
    probs = ("probs", "probs_grad") if call.probs else ()
    return (
        View("unpermuted_tokens_grad", call.tokens, call.columns, by_token, by_column),
        View("sorted_indices", entries, by_row=by_row),
        *(View(name, entries, call.columns, by_column=by_column) for name in experts),
        *(View(name, call.tokens, call.top_k, by_token, {"expert": 1}) for name in probs),
    )


def _copies(call: Gradients, rows: int) -> tuple[Node, ...]:
    """Return the copy of one row of the gradient."""

    def piece(columns: int) -> tuple[Node, ...]:
        return (vector_tile(call.rows_in(columns), (), call.row(columns), COPY),)

    return ranged("columns", 0, call.columns, call.piece, piece)


def _sums(call: Gradients, rows: int) -> tuple[Node, ...]:
    """Return the products and sums of as many rows of one token."""
    size = call.rows.itemsize

    def piece(columns: int) -> tuple[Node, ...]:
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


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of a gradient of probs; the other gradient is not a sum."""
    if "probs" in call.tensors:
        tiling = call.case.tiling
        yield sum_claim(call, row_tree(tiling.hidden, tiling.cut))


def row_tree(hidden: int, cut: tiler.Cut) -> trees.Tree | None:
    """Return the tree of the products of a row; ``cut`` has no blocks for one that is not cut."""
    columns = range(hidden)
    if not cut.main_blocks:
        return block_tree(columns)
    main, half = cut.main_columns, cut.columns
    behind, added = main * cut.main_blocks, cut.blocks + cut.tail_blocks
    slots = [
        block_tree(
            [
                *columns[number * half : (number + 1) * half],
                *columns[behind + number * half : behind + (number + 1) * half],
            ]
        )
        for number in range(added)
    ]
    if added % 2:
        slots.append(block_tree(columns[added * half : (added + 1) * half]))
    first = (added + 1) // 2
    slots += [
        block_tree(columns[number * main : (number + 1) * main])
        for number in range(first, cut.main_blocks)
    ]
    whole = len(slots) // trees.SLOTS * trees.SLOTS
    full = [_cross(slots[begin : begin + trees.SLOTS]) for begin in range(0, whole, trees.SLOTS)]
    return trees.join(_cross(slots[whole:]), _cross(full))


def block_tree(terms: Sequence[trees.Tree]) -> trees.Tree | None:
    """Return the tree of the products of one block (page, ``qsum``)."""
    if len(terms) < trees.LANES:
        return trees.tree64(terms)
    registers = trees.registers(trees.fold(terms, trees.largest_power(len(terms))))
    sums = [trees.tree64(register) for register in registers]
    return trees.tree64(trees.halve(trees.registers(sums)))


def _cross(slots: trees.Values) -> trees.Tree | None:
    """Return the sum of up to 256 slots (page, ``cross``)."""
    first, second, third, fourth = trees.registers(trees.padded(slots, trees.SLOTS))
    return trees.tree64(trees.added(trees.added(first, third), trees.added(second, fourth)))


def writes(call: StudyCall, result: Result, output: str) -> Iterator[LastWrites]:
    """Yield the rows that several cores write, and of every core the row that it writes last."""
    tiling = call.case.tiling
    stops = [tiler.core_range(tiling, core)[1] for core in range(tiling.block_dim)]
    yield from row_writes(call, result, output, stops)


MOST_COLUMNS = 65535 * 10400
"""Columns up to which the sums of fp32 rows are described (page, "Order": 65536 slots are not)."""


def _missing_message(call: Inspection) -> tuple[str, str]:
    return (
        "permuted_tokens is missing",
        "permuted_tokens: rows of the experts, (tokens * num_topk, hidden); Ascend 950 needs it "
        "without probs too",
    )


def check_tokens(call: Inspection) -> None:
    """Check the shape of permuted_tokens; without probs the product does not look at it."""
    if "probs" in call.specs:
        checks.Shapes("permuted_tokens", TILING_FAILURE)(call)
    elif "permuted_tokens_grad" not in call.specs:
        shape = call.size("entries"), call.size("hidden")
        dtype = call.specs["unpermuted_tokens_grad"].dtype
        call.specs["permuted_tokens_grad"] = TensorSpec.known(shape, dtype)


def _rows_message(call: Inspection) -> tuple[str, str]:
    rows, entries = call.size("rows"), call.size("entries")
    return Text(
        "permuted_tokens has {rows} rows, sorted_indices {entries} elements",
        rows=rows,
        entries=entries,
    ), Text("{entries} rows, one for every index: Ascend 950 refuses dropped rows", entries=entries)


FIELDS: dict[str, Any] = {
    "derived": (*token_sums.DERIVED, Derived("rows", "entries")),
    "checks": (
        checks.Attributes("padded_mode restore_shape"),
        token_sums.check_padding,
        checks.Given(),
        checks.Holds("has_tokens == 1", "permuted_tokens", _missing_message, NULL_POINTER),
        checks.Supported(),
        checks.Dtypes("unpermuted_tokens_grad", checks.product_dtypes),
        checks.SameDtype("permuted_tokens permuted_tokens_grad", "unpermuted_tokens_grad"),
        checks.Dtypes("sorted_indices", ("int32",)),
        checks.Dtypes("probs probs_grad", FLOAT_DTYPES),
        checks.Ranks("sorted_indices", 1),
        checks.Formats(checks.ND),
        checks.Ranks("unpermuted_tokens_grad", 2, 2, TILING_FAILURE),
        checks.Ranks("sorted_indices", 1, 1, TILING_FAILURE),
        checks.Ranks("probs", 2, 2, TILING_FAILURE),
        checks.Shapes("unpermuted_tokens_grad", TILING_FAILURE),
        checks.Shapes("probs", TILING_FAILURE),
        checks.Shapes("sorted_indices", TILING_FAILURE),
        check_tokens,
        checks.SameDtype("probs_grad", "probs", TILING_FAILURE),
        checks.Holds("rows == entries", "permuted_tokens", _rows_message),
        checks.Shapes("permuted_tokens_grad probs_grad", TILING_FAILURE),
        checks.NothingToDo("entries == 0 or (hidden == 0 and has_probs == 0)"),
        checks.Holds("hidden >= 1", "unpermuted_tokens_grad"),
        checks.Holds(f"hidden <= {MOST_COLUMNS} or has_probs == 0", "unpermuted_tokens_grad"),
    ),
    "tiling": tiler.Tiling,
    "tile": tiler.tile,
    "used_bytes": tiler.used_bytes,
    "assumed": (
        Assumed(
            "system_workspace_bytes",
            SYSTEM_WORKSPACE_BYTES,
            "specification page moe_token_unpermute_grad_950, Tiling",
        ),
    ),
    "empty": "empty: no tokens or no columns, nothing runs",
    "planner_message": None,
}
"""Fields of the declaration that differ on Ascend 950."""

"""Plan of MoeTokenUnpermuteGrad on Ascend 950.

Source: specification page ``moe_token_unpermute_grad_950``.
"""

from collections.abc import Iterator

from npu_sim.framework.vocabulary import (
    BLOCK_BYTES,
    FP32_BYTES,
    VECTOR_LANES,
    Case,
    Caveat,
    Condition,
    Description,
    Text,
    caveat,
    ceil_div,
    core_ranges,
    decision,
    element_bytes,
    largest_power,
    vector_plan,
)
from npu_sim.operators.moe_token_unpermute_grad.plan import orders
from npu_sim.operators.shared.study import width_of
from npu_sim.tiling.ascend_950 import moe_token_unpermute_grad as tiler

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


def _zeros_beyond(case: Case) -> int:
    """Return how far the stores of key 20011 pass the Unified Buffer; 0 or less if they do not."""
    tiling, hidden = case.tiling, case.row.hidden
    if tiling.tiling_key != tiler.KEY_WHOLE or hidden <= VECTOR_LANES:
        return 0
    used = tiler.used_bytes(case.row, tiling, case.device, case.rules)
    stored = FP32_BYTES * ceil_div(hidden, VECTOR_LANES)
    return used - tiler.register_sum_bytes(hidden) + stored - case.device.ub_bytes


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
        ranges=core_ranges(tiler.core_range, tiling),
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

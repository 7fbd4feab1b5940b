"""The plan of MoeTokenUnpermuteGrad on Ascend 950: path, buffers, conditions and warnings.

Source: specification page ``moe_token_unpermute_grad_950``.
"""

from collections.abc import Iterator
from typing import Any

from npu_sim.framework.case import Case
from npu_sim.framework.describing import Condition, decision, vector_plan
from npu_sim.language import Text
from npu_sim.operators.moe_token_unpermute_grad.plan import SAME_ROW
from npu_sim.orders.trees import width_of
from npu_sim.plans.model import Caveat, OutputOrder
from npu_sim.tiling.ascend_950 import moe_token_unpermute_grad as tiler
from npu_sim.tiling.ascend_950.common import largest_power
from npu_sim.tiling.common import BLOCK_BYTES, FP32_BYTES, VECTOR_LANES, ceil_div, element_bytes

KERNEL = "MoeFinalizeRoutingV2Grad"
SPLIT_ON_A2 = 4096
"""Rows of so many columns and more may be summed in pieces on A2 and A3."""

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


def describe(case: Case) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case."""
    row, tiling = case.row, case.tiling
    ranges = [tiler.core_range(tiling, core) for core in range(tiling.block_dim)]
    plan = vector_plan(
        case,
        path=PATHS[tiling.tiling_key],
        path_reason=_path_reason(case),
        per_core=_per_core(tiling),
        buffers=tiler.buffers(tiling, element_bytes(row.dtype))._asdict(),
        ranges=ranges,
        unit="row",
        kernel=KERNEL,
        conditions=[decision(case, SUMMED_WHOLE if row.has_probs else COPIED_WHOLE)],
        order=tuple(_order(case)),
        caveats=tuple(_caveats(case)),
    )
    return {**plan, "tiling": tiler.vendor_structure(tiling)}


def _path_reason(case: Case) -> str:
    probs = "with probs" if case.row.has_probs else "without probs"
    return Text("{probs}, {hidden} columns", probs=probs, hidden=case.row.hidden)


def _per_core(tiling: tiler.Tiling) -> str:
    if tiling.tiling_key == tiler.KEY_CUT:
        return Text(
            "one row at a time, in {blocks} blocks of {columns} columns and what lies behind",
            blocks=tiling.cut.main_blocks,
            columns=tiling.cut.main_columns,
        )
    return "one row at a time"


def _order(case: Case) -> Iterator[OutputOrder]:
    yield OutputOrder(output="permuted_tokens_grad", fixed=True, reason=SAME_ROW)
    if case.row.has_probs:
        reason = "every sum is one core's, its order depends on hidden and the dtype alone"
        yield OutputOrder(output="probs_grad", fixed=True, reason=reason)


def _sums_differ(hidden: int) -> bool:
    """Return whether sums can have other last bits than on A2 and A3."""
    return hidden >= SPLIT_ON_A2 or width_of(hidden) not in (0, largest_power(hidden))


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings")."""
    row, tiling, size = case.row, case.tiling, element_bytes(case.row.dtype)
    if not row.has_probs:
        yield Caveat(
            code="probs_grad_not_written",
            argument="probs_grad",
            message="without probs the call needs probsGradOut, and leaves in it what memory held. "
            "Read in the public sources; not run on a device",
        )
        return
    if _sums_differ(row.hidden):
        yield Caveat(
            code="sum_differs_between_products",
            argument="probs_grad",
            message="A2 and A3 fold the products of a row in another way than Ascend 950: the last "
            "bits of probs_grad can differ from theirs. Read in the public sources; not run on a "
            "device",
        )
    beyond = _zeros_beyond(case)
    if beyond > 0:
        yield Caveat(
            code="zeros_behind_buffer",
            argument="unpermuted_tokens_grad",
            message=Text(
                "the kernel stores zeros up to {beyond} bytes beyond the Unified Buffer; the "
                "simulator computes as if not. Read in the public sources; not run on a device",
                beyond=beyond,
            ),
        )
    if tiling.tiling_key == tiler.KEY_CUT and row.hidden * size % BLOCK_BYTES:
        yield Caveat(
            code="reads_behind_row",
            argument="permuted_tokens",
            message="the last piece of a row is copied in whole blocks of 32 bytes: bytes behind "
            "the tensor are read at the last row, and not used. Read in the public sources; not "
            "run on a device",
        )


def _zeros_beyond(case: Case) -> int:
    """Return how far the stores of key 20011 pass the Unified Buffer; 0 or less if they do not."""
    tiling, hidden = case.tiling, case.row.hidden
    if tiling.tiling_key != tiler.KEY_WHOLE or hidden <= VECTOR_LANES:
        return 0
    used = tiler.used_bytes(case.row, tiling, case.device, case.rules)
    begin = used - tiler.register_sum_bytes(hidden)
    return begin + FP32_BYTES * ceil_div(hidden, VECTOR_LANES) - case.device.ub_bytes

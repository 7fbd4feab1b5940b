"""The plan of MoeTokenPermuteGrad: how tokens and columns are split, what lies in the Unified Buffer, and why.

Source: specification pages ``moe_token_permute_grad`` and ``workspace``.
"""

from typing import Any

from npu_sim.operators.contract.case import Case
from npu_sim.plans.model import Allocation, Caveat, CoreWork, Decision, Flip, Memory, OutputOrder
from npu_sim.plans.workspace import kernel_workspace
from npu_sim.plans.workspace_model import Workspace, WorkspacePart
from npu_sim.tiling import moe_token_permute_grad as moe
from npu_sim.tiling.fields import vendor_fields
from npu_sim.tiling.integers import align

INT32_MAX = 2147483647


def describe(case: Case) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case, which has a tiling."""
    tiling = case.tiling
    ranges = [moe.token_range(tiling, core) for core in range(tiling.block_dim)]
    return {
        "kernel": case.operator.title,
        "path": _path(tiling),
        "path_reason": _path_reason(case, tiling),
        "tiling_key": tiling.tiling_key,
        "block_dim": tiling.block_dim,
        "cores_note": _cores_note(tiling),
        "per_core": _per_core(tiling),
        "tiling": vendor_fields(tiling),
        "cores": tuple(CoreWork(core=core, ranges={"tokens": tokens}) for core, tokens in enumerate(ranges)),
        "memories": (_memory(case, tiling),),
        "decisions": _decisions(case, tiling),
        "workspace": _workspace(case, tiling),
        "order": (_order(),),
        "caveats": _caveats(case),
    }


def element_bytes(case: Case) -> int:
    """Return the bytes of one element of gradient and output."""
    return case.specs["permuted_output_grad"].itemsize


def _longest(case: Case, buffers: int = moe.FEWEST_BUFFERS) -> int:
    """Return the longest piece of a row that fits with so many input rows."""
    return moe.max_hidden(case.device.ub_bytes, buffers, element_bytes(case))


def _bytes_left(case: Case) -> int:
    """Return the bytes that rows leave for indices."""
    return moe.bytes_for_indices(case.device.ub_bytes, case.row.hidden, element_bytes(case))


def _is_split(tiling: moe.Tiling) -> bool:
    return tiling.hidden_length < tiling.hidden


def _path(tiling: moe.Tiling) -> str:
    return "rows in pieces" if _is_split(tiling) else "whole rows"


def _path_reason(case: Case, tiling: moe.Tiling) -> str:
    longest = _longest(case)
    if not _is_split(tiling):
        return f"hidden {case.row.hidden} <= {longest}"
    rest = f", then {tiling.hidden_remainder}" if tiling.hidden_remainder else ""
    return f"hidden {case.row.hidden} > {longest}; {tiling.hidden_pieces} of {tiling.hidden_length} columns{rest}"


def _count(tokens: int) -> str:
    return "1 token" if tokens == 1 else f"{tokens} tokens"


def _cores_note(tiling: moe.Tiling) -> str:
    if tiling.core_remainder == 0:
        return f"{_count(tiling.core_tokens)} each"
    others = tiling.block_dim - tiling.core_remainder
    return f"{_count(tiling.core_tokens + 1)} on {tiling.core_remainder} cores, {tiling.core_tokens} on {others}"


def _per_core(tiling: moe.Tiling) -> str:
    rows = f"{tiling.buffers} rows of grad in flight"
    if tiling.batches == 1 and tiling.batch_remainder == 0:
        return f"indices of {_count(tiling.batch_tokens)} at once; {rows}"
    batches = "one batch" if tiling.batches == 1 else f"{tiling.batches} batches"
    rest = f" and one of {tiling.batch_remainder}" if tiling.batch_remainder else ""
    return f"indices in {batches} of {_count(tiling.batch_tokens)}{rest}; {rows}"


def _memory(case: Case, tiling: moe.Tiling) -> Memory:
    length = align(tiling.hidden_length, moe.HIDDEN_ALIGNMENT)
    row_bytes = length * element_bytes(case)
    index_bytes = tiling.batch_tokens * tiling.top_k * moe.INDEX_BYTES
    buffers = [
        Allocation(name="token rows", bytes=tiling.buffers * row_bytes, note=f"{tiling.buffers} input rows"),
        Allocation(name="indices", bytes=index_bytes, note=f"of {tiling.batch_tokens} tokens"),
        Allocation(name="result row", bytes=row_bytes),
    ]
    if element_bytes(case) == 2:
        buffers.append(Allocation(name="sum in fp32", bytes=4 * length + moe.MARGIN_BYTES))
        buffers.append(Allocation(name="row in fp32", bytes=4 * length))
    return Memory(name="UB", capacity_bytes=case.device.ub_bytes, allocations=tuple(buffers))


def _decisions(case: Case, tiling: moe.Tiling) -> tuple[Decision, ...]:
    return (_split_decision(case, tiling), *_buffer_decisions(case, tiling), _topk_decision(case), _batch_decision(case, tiling))


def _split_decision(case: Case, tiling: moe.Tiling) -> Decision:
    longest = _longest(case)
    whole = not _is_split(tiling)
    return Decision(
        name="whole rows",
        condition="align(hidden, 512) <= longest piece that fits with 2 input rows",
        values={"align(hidden, 512)": align(case.row.hidden, moe.HIDDEN_ALIGNMENT), "longest": longest},
        outcome=whole,
        effect="a row of grad is summed in one piece" if whole else f"rows are summed in pieces of {longest} columns, to the same sums",
        flips=(Flip(argument="hidden", value=longest + 1 if whole else longest),),
    )


def _buffer_decisions(case: Case, tiling: moe.Tiling) -> tuple[Decision, ...]:
    """One decision for every number of input rows that was tried."""
    decisions = []
    for buffers in range(moe.MOST_BUFFERS, max(tiling.buffers, moe.FEWEST_BUFFERS + 1) - 1, -1):
        longest = _longest(case, buffers)
        fits = tiling.hidden_length <= longest
        decisions.append(
            Decision(
                name=f"{buffers} input rows",
                condition=f"length <= longest piece that fits with {buffers} input rows",
                values={"length": tiling.hidden_length, "longest": longest},
                outcome=fits,
                effect=f"{buffers} rows of grad are in flight" if fits else f"fewer than {buffers} rows of grad are in flight",
                flips=(Flip(argument="hidden", value=longest + 1 if fits else longest),),
            )
        )
    return tuple(decisions)


def _topk_decision(case: Case) -> Decision:
    left = _bytes_left(case)
    return Decision(
        name="indices of a token fit",
        condition=f"{moe.INDEX_BYTES} * numTopk <= bytes left beside the rows",
        values={"numTopk": case.row.num_topk, "bytes left": left},
        outcome=True,
        effect="the kernel can work",
        flips=(Flip(argument="num_topk", value=left // moe.INDEX_BYTES + 1),),
    )


def _batch_decision(case: Case, tiling: moe.Tiling) -> Decision:
    left = _bytes_left(case)
    needed = tiling.core_tokens * tiling.top_k * moe.INDEX_BYTES
    most_tokens = left // (tiling.top_k * moe.INDEX_BYTES)
    one_batch = needed <= left
    beyond = (most_tokens + 1) * case.device.vector_cores
    return Decision(
        name="indices in one batch",
        condition=f"tokens of a core * numTopk * {moe.INDEX_BYTES} <= bytes left beside the rows",
        values={"tokens of a core": tiling.core_tokens, "bytes needed": needed, "bytes left": left},
        outcome=one_batch,
        effect="indices are copied at once" if one_batch else f"indices are copied for {_count(tiling.batch_tokens)} at a time",
        flips=(Flip(argument="tokens", value=beyond if one_batch else beyond - 1),),
    )


def _workspace(case: Case, tiling: moe.Tiling) -> Workspace:
    own = WorkspacePart(name="system", bytes=tiling.workspace_bytes, kind="system")
    return kernel_workspace((own,), case.copies, case.operator.title)


def _order() -> OutputOrder:
    reason = "every token is summed by one core, its rows in k order; nothing is added atomically"
    return OutputOrder(output="input_grad", deterministic=True, reason=reason)


def _caveats(case: Case) -> tuple[Caveat, ...]:
    caveats, row, documented = [], case.row, case.rules.num_topk_at_most
    dropped = row.entries - row.grad_rows
    if dropped:
        message = f"permutedOutputGrad has {row.grad_rows} rows for {row.entries} indices: {dropped} were dropped and contribute nothing"
        caveats.append(Caveat(code="dropped_rows", argument="permuted_output_grad", message=message))
    if 0 <= documented < row.num_topk:
        message = f"numTopk {row.num_topk} exceeds the documented {documented}; the Unified Buffer holds it"
        caveats.append(Caveat(code="topk_beyond_documented", argument="num_topk", message=message))
    if row.grad_rows > INT32_MAX + 1:
        message = f"int32 indices reach row {INT32_MAX} at most, permutedOutputGrad has {row.grad_rows} rows"
        caveats.append(Caveat(code="rows_beyond_int32", argument="sorted_indices", message=message))
    return tuple(caveats)

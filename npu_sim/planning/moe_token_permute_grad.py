"""The plan of MoeTokenPermuteGrad: how tokens and columns are split, what lies in the Unified Buffer, and why.

Source: specification pages ``moe_token_permute_grad`` and ``workspace``.
"""

from dataclasses import dataclass
from typing import Any

from npu_sim.cores import Profile
from npu_sim.plan_model import Allocation, Caveat, CoreWork, Decision, Evidence, Flip, Memory, OutputOrder, Workspace, WorkspacePart
from npu_sim.tiling import moe_token_permute_grad as moe
from npu_sim.tiling.integers import align
from npu_sim.workspace import TensorArea, kernel_workspace

KERNEL = "MoeTokenPermuteGrad"
INT32_MAX = 2147483647


@dataclass(frozen=True)
class Case:
    """A checked call, reduced to what planning needs.

    Attributes
    ----------
    tokens
        Rows of the output.
    top_k
        numTopk: entries of sortedIndices for every token.
    grad_rows
        Rows of permutedOutputGrad, at most ``tokens * top_k``.
    hidden
        Columns.
    """

    tokens: int
    top_k: int
    grad_rows: int
    hidden: int
    dtype: str
    grad_contiguous: bool
    indices_contiguous: bool
    profile: Profile

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of gradient and output."""
        return 4 if self.dtype == "float32" else 2

    @property
    def indices(self) -> int:
        """Length of sortedIndices."""
        return self.tokens * self.top_k

    def problem(self) -> moe.Problem:
        """What the planner sees."""
        return moe.Problem(self.indices, self.grad_rows, self.hidden, self.top_k, self.element_bytes, moe.KEYS[self.dtype])


def plan_fields(case: Case) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case; the case has tokens, and its tiling works."""
    tiling = moe.tile(case.problem(), case.profile.device)
    ranges = [moe.token_range(tiling, core) for core in range(tiling.block_dim)]
    return {
        "kernel": KERNEL,
        "path": _path(tiling),
        "path_reason": _path_reason(case, tiling),
        "tiling_key": tiling.tiling_key,
        "block_dim": tiling.block_dim,
        "cores_note": _cores_note(tiling),
        "per_core": _per_core(tiling),
        "tiling": moe.vendor_fields(tiling),
        "cores": tuple(CoreWork(core=core, ranges={"tokens": tokens}) for core, tokens in enumerate(ranges)),
        "memories": (_memory(case, tiling),),
        "decisions": _decisions(case, tiling),
        "workspace": _workspace(case, tiling),
        "order": (_order(),),
        "caveats": _caveats(case),
        "evidence": Evidence.EXACT,
    }


def _is_split(tiling: moe.Tiling) -> bool:
    return tiling.hidden_length < tiling.hidden


def _path(tiling: moe.Tiling) -> str:
    return "rows in pieces" if _is_split(tiling) else "whole rows"


def _path_reason(case: Case, tiling: moe.Tiling) -> str:
    longest = moe.max_hidden(case.profile.device.ub_bytes, moe.FEWEST_BUFFERS, case.element_bytes)
    if not _is_split(tiling):
        return f"hidden {case.hidden} <= {longest}"
    rest = f", then {tiling.hidden_remainder}" if tiling.hidden_remainder else ""
    return f"hidden {case.hidden} > {longest}; {tiling.hidden_pieces} of {tiling.hidden_length} columns{rest}"


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
    row_bytes = length * case.element_bytes
    index_bytes = tiling.batch_tokens * tiling.top_k * moe.INDEX_BYTES
    buffers = [
        Allocation(name="token rows", bytes=tiling.buffers * row_bytes, note=f"{tiling.buffers} input rows"),
        Allocation(name="indices", bytes=index_bytes, note=f"of {tiling.batch_tokens} tokens"),
        Allocation(name="result row", bytes=row_bytes),
    ]
    if case.element_bytes == 2:
        buffers.append(Allocation(name="sum in fp32", bytes=4 * length + moe.MARGIN_BYTES))
        buffers.append(Allocation(name="row in fp32", bytes=4 * length))
    return Memory(name="UB", capacity_bytes=case.profile.device.ub_bytes, allocations=tuple(buffers))


def _decisions(case: Case, tiling: moe.Tiling) -> tuple[Decision, ...]:
    return (_split_decision(case, tiling), *_buffer_decisions(case, tiling), _topk_decision(case), _batch_decision(case, tiling))


def _split_decision(case: Case, tiling: moe.Tiling) -> Decision:
    longest = moe.max_hidden(case.profile.device.ub_bytes, moe.FEWEST_BUFFERS, case.element_bytes)
    whole = not _is_split(tiling)
    return Decision(
        name="whole rows",
        condition="align(hidden, 512) <= longest piece that fits with 2 input rows",
        values={"align(hidden, 512)": align(case.hidden, moe.HIDDEN_ALIGNMENT), "longest": longest},
        outcome=whole,
        effect="a row of grad is summed in one piece" if whole else f"rows are summed in pieces of {longest} columns, to the same sums",
        flips=(Flip(argument="hidden", value=longest + 1 if whole else longest),),
    )


def _buffer_decisions(case: Case, tiling: moe.Tiling) -> tuple[Decision, ...]:
    """One decision for every number of input rows that was tried."""
    decisions = []
    for buffers in range(moe.MOST_BUFFERS, max(tiling.buffers, moe.FEWEST_BUFFERS + 1) - 1, -1):
        longest = moe.max_hidden(case.profile.device.ub_bytes, buffers, case.element_bytes)
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
    left = moe.bytes_for_indices(case.profile.device.ub_bytes, case.hidden, case.element_bytes)
    largest = moe.largest_topk(case.profile.device.ub_bytes, case.hidden, case.element_bytes)
    return Decision(
        name="indices of a token fit",
        condition=f"{moe.INDEX_BYTES} * numTopk <= bytes left beside the rows",
        values={"numTopk": case.top_k, "bytes left": left},
        outcome=True,
        effect="the kernel can work",
        flips=(Flip(argument="num_topk", value=largest + 1),),
    )


def _batch_decision(case: Case, tiling: moe.Tiling) -> Decision:
    left = moe.bytes_for_indices(case.profile.device.ub_bytes, case.hidden, case.element_bytes)
    needed = tiling.core_tokens * tiling.top_k * moe.INDEX_BYTES
    most_tokens = left // (tiling.top_k * moe.INDEX_BYTES)
    one_batch = needed <= left
    beyond = (most_tokens + 1) * case.profile.device.vector_cores
    return Decision(
        name="indices in one batch",
        condition=f"tokens of a core * numTopk * {moe.INDEX_BYTES} <= bytes left beside the rows",
        values={"tokens of a core": tiling.core_tokens, "bytes needed": needed, "bytes left": left},
        outcome=one_batch,
        effect="indices are copied at once" if one_batch else f"indices are copied for {_count(tiling.batch_tokens)} at a time",
        flips=(Flip(argument="tokens", value=beyond if one_batch else beyond - 1),),
    )


def _workspace(case: Case, tiling: moe.Tiling) -> Workspace:
    copies = []
    if not case.grad_contiguous:
        copies.append(TensorArea("contiguous permuted_output_grad", case.grad_rows * case.hidden * case.element_bytes))
    if not case.indices_contiguous:
        copies.append(TensorArea("contiguous sorted_indices", case.indices * moe.INDEX_BYTES))
    return kernel_workspace((WorkspacePart(name="system", bytes=tiling.workspace_bytes, kind="system"),), copies, KERNEL)


def _order() -> OutputOrder:
    reason = "every token is summed by one core, its rows in k order; nothing is added atomically"
    return OutputOrder(output="input_grad", deterministic=True, reason=reason)


def _caveats(case: Case) -> tuple[Caveat, ...]:
    caveats = []
    dropped = case.indices - case.grad_rows
    if dropped:
        message = f"permutedOutputGrad has {case.grad_rows} rows for {case.indices} indices: {dropped} were dropped and contribute nothing"
        caveats.append(Caveat(code="dropped_rows", argument="permuted_output_grad", message=message))
    documented = case.profile.limits.moe_num_topk_at_most
    if documented is not None and case.top_k > documented:
        message = f"numTopk {case.top_k} exceeds the documented {documented}; the Unified Buffer holds it"
        caveats.append(Caveat(code="topk_beyond_documented", argument="num_topk", message=message))
    if case.grad_rows > INT32_MAX + 1:
        message = f"int32 indices reach row {INT32_MAX} at most, permutedOutputGrad has {case.grad_rows} rows"
        caveats.append(Caveat(code="rows_beyond_int32", argument="sorted_indices", message=message))
    return tuple(caveats)

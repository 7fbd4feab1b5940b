"""The plan of RotaryPositionEmbedding.

Source: specification page ``rotary_position_embedding``.
"""

from collections.abc import Iterator
from typing import Any

from npu_sim.framework.vocabulary import (
    SYSTEM_WORKSPACE,
    Case,
    Caveat,
    Condition,
    Description,
    Evidence,
    Launch,
    Range,
    Text,
    caveat,
    decision,
    element_bytes,
    vector_plan,
)
from npu_sim.operators.shared.rotations.plan import ALIGNED
from npu_sim.tiling import rotary_position_embedding as tiler
from npu_sim.tiling import rotary_position_embedding_grad as backward
from npu_sim.tiling.common import even_range

PATHS = {
    tiler.BNSD: "BNSD: a row of cos for x0 * x1 rows of x",
    tiler.BSND: "BSND: a row of cos for x0 * x2 rows of x",
    tiler.SBND: "SBND: a row of cos for x1 * x2 rows of x",
    tiler.NO_BROADCAST: "no broadcast: a row of cos for every row of x",
    tiler.ONE_ROW: "one row of cos",
    tiler.B1SD: "B1SD: a row of cos for x1 rows of x",
}
INTERLEAVED_PATHS = {
    tiler.WHOLE: "interleave: whole positions",
    tiler.BATCHES: "interleave: some batches of a position",
    tiler.HEADS: "interleave: some heads of a position",
}
STRIDE_LIMIT = 2**32
"""Strides of copies have 32 bits, in bytes (page, ``source_stride_wraps``)."""
BNSD_TAKEN = Condition(
    "B * N",
    "B*N <= 8*S if aligned; else D >= 80 or 2*B*N <= ceil(S, cores)",
    lambda row, device, rules: tiler.half_refusal(row, device) == 0,
    "the planner takes the call",
    "refused: B * N is large or D is not aligned",
    ("x2", "x0"),
)


def interleaved_path(tiling: tiler.Tiling) -> int:
    """Return which axes a tile of interleave splits."""
    if tiling.interleaved.head_number:
        return tiler.HEADS
    return tiler.BATCHES if tiling.interleaved.batch_number else tiler.WHOLE


def ranges_of(tiling: tiler.Tiling) -> list[Range]:
    """Return the rows of cos of every core."""
    half, interleaved = tiling.half, tiling.interleaved
    lines = half.lines if half.tiling_mode else interleaved.positions
    cores = tiling.block_dim
    return [even_range(core, lines // cores, lines % cores) for core in range(cores)]


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling, row = case.tiling, case.row
    half = tiling.half
    values = {"x0": row.x0, "x1": row.x1, "x2": row.x2, "D": row.dim}

    def conditions() -> Iterator[Any]:
        if half.tiling_mode:
            yield decision(case, ALIGNED, **values)
        if half.tiling_mode == tiler.BNSD:
            yield decision(case, BNSD_TAKEN, **values)

    return vector_plan(
        case,
        path=PATHS[half.tiling_mode]
        if half.tiling_mode
        else INTERLEAVED_PATHS[interleaved_path(tiling)],
        path_reason=Text("cos {cos} with x {x}", cos=case.specs["cos"], x=case.specs["x"]),
        per_core="a core takes all rows of x that go with its rows of cos",
        buffers=tiler.buffers(tiling, row.dtype),
        ranges=ranges_of(tiling),
        fields=tiler.fields_of_mode(tiling, case.rules),
        workspace=(SYSTEM_WORKSPACE,),
        launches=launches_of(case) if case.rules.inner_step else None,
        conditions=conditions,
        caveats=caveats(case),
    )


def launches_of(case: Case) -> tuple[Launch, ...]:
    """Return the launches of a call of several steps: copies, then the kernel."""
    *copies, kernel = case.launches(case.operator.title, case.tiling.block_dim, Evidence.EXACT)
    return (*copies, kernel.model_copy(update={"workspace": (SYSTEM_WORKSPACE,)}))


def caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings a plan gives")."""
    row, tiling = case.row, case.tiling
    if row.mode > tiler.INTERLEAVE:
        yield caveat(
            "mode_computed_as_half",
            "mode",
            "mode = {mode} is another mode of Ascend 950; A2 and A3 take it and compute half",
            mode=row.mode,
        )
    if row.dim % 2 == 1:
        yield caveat(
            "last_column_without_partner",
            "x",
            "D = {dim} is odd: the last column of y is rotated with what lies outside its row, "
            "which is not known; the simulator takes 0. The document wants an even D",
            dim=row.dim,
            not_modelled="y",
        )
    if tiling.half.tiling_mode == tiler.ONE_ROW:
        yield caveat(
            "undocumented_broadcast",
            "cos",
            "cos has one row; the document does not list this form, the product computes it right",
        )
    yield from refused_on_more_cores(case)
    yield from backward_refused(case)
    if tiling.interleaved.batches > 1:
        yield from source_stride_wraps(case)


def refused_on_more_cores(case: Case) -> Iterator[Caveat]:
    """Yield the warning that a SoC of the product with more cores refuses the call."""
    row, device = case.row, case.device
    socs = [case.profile.with_soc(soc) for soc in case.profile.product.socs]
    refusing = [
        other.soc
        for other in socs
        if other.device.vector_cores > device.vector_cores
        and row.mode != tiler.INTERLEAVE
        and tiler.half_refusal(row, other.device) == tiler.BNSD_UNALIGNED
    ]
    if refusing:
        yield caveat(
            "refused_on_more_cores",
            "cos",
            "SoCs with more cores refuse these shapes (bnsd_unaligned): {socs}",
            socs=", ".join(refusing),
        )


def backward_refused(case: Case) -> Iterator[Caveat]:
    """Yield the warning that the gradient of the same shapes is refused."""
    row = case.row
    axes = (row.x0, row.x1, row.x2, row.dim, row.cos0, row.cos1, row.cos2)
    mode = row.mode if row.mode == tiler.INTERLEAVE else tiler.HALF
    problem = backward.Problem(*axes, mode, row.dtype, 0)
    if backward.refusal(problem, case.device) in (backward.LAYOUT, backward.BN_LIMIT):
        yield caveat(
            "backward_refused",
            "cos",
            "RotaryPositionEmbeddingGrad refuses these shapes (561002): a training step fails in "
            "its backward pass",
        )


def source_stride_wraps(case: Case) -> Iterator[Caveat]:
    """Yield the warning that a stride of copies does not fit 32 bits."""
    row, interleaved = case.row, case.tiling.interleaved
    path = interleaved_path(case.tiling)
    is_padded = case.tiling.tiling_key % 10 == 1
    if path == tiler.HEADS or (path == tiler.WHOLE and is_padded):
        return
    held = interleaved.front_number if path == tiler.WHOLE else 1
    stride = (interleaved.positions - held) * interleaved.heads * row.dim * element_bytes(row.dtype)
    if stride >= STRIDE_LIMIT:
        yield caveat(
            "source_stride_wraps",
            "x",
            "the stride between batches, {stride} bytes, does not fit 32 bits: later batches are "
            "read from wrong places; the simulator computes as if they were not",
            stride=stride,
            not_modelled="*",
        )

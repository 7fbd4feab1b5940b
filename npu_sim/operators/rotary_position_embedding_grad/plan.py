"""Plan of RotaryPositionEmbeddingGrad.

Source: specification page ``rotary_position_embedding_grad``.
"""

from collections.abc import Iterator

import numpy as np

from npu_sim.framework.vocabulary import (
    SYSTEM_WORKSPACE,
    VECTOR_LANES,
    Case,
    Caveat,
    Description,
    OutputOrder,
    Range,
    Text,
    caveat,
    decision,
    release_inferred,
    vector_plan,
)
from npu_sim.operators.rotary_position_embedding_grad.declaration import exceeds_documents
from npu_sim.operators.shared.rotations.plan import ALIGNED
from npu_sim.tiling import rotary_position_embedding_grad as tiler
from npu_sim.tiling.common import FP32, even_range
from npu_sim.tiling.rotary_position_embedding import INTERLEAVE

LAYOUTS = {tiler.BSND: "BSND", tiler.BNSD: "BNSD", tiler.SBND: "SBND"}
INTERLEAVED = tuple(LAYOUTS.values())
"""Layouts by the number that the tiling of interleave has for them."""
MOST_STRIDE = 65535
OFFSETS = 2**32
"""Largest stride between copied rows in blocks, and elements, that the kernel's integers hold."""


def ranges_of(tiling: tiler.Tiling) -> list[Range]:
    """Return the rows of cos of every core."""
    half, interleaved, cores = tiling.half, tiling.interleaved, tiling.block_dim
    if not half.cores:
        positions = interleaved.positions
        return [even_range(core, positions // cores, positions % cores) for core in range(cores)]
    size, last = half.core // half.columns, half.last_core // half.columns
    ends = [core * size + (last if core == cores - 1 else size) for core in range(cores)]
    return [(core * size, end) for core, end in enumerate(ends)]


def is_large(tiling: tiler.Tiling) -> bool:
    """Return whether tiles of interleave have some heads of one position."""
    return bool(tiling.interleaved.head_number + tiling.interleaved.group_number)


def path_of(tiling: tiler.Tiling) -> str:
    """Return the path of a plan."""
    half, interleaved = tiling.half, tiling.interleaved
    if half.cores:
        return Text("half, {layout}", layout=LAYOUTS[half.layout])
    layout = INTERLEAVED[interleaved.layout]
    if is_large(tiling):
        return Text("interleave, {layout}, some heads of a position", layout=layout)
    return Text("interleave, {layout}, whole positions", layout=layout)


def sum_order(case: Case) -> str:
    """Return the order of the sums of dcos and dsin (page, "Kernel and order of the sums")."""
    interleaved = case.tiling.interleaved
    if case.row.mode == INTERLEAVE and not is_large(case.tiling) and interleaved.layout == 0:
        return "one core adds the batches of every head, then the heads"
    return "one core adds all rows of dy that share a row of cos, the first axis slowest"


OVERWRITTEN = "dcos_dsin_overwritten"


def narrows_into_one_buffer(case: Case) -> bool:
    """Return whether a core narrows the sums of several positions into one buffer (page)."""
    return bool(
        case.row.has_x
        and case.row.dtype != FP32
        and case.row.mode == INTERLEAVE
        and is_large(case.tiling)
        and any(stop - start > 1 for start, stop in ranges_of(case.tiling))
    )


def reuses_buffer(case: Case) -> bool:
    """Return whether the next position's sums can overwrite those on their way out (page)."""
    return bool(case.rules.reuses_sum_buffer and narrows_into_one_buffer(case))


def can_be_overwritten(case: Case) -> np.ndarray:
    """Return which rows of dcos and dsin the next position of the same core can overwrite."""
    overwritten = np.zeros(case.tiling.interleaved.positions, np.bool_)
    for start, stop in ranges_of(case.tiling) if reuses_buffer(case) else ():
        overwritten[start : stop - 1] = True
    return overwritten


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling, row = case.tiling, case.row
    sums = [output.output for output in case.outputs if output.output != "dx"]
    race = OVERWRITTEN if reuses_buffer(case) else ""
    order = [
        OutputOrder(output=name, fixed=not race, reason=sum_order(case), race=race) for name in sums
    ]
    dx_order = OutputOrder(output="dx", fixed=True, reason="every row belongs to one core")
    return vector_plan(
        case,
        path=path_of(tiling),
        path_reason=Text("cos {cos} with dy {dy}", cos=case.specs["cos"], dy=case.specs["dy"]),
        per_core="a core takes all rows of dy that go with its rows of cos",
        buffers=tiler.buffers(tiling, row.dtype, bool(row.has_x)),
        ranges=ranges_of(tiling),
        fields=tiler.fields_of_mode(tiling, case.rules),
        workspace=(SYSTEM_WORKSPACE,),
        conditions=lambda: [decision(case, ALIGNED, D=row.dim)] if tiling.half.cores else [],
        order=(dx_order, *order),
        caveats=caveats(case),
    )


def caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings a plan gives")."""
    row, half, interleaved = case.row, case.tiling.half, case.tiling.interleaved
    if case.rules.keeps_3d_flag and case.specs["dy"].rank == 3:
        yield caveat(
            "tnd_flag_stays_set",
            "dy",
            "release {release}: after this 3-D call every later 4-D gradient call of the process "
            "with this mode is planned as if (1, a0, a1, a2) were its shape: it is refused, or dx "
            "is wrong. Give dy as (1, T, N, D)",
            release=case.profile.release,
            since="8.5",
            until="release 9.1 of 17 July 2026",
        )
    if half.stride > MOST_STRIDE and row.dim % VECTOR_LANES == 0 and half.core > row.dim:
        yield caveat(
            "stride_wraps",
            "dy",
            "the stride between rows, {stride} blocks, does not fit 16 bits: the kernel gives "
            "wrong dx, dcos and dsin; the simulator computes as if it fitted",
            stride=half.stride,
            not_modelled="*",
        )
    elements = row.x0 * row.x1 * row.x2 * row.dim
    if (
        interleaved.positions
        and not is_large(case.tiling)
        and interleaved.layout < 2
        and elements >= OFFSETS
    ):
        yield caveat(
            "element_offset_wraps",
            "dy",
            "dy has {elements} elements, and the kernel's offsets have 32 bits; the simulator "
            "computes as if they fitted",
            elements=elements,
            not_modelled="*",
        )
    yield from of_sums(case)
    if row.limits and exceeds_documents(row):
        yield caveat(
            "documented_bn_exceeded",
            "dy",
            "B or N, or with x B*N, is beyond the document; the product plans and computes it",
        )


def of_sums(case: Case) -> Iterator[Caveat]:
    """Yield the warnings on dcos and dsin."""
    interleaved = case.tiling.interleaved
    if not case.row.has_x:
        unwritten = caveat(
            "dcos_dsin_unwritten",
            "x",
            "without x the product leaves dcos and dsin unwritten: they hold whatever was there",
        )
        yield unwritten.model_copy(update={"lacks_input": True})
    if reuses_buffer(case):
        yield caveat(
            "dcos_dsin_overwritten",
            "x",
            "a race, with deterministic computation too: a row of dcos or dsin can hold, from some "
            "element on, the values of the next position of its core, whose narrowing does not "
            "wait for the copy out; the simulator computes the sums. Without: fp32, or fewer heads "
            "and batches a call",
            since="8.5",
            until=Text("release {release}", release="9.2"),
        )
    elif narrows_into_one_buffer(case):
        what = Text("dcos and dsin of a position wait until those before are copied out")
        yield release_inferred(case, "x", what, "dcos dsin")
    if case.row.has_x and (
        interleaved.positions
        and interleaved.layout == 0
        and interleaved.batches > 1
        and interleaved.heads > 1
    ):
        yield caveat(
            "sum_order_differs",
            "x",
            "dcos and dsin are summed in the order of {size} tiles; other sizes, dtypes or buffers "
            "can change the last bits",
            size="large" if is_large(case.tiling) else "small",
        )

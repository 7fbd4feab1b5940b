"""Plan of RmsNormGrad.

Source: specification page ``rms_norm_grad``.
"""

from collections.abc import Iterator

from npu_sim.framework.vocabulary import (
    NPU_ARCH_A2_A3,
    NPU_ARCH_ATLAS_INFERENCE,
    SYSTEM_WORKSPACE,
    UINT32_MASK,
    Case,
    Caveat,
    Condition,
    Decision,
    Description,
    Evidence,
    OutputOrder,
    Text,
    WorkspacePart,
    align,
    alignment,
    caveat,
    ceil_div,
    core_ranges,
    counted,
    decision,
    element_bytes,
    joined,
    vector_plan,
)
from npu_sim.tiling import rms_norm_grad as tiler

LISTED_BATCHES = 4
"""Largest number of groups or batches that are listed one by one."""
BUFFER_NOTES = {"dy": "double-buffered", "x": "double-buffered", "dx": "double-buffered"}


def may_chunk(case: Case) -> bool:
    """Return whether the product considers reducing dgamma in chunks."""
    return tiler.may_chunk(case.row, case.profile.npu_arch, case.rules)


def all_cores_merge(case: Case) -> bool:
    """Return whether all cores merge dgamma in deterministic mode, not core 0 alone: same bits."""
    return case.profile.npu_arch == NPU_ARCH_A2_A3 and case.rules.all_cores_merge == 1


def overruns_queue(case: Case) -> bool:
    """Return whether the merge of dgamma overruns its queue (page ``releases``, "Warnings")."""
    tiling = case.tiling
    return bool(
        all_cores_merge(case)
        and case.rules.queue_holds_merge == 0
        and case.deterministic
        and tiling.tiling_key == tiler.SPLIT_N
        and tiling.ub_factor * tiling.columns_aligned < tiler.merged_elements(tiling)
    )


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling = case.tiling
    is_described = case.profile.npu_arch in (NPU_ARCH_A2_A3, NPU_ARCH_ATLAS_INFERENCE)
    buffers = tiler.buffers(tiling, case.profile.npu_arch, case.rules)
    return vector_plan(
        case,
        path="split N" if tiling.tiling_key == tiler.SPLIT_N else "split D",
        path_reason=_path_reason(tiling),
        per_core=_per_core(tiling),
        ranges=core_ranges(tiler.row_range, tiling),
        buffers=buffers._asdict(),
        notes=BUFFER_NOTES,
        workspace=_workspace(tiling),
        conditions=lambda: _decisions(case, tiling),
        order=lambda: _order(case, tiling),
        caveats=_caveats(case, sum(buffers)),
        evidence=Evidence.EXACT if is_described and not overruns_queue(case) else Evidence.MODEL,
    )


def _path_reason(tiling: tiler.Tiling) -> str:
    return Text(
        "col {columns} <= {limit}: whole rows in the buffer"
        if tiling.tiling_key == tiler.SPLIT_N
        else "col {columns} > {limit}; split N up to {limit} columns",
        columns=tiling.columns,
        limit=tiler.SPLIT_N_COLUMNS,
    )


def _per_core(tiling: tiler.Tiling) -> str:
    if tiling.tiling_key == tiler.SPLIT_D:
        parts = (
            (tiling.block_factor, tiler.GROUP_ROWS, "group", "groups", "groups of rows"),
            (tiling.columns, tiler.PIECE_COLUMNS, "piece", "pieces", "pieces of columns"),
        )
        return joined([_parts_text(*part) for part in parts], ", ")
    return Text(
        "{batches}, {count} wide",
        batches=_parts_text(
            tiling.block_factor, tiling.ub_factor, "batch", "batches", "batches of rows"
        ),
        count=counted(tiling.columns, "column"),
    )


def _parts_text(total: int, part: int, singular: str, plural: str, names: str) -> str:
    """Return text such as ``3 groups of rows (32, 32, 22)`` or ``2 pieces of 4096 columns``."""
    count, tail = ceil_div(total, part), total % part
    unit = names.partition(" of ")[2].removesuffix("s")
    if count == 1:
        return Text("one {part} of {count}", part=singular, count=counted(total, unit))
    if tail == 0:
        return Text(
            "{count} {plural} of {size}", count=count, plural=plural, size=counted(part, unit)
        )
    if count <= LISTED_BATCHES:
        return Text(
            "{count} {names} ({values})",
            count=count,
            names=names,
            values=", ".join(map(str, [part] * (count - 1) + [tail])),
        )
    return Text(
        "{count} {names} ({part} each, the last one {tail})",
        count=count,
        names=names,
        part=part,
        tail=tail,
    )


def _workspace(tiling: tiler.Tiling) -> list[WorkspacePart]:
    parts = [
        SYSTEM_WORKSPACE,
        WorkspacePart(
            name="synchronisation", bytes=4 * tiling.block_dim * tiler.SYNC_WORDS, kind="kernel"
        ),
    ]
    if tiling.fixed_output:
        parts.append(
            WorkspacePart(
                name="dgamma of every core",
                bytes=4 * tiling.block_dim * tiling.chunks.size,
                kind="kernel",
                note="one chunk of columns for every core"
                if tiling.chunks.need
                else "one vector for every core",
            )
        )
    if tiling.chunks.need:
        means = 4 * tiling.block_dim * tiling.block_factor
        parts.append(WorkspacePart(name="means of every row", bytes=means, kind="kernel"))
    return parts


def _order(case: Case, tiling: tiler.Tiling) -> tuple[OutputOrder, ...]:
    dx = OutputOrder(output="dx", fixed=True, reason="every row belongs to one core, in both modes")
    if tiling.fixed_output:
        reason: str = Text(
            "every core stores its own sum; {where} them up in the order of the cores",
            where="all cores then add" if all_cores_merge(case) else "core 0 adds",
        )
    elif tiling.block_dim == 1:
        reason = "one core does all the work"
    elif not tiler.depends_on_arrival(tiling):
        reason = "two cores add atomically, each once: two additions commute"
    else:
        reason = Text(
            "in every column ({block_dim} cores add atomically); deterministic: fixed, "
            "{workspace_bytes} bytes of workspace",
            block_dim=tiling.block_dim,
            workspace_bytes=case.with_determinism(True).tiling.workspace_bytes,
        )
    dgamma_is_fixed = not tiler.depends_on_arrival(tiling)
    return OutputOrder(output="dgamma", fixed=dgamma_is_fixed, reason=reason), dx


SPLIT = Condition(
    "split N",
    f"col <= {tiler.SPLIT_N_COLUMNS}",
    lambda row, device, rules: row.col <= tiler.SPLIT_N_COLUMNS,
    "whole rows pass through the buffer",
    Text("rows are cut into pieces of {piece_columns} columns", piece_columns=tiler.PIECE_COLUMNS),
    ("col",),
)
LANES = Condition(
    "lane accumulators",
    f"col_align <= {tiler.LANE_COLUMNS}",
    lambda row, device, rules: align(row.col, alignment(row.dtype)) <= tiler.LANE_COLUMNS,
    "a row is summed in 64 lanes and then as a tree",
    "a row is summed by halving",
    ("col",),
)
FIXED = Condition(
    "fixed output",
    "deterministic",
    lambda row, device, rules: row.deterministic == 1,
    "each core's dgamma is stored separately and added in core order",
    "cores add to dgamma atomically",
    ("deterministic",),
)


def _decisions(case: Case, tiling: tiler.Tiling) -> Iterator[Decision]:
    yield decision(case, SPLIT, col=case.row.col)
    if tiling.tiling_key == tiler.SPLIT_N and case.profile.npu_arch == NPU_ARCH_A2_A3:
        yield decision(case, LANES, col_align=tiling.columns_aligned)
    yield decision(case, FIXED, deterministic=case.deterministic)
    if may_chunk(case):
        yield _chunk_decision(case, tiling)


def _chunk_decision(case: Case, tiling: tiler.Tiling) -> Decision:
    total = tiler.total_input_bytes(case.row.row, case.row.col, element_bytes(case.row.dtype))
    chunks, first = tiling.chunks, first_chunked_columns(case)
    # Chunks can begin or end at these columns; the decision is made above key 1's.
    edges = () if first is None else (first - 1, first)
    condition = Condition(
        "chunks",
        Text(
            "4*block_dim*col_align > floor(0.05*total bytes) and total bytes >= "
            "{chunk_total_bytes}",
            chunk_total_bytes=tiler.CHUNK_TOTAL_BYTES,
        ),
        lambda row, device, rules: tiler.tile(row, device, rules).chunks.need == 1,
        Text(
            "dgamma is reduced in {num} chunks of {size} columns", num=chunks.num, size=chunks.size
        ),
        "dgamma is reduced at once",
        ("col",),
        {"col": lambda row, device, rules: (c for c in edges if c > tiler.SPLIT_N_COLUMNS)},
    )
    values = {
        "4*block_dim*col_align": 4 * tiling.block_dim * tiling.columns_aligned,
        "total bytes": total,
    }
    return decision(case, condition, **values)


def first_chunked_columns(case: Case) -> int | None:
    """Return the smallest number of columns above key 1's with a chunked reduction, or None.

    The search stops where the size of the inputs would wrap. Below, the decision is monotonic in
    the columns except for alignment, which the check of the two neighbours catches.
    """

    def chunked(columns: int) -> bool:
        return bool(case.changed(col=columns).tiling.chunks.need)

    low = tiler.SPLIT_N_COLUMNS
    high: int = (UINT32_MASK - 4 * case.row.row) // (
        (2 * case.row.row + 1) * element_bytes(case.row.dtype)
    )
    if high <= low or not chunked(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if chunked(middle) else (middle, high)
    return high


def _caveats(case: Case, used: int) -> Iterator[Caveat]:
    """Yield the warnings of a plan whose buffers take ``used`` bytes."""
    tiling = case.tiling
    if used > case.device.ub_bytes:
        yield caveat(
            "buffers_exceed_unified_buffer",
            "",
            "the buffers take {used} bytes, the Unified Buffer of {soc} has {usable}: the "
            "product assumes {assumed_ub_bytes} bytes on every SoC and does not check",
            used=used,
            soc=case.profile.soc,
            usable=case.device.ub_bytes,
            assumed_ub_bytes=tiler.ASSUMED_UB_BYTES,
            not_modelled="*",
        )
    if may_chunk(case):
        yield from _wrap_caveats(case, tiling)
    if overruns_queue(case):
        yield caveat(
            "dgamma_merge_overrun",
            "deterministic",
            "release {release} adds up dgamma from {merged_elements} elements in a queue of "
            "{ub_factor}: what the device returns is not known, dgamma is a model",
            release=case.profile.release,
            merged_elements=tiler.merged_elements(tiling),
            ub_factor=tiling.ub_factor * tiling.columns_aligned,
            not_modelled="dgamma",
        )


def _wrap_caveats(case: Case, tiling: tiler.Tiling) -> Iterator[Caveat]:
    """Warn when the size that decides on chunks wraps at 4 GiB (page, "Chunking")."""
    size = element_bytes(case.row.dtype)
    true_total = 2 * case.row.row * case.row.col * size + 4 * case.row.row + case.row.col * size
    seen = tiler.total_input_bytes(case.row.row, case.row.col, size)
    if true_total == seen:
        return
    in_chunks = 4 * tiling.block_dim * tiling.columns_aligned * 20 > true_total
    same: str = Text("{manner} chunks otherwise", manner="with" if in_chunks else "without")
    if in_chunks == bool(tiling.chunks.need):
        same = "the decision is the same"
    yield caveat(
        "total_size_wraps",
        "x",
        "the product computes the size of the inputs, {true_total} bytes, in 32 bits and "
        "sees {seen}: it reduces dgamma {manner} ({same})",
        true_total=true_total,
        seen=seen,
        manner="in chunks" if tiling.chunks.need else "at once",
        same=same,
    )

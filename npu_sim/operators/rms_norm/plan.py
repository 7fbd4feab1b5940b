"""Plan of RmsNorm.

Source: specification page ``rms_norm``.
"""

from collections.abc import Iterator

from npu_sim.framework.vocabulary import (
    NPU_ARCH_ATLAS_INFERENCE,
    Case,
    Caveat,
    Condition,
    Description,
    Text,
    caveat,
    core_ranges,
    decision,
    vector_plan,
)
from npu_sim.operators.shared.normalised_rows.plan import (
    KERNEL_PARTS,
    copied_outputs,
    rows_per_core,
    zero_epsilon_caveats,
)
from npu_sim.tiling import rms_norm as tiler

RSTD_GROUP = 8
"""fp32 numbers of a 32-byte block, the smallest copy (page, "Atlas inference: how rstd goes
out")."""
PATHS = {
    tiler.KEY_NORMAL: "normal",
    tiler.KEY_SPLIT_D: "split D",
    tiler.KEY_MERGE_N: "merge N",
    tiler.KEY_SINGLE_ROW: "single row",
}


MERGE = Condition(
    "merge N",
    Text(
        "A2 and A3: col_align <= {merge_columns}; Atlas inference series: fp16, col = "
        "{inference_merge_columns} and row % {inference_merge_rows} = 0, at releases that "
        "merge there",
        merge_columns=tiler.MERGE_COLUMNS,
        inference_merge_columns=tiler.INFERENCE_MERGE_COLUMNS,
        inference_merge_rows=tiler.INFERENCE_MERGE_ROWS,
    ),
    tiler.merges_rows,
    "several whole rows lie in the buffer at a time; "
    "a row is summed in 64 lanes and then as a tree",
    "a row at a time, summed by halving",
    ("col",),
)
WHOLE = Condition(
    "whole rows",
    "a row fits beside its fp32 copy, its squares, gamma and y",
    tiler.fits_normal_row,
    "rows pass through the buffer whole",
    "rows are cut, or the squares take the place of x",
    ("col",),
)
SINGLE = Condition(
    "single row",
    "gamma is fp32 beside 16 bits, and a row fits when its squares take the place of x",
    tiler.fits_single_row,
    "rows pass through the buffer whole, x and its squares in one place",
    "rows are cut into pieces of columns",
    ("col",),
)
PERFORMANCE = Condition(
    "without broadcasts",
    Text(
        "a 1-D gamma in the 16 bits of x, col <= {performance_columns}, and few samples "
        "(x.shape[0] <= {performance_first_axis}; of three axes x.shape[1] <= "
        "{performance_second_axis})",
        performance_columns=tiler.PERFORMANCE_COLUMNS,
        performance_first_axis=tiler.PERFORMANCE_FIRST_AXIS,
        performance_second_axis=tiler.PERFORMANCE_SECOND_AXIS,
    ),
    tiler.spares_broadcasts,
    "rstd and gamma are multiplied without broadcasting them to all rows first; no bit changes",
    "rstd and gamma are broadcast to all rows of the buffer first; no bit changes",
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling, key = case.tiling, case.tiling.tiling_key
    conditions = [MERGE] if key == tiler.KEY_MERGE_N else [MERGE, WHOLE]
    if tiler.is_mixed(case.row) and key in (tiler.KEY_SINGLE_ROW, tiler.KEY_SPLIT_D):
        conditions.append(SINGLE)
    if key == tiler.KEY_MERGE_N and case.rules.performance_fields:
        conditions.append(PERFORMANCE)
    values = {"row": case.row.row, "col": case.row.col, "col_align": tiling.columns_aligned}
    return vector_plan(
        case,
        path=PATHS[key],
        path_reason=_path_reason(case),
        per_core=rows_per_core(case, is_split=key == tiler.KEY_SPLIT_D),
        buffers=tiler.buffers(tiling, case.row, case.device, case.rules)._asdict(),
        ranges=core_ranges(tiler.row_range, tiling),
        fields=tiler.vendor_structure(tiling, case.arguments, case.rules),
        workspace=[*KERNEL_PARTS, *copied_outputs(case)],
        conditions=lambda: [decision(case, condition, **values) for condition in conditions],
        caveats=_caveats(case),
    )


def _path_reason(case: Case) -> str:
    tiling, width = case.tiling, f"col_align {case.tiling.columns_aligned}"
    if tiling.tiling_key == tiler.KEY_MERGE_N:
        return Text(
            "{width}: {row_factor} rows fit the buffer", width=width, row_factor=tiling.row_factor
        )
    if tiling.ub_factor >= case.row.col:
        return Text(
            "{width} in the buffer of {ub_factor} columns", width=width, ub_factor=tiling.ub_factor
        )
    return Text("{width} > {ub_factor}", width=width, ub_factor=tiling.ub_factor)


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings a plan gives")."""
    tiling, row, rules = case.tiling, case.row, case.rules
    # Widths of the element offset of a core's first row (page, "Releases"); 64 bits never wrap.
    widths = {tiler.KEY_NORMAL: rules.row_offset_bits, tiler.KEY_SPLIT_D: 64}
    bits = widths.get(tiling.tiling_key, rules.core_offset_bits)
    if row.row * row.col > 1 << bits:
        yield caveat(
            "element_offset_wraps",
            "x",
            "release {release} counts elements of x before a core's first in {bits} bits: cores "
            "that begin beyond 2^{bits} elements read and write at that place modulo 2^{bits}; the "
            "simulator computes as if they did not",
            release=case.profile.release,
            bits=bits,
            not_modelled="*",
            since="8.3",
            until=_until(tiling.tiling_key),
        )
    if case.profile.npu_arch == NPU_ARCH_ATLAS_INFERENCE and tiling.tiling_key != tiler.KEY_MERGE_N:
        if tiling.block_dim > 1 and tiling.block_factor % RSTD_GROUP:
            yield caveat(
                "rstd_cleared_by_neighbour",
                "rstd",
                "a core clears rstd up to a multiple of {rstd_group} rows, {block_factor} is none: "
                "one that starts late can erase what its neighbour wrote; the simulator computes "
                "as if that did not happen",
                rstd_group=RSTD_GROUP,
                block_factor=tiling.block_factor,
                not_modelled="rstd",
            )
        behind = -tiling.groups.last_block_factor % RSTD_GROUP
        if behind:
            yield caveat(
                "rstd_written_behind_end",
                "rstd",
                "the last core writes {behind} zeros, {bytes} bytes, behind the end of rstd",
                behind=behind,
                bytes=4 * behind,
            )
    yield from zero_epsilon_caveats(case)


def _until(tiling_key: int) -> str:
    """Return the release from which the offsets of a key are wide enough."""
    return Text("release {release}", release="9.1" if tiling_key == tiler.KEY_NORMAL else "9.1.1")

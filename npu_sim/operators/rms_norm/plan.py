"""The plan of RmsNorm: path, buffers, conditions and warnings.

Source: specification page ``rms_norm``.
"""

from collections.abc import Callable, Iterator
from typing import Any

from npu_sim.cores import NPU_ARCH_A2_A3, NPU_ARCH_ATLAS_INFERENCE
from npu_sim.framework.case import Case
from npu_sim.framework.describing import Condition, counted, decision, vector_plan
from npu_sim.language import Text
from npu_sim.operators.shared import normalised_rows
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Caveat, WorkspacePart
from npu_sim.tiling import rms_norm as tiler
from npu_sim.tiling.common import ceil_div

OFFSET_BITS = 64
"""Width of element offsets of key 1 at every release; they never wrap (page, "Releases")."""
OFFSET_TAGS = "v9.1.0 and v9.2.0-beta.1 count"
"""Release tags with narrower offsets than later sources of the same release (page,
"Releases")."""
RSTD_GROUP = 8
"""fp32 numbers of a 32-byte block, the smallest copy (page, "Atlas inference: how rstd goes
out")."""
SAME_SUM_COLUMNS = 128
"""Largest number of columns for which keys 0 and 2 add the same pairs (page, "What follows from
the orders")."""
PATHS = {
    tiler.KEY_NORMAL: "normal",
    tiler.KEY_SPLIT_D: "split D",
    tiler.KEY_MERGE_N: "merge N",
    tiler.KEY_SINGLE_ROW: "single row",
}


def _on_row(holds: Callable[[tiler.Problem, Any], bool]) -> Callable[[Any, Any, Any], bool]:
    """Return a condition on a problem as a condition on a row."""
    return lambda row, device, rules: holds(tiler.problem_of_row(row), device)


def _merges(row: Any, device: Any, rules: Any) -> bool:
    problem = tiler.problem_of_row(row)
    return tiler.merges_rows(problem, device) or tiler.merges_inference_rows(problem, device, rules)


def _spares_broadcasts(row: Any, device: Any, rules: Any) -> bool:
    return tiler.spares_broadcasts(tiler.problem_of_row(row), device, rules)


MERGE = Condition(
    "merge N",
    Text(
        "A2: col_align <= {merge_columns}; Atlas inference series: fp16, col = "
        "{inference_merge_columns} and row % {inference_merge_rows} = 0, at releases that "
        "merge there",
        merge_columns=tiler.MERGE_COLUMNS,
        inference_merge_columns=tiler.INFERENCE_MERGE_COLUMNS,
        inference_merge_rows=tiler.INFERENCE_MERGE_ROWS,
    ),
    _merges,
    "several whole rows lie in the buffer at a time; "
    "a row is summed in 64 lanes and then as a tree",
    "a row at a time, summed by halving",
    ("col",),
)
WHOLE = Condition(
    "whole rows",
    "a row fits beside its fp32 copy, its squares, gamma and y",
    _on_row(tiler.fits_normal_row),
    "rows pass through the buffer whole",
    "rows are cut, or the squares take the place of x",
    ("col",),
)
SINGLE = Condition(
    "single row",
    "gamma is fp32 beside 16 bits, and a row fits when its squares take the place of x",
    _on_row(tiler.fits_single_row),
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
    _spares_broadcasts,
    "rstd and gamma are multiplied without broadcasting them to all rows first; no bit changes",
    "rstd and gamma are broadcast to all rows of the buffer first; no bit changes",
)


def describe(case: Case) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case."""
    tiling, problem = case.tiling, tiler.problem_of_row(case.row)
    key = tiling.tiling_key
    conditions = [MERGE] if key == tiler.KEY_MERGE_N else [MERGE, WHOLE]
    if tiler.is_mixed(problem) and key in (tiler.KEY_SINGLE_ROW, tiler.KEY_SPLIT_D):
        conditions.append(SINGLE)
    if key == tiler.KEY_MERGE_N and case.rules.performance_fields:
        conditions.append(PERFORMANCE)
    values = {"col": case.row.col, "col_align": tiling.columns_aligned, "row": case.row.row}
    ranges = [tiler.row_range(tiling, core) for core in range(tiling.block_dim)]
    plan = vector_plan(
        case,
        path=PATHS[key],
        path_reason=_path_reason(case),
        per_core=_per_core(case),
        buffers=tiler.buffers(tiling, problem, case.device, case.rules)._asdict(),
        ranges=ranges,
        workspace=workspace_parts(case),
        conditions=[decision(case, condition, **values) for condition in conditions],
        caveats=(*_caveats(case), *zero_epsilon_caveats(case)),
    )
    return {**plan, "tiling": tiler.vendor_structure(tiling, case.arguments.epsilon, case.rules)}


def workspace_parts(case: Case) -> list[WorkspacePart]:
    """Return the kernel's own workspace by part."""
    parts = [
        normalised_rows.SYSTEM,
        WorkspacePart(
            name="untouched",
            bytes=tiler.UNTOUCHED_BYTES,
            kind="kernel",
            note="no kernel reads or writes it",
        ),
    ]
    return parts + [
        WorkspacePart(
            name=Text("copy of {name}", name=output.name),
            bytes=0,
            kind="kernel",
            evidence=Evidence.UNKNOWN,
            note="not published",
        )
        for output in case.operator.outputs
        if not case.specs[output.name].contiguous
    ]


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


def _per_core(case: Case) -> str:
    tiling = case.tiling
    groups = Text(
        "{groups} of up to {rows} rows",
        groups=counted(tiling.row_loop, "group"),
        rows=min(tiling.row_factor, tiling.block_factor),
    )
    if tiling.tiling_key != tiler.KEY_SPLIT_D:
        return groups
    return Text(
        "{groups}, {pieces} pieces of up to {ub_factor} columns",
        groups=groups,
        pieces=ceil_div(case.row.col, tiling.ub_factor),
        ub_factor=tiling.ub_factor,
    )


def _offset_bits(case: Case) -> int:
    """Return the width of the release's element offset of a core's first row (page, "Releases")."""
    if case.tiling.tiling_key == tiler.KEY_NORMAL:
        return int(case.rules.row_offset_bits)
    if case.tiling.tiling_key == tiler.KEY_SPLIT_D:
        return OFFSET_BITS
    return int(case.rules.core_offset_bits)


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings a plan gives")."""
    tiling, row = case.tiling, case.row
    bits = _offset_bits(case)
    if row.row * row.col > 1 << bits:
        who: str = Text("release {release} counts", release=case.profile.release)
        if case.rules.core_offset_depends_on_tag and tiling.tiling_key != tiler.KEY_NORMAL:
            who = OFFSET_TAGS
        message = Text(
            "{who} elements of x before a core's first in {bits} bits: cores that begin beyond "
            "2^{bits} elements read and write at that place modulo 2^{bits}; the simulator "
            "computes as if they did not",
            who=who,
            bits=bits,
        )
        yield Caveat(code="element_offset_wraps", argument="x", message=message)
    if case.profile.npu_arch == NPU_ARCH_ATLAS_INFERENCE and tiling.tiling_key != tiler.KEY_MERGE_N:
        if tiling.block_dim > 1 and tiling.block_factor % RSTD_GROUP:
            message = Text(
                "a core clears rstd up to a multiple of {rstd_group} rows, {block_factor} is none: "
                "one that starts late can erase what its neighbour wrote; the simulator computes "
                "as if that did not happen",
                rstd_group=RSTD_GROUP,
                block_factor=tiling.block_factor,
            )
            yield Caveat(code="rstd_cleared_by_neighbour", argument="rstd", message=message)
        behind = -tiling.last_block_factor % RSTD_GROUP
        if behind:
            message = Text(
                "the last core writes {behind} zeros, {bytes} bytes, behind the end of rstd",
                behind=behind,
                bytes=4 * behind,
            )
            yield Caveat(code="rstd_written_behind_end", argument="rstd", message=message)
    is_merged_on_a2 = row.col > SAME_SUM_COLUMNS and tiling.columns_aligned <= tiler.MERGE_COLUMNS
    if case.profile.npu_arch == NPU_ARCH_A2_A3 and is_merged_on_a2:
        message = Text(
            "between {same_sum_columns} and {merge_columns} columns A2 and A3 add the squares in "
            "another order: the last bit of rstd can differ",
            same_sum_columns=SAME_SUM_COLUMNS,
            merge_columns=tiler.MERGE_COLUMNS,
        )
        yield Caveat(code="rstd_differs_between_products", argument="rstd", message=message)


def zero_epsilon_caveats(case: Case) -> tuple[Caveat, ...]:
    """Return the warning of an epsilon that is 0 in fp32."""
    if tiler.rounded_epsilon(case.arguments.epsilon) != 0:
        return ()
    message = Text("epsilon is 0 in fp32: a row of zeros has rstd inf and y nan")
    return (Caveat(code="zero_rows_without_epsilon", argument="epsilon", message=message),)

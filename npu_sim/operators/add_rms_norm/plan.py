"""Plan of AddRmsNorm.

Source: specification page ``add_rms_norm``.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from npu_sim.framework.vocabulary import (
    NPU_ARCH_A2_A3,
    NPU_ARCH_ATLAS_INFERENCE,
    Case,
    Caveat,
    Condition,
    Decision,
    Description,
    Launch,
    LaunchTensor,
    Text,
    WorkspacePart,
    caveat,
    decision,
    ub_memory,
    vector_plan,
)
from npu_sim.operators.add_rms_norm.declaration import is_hand_written, takes_any_columns
from npu_sim.operators.shared.launches import Executor
from npu_sim.operators.shared.normalised_rows.plan import (
    KERNEL_PARTS,
    copied_outputs,
    rows_per_core,
    zero_epsilon_caveats,
)
from npu_sim.plans.model import intermediate
from npu_sim.tiling import add_rms_norm as tiler
from npu_sim.tiling.common import BF16, BLOCK_BYTES, FP32, UINT32_MASK
from npu_sim.tiling.rms_norm import MERGE_COLUMNS, WIDEST_16_BIT, WIDEST_FP32, row_range

PATHS = {
    tiler.KEY_NORMAL: "normal",
    tiler.KEY_SPLIT_D: "split D",
    tiler.KEY_MERGE_N: "merge N",
    tiler.KEY_SINGLE_ROW: "single row",
    tiler.KEY_MULTI_N: "multi N",
}
UNROUNDED = (tiler.KEY_NORMAL, tiler.KEY_SPLIT_D)
"""Templates that square the unrounded sum of bf16."""

SPLIT = Condition(
    "split D",
    Text("col > {fp32} (fp32) or {narrow} (16 bits)", fp32=WIDEST_FP32, narrow=WIDEST_16_BIT),
    tiler.splits_rows,
    "rows are cut into pieces of columns; bf16: the mean square is that of the unrounded sum",
    "rows pass through the buffer whole",
    ("col",),
)
SINGLE = Condition(
    "single row",
    "A2 and A3: no more rows than cores, as in decode",
    tiler.is_row_per_core,
    "a core has one row; bf16: the mean square is that of the rounded x",
    "a core has several rows",
    ("row",),
)
MERGE = Condition(
    "merge N",
    Text("A2 and A3: col_align <= {columns}", columns=MERGE_COLUMNS),
    tiler.merges_rows,
    "several whole rows lie in the buffer at a time",
    "a row at a time; bf16: the mean square is that of the unrounded sum",
    ("col",),
)
MULTI = Condition(
    "multi N",
    "fp16, and a row is whole blocks of 32 bytes and fits with its squares",
    tiler.groups_rows,
    "several fp16 rows lie in the buffer at a time; no bit changes",
    "a row at a time; no bit changes",
    ("col",),
)


def template_of(case: Case) -> int:
    """Return the last digit of the tiling key."""
    return int(case.tiling.tiling_key % 10)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling, key = case.tiling, template_of(case)
    sizes = tiler.buffers_of(key, tiling.row_factor, tiling.ub_factor, case.row)
    margin_bytes = case.profile.product.ub_reserved_bytes  # pieces of fp32 extend into it
    memory = ub_memory(case, sizes._asdict()).model_copy(update={"margin_bytes": margin_bytes})
    return description(
        case,
        path=PATHS[key],
        path_reason=_path_reason(case, key),
        per_core=_per_core(case, key),
        memories=[memory],
        fields=tiler.vendor_structure(tiling, case.arguments, case.rules),
        conditions=lambda: _decisions(case),
        caveats=(*_caveats(case, key), *common_caveats(case)),
    )


def _decisions(case: Case) -> Iterator[Decision]:
    """Yield the conditions up to the first that holds."""
    row, aligned = case.row, case.tiling.columns_aligned
    for condition in (SPLIT, SINGLE, MERGE, MULTI):
        yield decision(case, condition, row=row.row, col=row.col, col_align=aligned)
        if condition.holds(row, case.device, case.rules):
            return


def description(case: Case, **fields: Any) -> Description:
    """Return what a plan states on every product, and ``fields`` of :func:`vector_plan`."""
    tiling = case.tiling
    is_first = is_hand_written(case.row.in_place, case.rules)
    kernel = "InplaceAddRmsNorm" if case.arguments.in_place else case.operator.title
    return vector_plan(
        case,
        kernel=kernel,
        ranges=[row_range(tiling, core) for core in range(tiling.block_dim)],
        workspace=_parts(case),
        launches=_launches(case, kernel) if is_first else None,
        **fields,
    )


def _parts(case: Case) -> list[WorkspacePart]:
    """Return the kernel's own workspace by part."""
    parts = [*KERNEL_PARTS]
    counted_bytes = case.tiling.workspace_bytes - sum(part.bytes for part in parts)
    if counted_bytes:
        parts.append(
            WorkspacePart(
                name="missing x",
                bytes=counted_bytes,
                kind="kernel",
                note="4 bytes for every element, which no kernel reads or writes",
            )
        )
    is_first = is_hand_written(case.row.in_place, case.rules)
    return parts if is_first else parts + copied_outputs(case)


def _launches(case: Case, kernel: str) -> tuple[Launch, ...]:
    """Return the launches of host code written by hand: copies, the kernel, copies back.

    A missing output is an empty result of the kernel (page, "Whole call"; a model).
    """
    executor = Executor(case)
    inputs = [executor.contiguous(name, case.specs[name]) for name in case.operator.input_names]
    results: dict[str, LaunchTensor] = {}
    for output in case.operator.outputs:
        spec = case.specs.get(output.name)
        if spec is not None and spec.contiguous:
            results[output.name] = case.tensor(output.name)
        elif spec is not None:
            name = Text("contiguous {name}", name=output.name)
            results[output.name] = intermediate(name, spec.shape, spec.dtype)
        elif not output.is_asked_for(case.arguments):
            name = Text("missing {name}", name=output.name)
            results[output.name] = intermediate(name, (0,), case.specs["x1"].dtype)
    executor.launches.append(
        Launch(
            kernel=kernel,
            inputs=tuple(inputs),
            outputs=tuple(results.values()),
            block_dim=case.tiling.block_dim,
            workspace=tuple(_parts(case)),
        )
    )
    for output in case.outputs:
        if not case.specs[output.name].contiguous:
            executor.run("ViewCopy", (results[output.name],), case.tensor(output.name))
    return tuple(executor.launches)


def _path_reason(case: Case, key: int) -> str:
    tiling = case.tiling
    fields: Mapping[str, Any] = {
        "row": case.row.row,
        "col": case.row.col,
        "width": tiling.columns_aligned,
        "row_factor": tiling.row_factor,
        "ub_factor": tiling.ub_factor,
        "cores": case.device.vector_cores,
    }
    if key == tiler.KEY_SPLIT_D:
        return Text("{col} columns in pieces of {ub_factor}", **fields)
    if key == tiler.KEY_SINGLE_ROW:
        return Text("{row} rows on {cores} cores", **fields)
    if key == tiler.KEY_NORMAL:
        return Text("col_align {width} in the buffer of {ub_factor} columns", **fields)
    return Text("col_align {width}: {row_factor} rows fit the buffer", **fields)


def _per_core(case: Case, key: int) -> str:
    if key == tiler.KEY_SINGLE_ROW:
        return Text("one row")
    return rows_per_core(case, is_split=key == tiler.KEY_SPLIT_D)


def common_caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan that hold on every product."""
    yield from zero_epsilon_caveats(case)
    if takes_any_columns(case) and case.row.col != case.row.last_axis:  # type: ignore[arg-type]
        yield caveat(
            "gamma_not_checked",
            "gamma",
            "gamma has {given} columns and x1 {columns}: release {release} does not compare them, "
            "and takes those of gamma; npu_sim does not compute such a call",
            given=case.row.col,
            columns=case.row.last_axis,
            release=case.profile.release,
            not_modelled="*",
            since="9.0",
            until=Text("release {release}", release="9.1"),
        )


def _caveats(case: Case, key: int) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings a plan gives")."""
    tiling, row, cores = case.tiling, case.row, case.device.vector_cores
    arch = case.profile.npu_arch
    is_a2, is_inference = arch == NPU_ARCH_A2_A3, arch == NPU_ARCH_ATLAS_INFERENCE
    yield from _rounding_caveats(case, key)
    if key != tiler.KEY_SINGLE_ROW and case.specs["x1"].numel > 1 << 32:
        yield caveat(
            "element_offset_wraps",
            "x1",
            "the kernel counts elements before a core's first in 32 bits: cores that begin beyond "
            "2^32 elements read and write at that place modulo 2^32; the simulator computes as if "
            "they did not",
            not_modelled="*",
        )
    if max(row.row, row.col) > UINT32_MASK:
        yield caveat(
            "row_count_wraps",
            "x1",
            "the planner keeps rows and columns in 32 bits: it plans {rows} rows of {columns} "
            "columns",
            rows=tiling.rows,
            columns=tiling.columns,
            not_modelled="*",
        )
    if is_a2 and row.dtype == FP32 and tiling.ub_factor == tiler.PIECE_FP32:
        yield caveat(
            "reserved_ub_used",
            "x1",
            "pieces of {columns} columns take 128 bytes more than the planner may use, of the {ub} "
            "that it leaves to the system",
            columns=tiling.ub_factor,
            ub=tiler.SYSTEM_UB_BYTES,
        )
    if is_inference and row.outputs == tiler.FULL:
        yield caveat(
            "rstd_not_written",
            "rstd",
            "this product does not write rstd: its memory stays as it was",
        )
    row_bytes = row.col * case.specs["x1"].itemsize
    if is_inference and row_bytes < BLOCK_BYTES:
        yield caveat(
            "short_rows_overwrite",
            "x1",
            "a row has {row_bytes} bytes and copies move 32: the last row of a core writes "
            "{behind} bytes beyond it, over the first rows of the next core or behind the tensor; "
            "the simulator computes as if it did not",
            row_bytes=row_bytes,
            behind=BLOCK_BYTES - row_bytes,
            not_modelled="*" if tiling.block_dim > 1 else "",
        )
    if key == tiler.KEY_MERGE_N and not case.rules.waits_for_copy:
        yield caveat(
            "x_copy_race",
            "x",
            "later releases wait for the copy of x, which the vendor calls a data race; what a "
            "device returns at release {release} is not known, the simulator computes as if there "
            "were none",
            release=case.profile.release,
            not_modelled="x",
            since="8.3",
            until=Text("release {release}", release="9.0"),
        )
    if tiling.block_dim < cores:
        yield caveat(
            "few_cores",
            "x1",
            "{used} of {cores} cores work: every core takes {rows} rows, or {last} at the end",
            used=tiling.block_dim,
            cores=cores,
            rows=tiling.block_factor,
            last=tiling.groups.last_block_factor,
        )


def _rounding_caveats(case: Case, key: int) -> Iterator[Caveat]:
    """Yield what a plan says about bits (page, "Consequences people ask about")."""
    row, cores = case.row, case.device.vector_cores
    is_a2 = case.profile.npu_arch == NPU_ARCH_A2_A3
    wide = case.tiling.columns_aligned > MERGE_COLUMNS
    if is_a2 and row.dtype == BF16 and wide and key != tiler.KEY_SPLIT_D:
        yield caveat(
            "not_batch_invariant",
            "x1",
            "rstd and y of a row depend on the number of rows: up to {cores} (decode), mean square "
            "and y are of the rounded x, above (prefill) of the unrounded sum; rstd then differs "
            "in nearly every row, and about 19 % of y by 1 or 2 ulp of bf16; x is the same. {add}",
            cores=cores,
            add=Text("Keep the rows on one side, or call Add and RmsNorm"),
        )
    if row.dtype != FP32:
        yield caveat(
            "two_roundings",
            "y",
            "y is rounded before gamma and after: up to 1.9 ulp from the exact value, and about a "
            "quarter of its elements differ from Add and RmsNorm, which round once",
        )
    else:
        yield caveat(
            "differs_from_add_and_rms_norm",
            "y",
            "squares are divided by the columns before they are added: rstd and y can differ from "
            "Add and RmsNorm by some units in the last place",
        )
    if row.dtype == BF16 and key in UNROUNDED:
        yield caveat(
            "rstd_of_unrounded_sum",
            "rstd" if row.outputs == tiler.FULL else "y",
            "rstd is that of x1 + x2 before it is rounded, up to 1e-4 from that of x as it is "
            "stored, which a gradient reads",
        )

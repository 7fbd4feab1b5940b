"""RmsNorm: RMS normalisation. Its rstd is an input of RmsNormGrad.

Source: product document aclnnRmsNorm; specification page ``rms_norm``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    NPU_ARCH_ATLAS_INFERENCE,
    NPU_ARCH_ATLAS_TRAIN,
    SYSTEM_WORKSPACE_BYTES,
    TILING_FAILURE,
    AclnnError,
    Assumed,
    Attribute,
    Case,
    Caveat,
    Condition,
    Derived,
    Description,
    Evidence,
    Inspection,
    Operator,
    Output,
    Profile,
    Run,
    Tensor,
    Text,
    WorkspacePart,
    bound_sizes,
    caveat,
    ceil_div,
    checks,
    counted,
    decision,
    shape_text,
    to_fp32,
    unsupported_values,
    vector_plan,
)
from npu_sim.numbers.values import normal
from npu_sim.operators.shared import normalised_rows
from npu_sim.tiling import rms_norm as tiler

if TYPE_CHECKING:
    from npu_sim.kernels.rms_norm import Split

MIXED_ROWS = (
    ("float16", "float32", "float16", "float32"),
    ("bfloat16", "float32", "bfloat16", "float32"),
)
PLAIN_ROWS = (
    ("float16", "float16", "float16", "float32"),
    ("bfloat16", "bfloat16", "bfloat16", "float32"),
    ("float32", "float32", "float32", "float32"),
)
"""dtypes of (x, gamma, y, rstd) (page, "Contract" 2)."""
PLAIN_PRODUCTS = (NPU_ARCH_ATLAS_INFERENCE, NPU_ARCH_ATLAS_TRAIN)
"""Architectures without mixed rows."""


def dtype_rows(profile: Profile) -> Sequence[Sequence[str]]:
    """Return the dtype combinations that a product supports."""
    rows = PLAIN_ROWS if profile.npu_arch in PLAIN_PRODUCTS else (*MIXED_ROWS, *PLAIN_ROWS)
    return [row for row in rows if row[0] in profile.product.dtypes]


def check_gamma(call: Inspection) -> None:
    """Check that gamma has the last axes of x and set the sizes (page, "Contract" 3)."""
    x, gamma = call.specs["x"], call.specs["gamma"]
    if gamma.rank > x.rank or gamma.shape != x.shape[x.rank - gamma.rank :]:
        raise AclnnError(
            TILING_FAILURE,
            "gamma",
            Text(
                "gamma is {given}, but x is {x}: gamma must be its last axes",
                given=shape_text(gamma.shape),
                x=shape_text(x.shape),
            ),
            Text("gamma: {wanted}", wanted=shape_text(x.shape[max(x.rank - gamma.rank, 0) :])),
        )
    call.sizes = bound_sizes(call.operator, call.arguments)


def check_epsilon(call: Inspection) -> None:
    """Check that epsilon >= 0 after rounding to fp32; inf and nan pass (page, "Contract" 6)."""
    if to_fp32(call.arguments.epsilon) < 0:
        raise AclnnError(
            TILING_FAILURE,
            "epsilon",
            Text("epsilon = {epsilon} is below 0", epsilon=call.arguments.epsilon),
            "epsilon >= 0",
        )


LAST_AXIS_BYTES, LAST_AXIS = normalised_rows.last_axis("x gamma")


OPERATOR = Operator(
    name="rms_norm",
    title="RmsNorm",
    summary="Normalise rows by their root mean square as the product does.",
    arguments=(
        Tensor("x", "row* col+", "input, (rows ..., columns ...)", "dtype", samples=0),
        Tensor("gamma", "col+", "scale of every column, (columns ...)", "gamma_dtype"),
        Attribute("epsilon", float, "what is added to the mean square", default=1e-6),
        Output(
            "y", "row* col+", "x normalised and scaled, like x", "dtype", document="yOut", samples=0
        ),
        Output(
            "rstd",
            "row* 1col?",
            "1/sqrt(mean(x^2)+epsilon) of every row, fp32",
            "float32",
            document="rstdOut",
            samples=0,
        ),
    ),
    axes=normalised_rows.axes("x and y"),
    derived=(
        Derived("x_rank", "2", lambda specs: specs["x"].rank),
        Derived("gamma_rank", "1", lambda specs: specs["gamma"].rank),
        Derived("first_axis", "row", lambda specs: specs["x"].shape[0]),
        Derived("second_axis", "col", lambda specs: (*specs["x"].shape, 1)[1]),
        LAST_AXIS_BYTES,
    ),
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.DtypeTable("x gamma y rstd", dtype_rows),
        checks.Formats(checks.PLAIN_FORMATS, status=TILING_FAILURE),
        checks.Ranks("x gamma", 1, status=TILING_FAILURE),
        check_gamma,
        checks.Like("y", "x", TILING_FAILURE),
        checks.Shapes("rstd", TILING_FAILURE),
        checks.NothingToDo("row == 0"),
        checks.Holds("col >= 1", "gamma"),
        LAST_AXIS,
        checks.Attributes("epsilon"),
        check_epsilon,
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile,
    used_bytes=tiler.used_bytes,
    assumed=(
        Assumed(
            "system_workspace_bytes",
            SYSTEM_WORKSPACE_BYTES,
            "specification page rms_norm, Workspace",
        ),
    ),
    evidence=Evidence.EXACT,
    empty="empty: no rows, nothing runs",
    families=(ASCEND_950,),
    package=__package__,
)


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
        per_core=_per_core(case),
        buffers=tiler.buffers(tiling, case.row, case.device, case.rules)._asdict(),
        ranges=[tiler.row_range(tiling, core) for core in range(tiling.block_dim)],
        fields=tiler.vendor_structure(tiling, case.arguments, case.rules),
        workspace=workspace_parts(case),
        conditions=lambda: [decision(case, condition, **values) for condition in conditions],
        caveats=_caveats(case),
    )


def workspace_parts(case: Case) -> list[WorkspacePart]:
    """Return the kernel's own workspace by part."""
    return [
        normalised_rows.SYSTEM,
        WorkspacePart(
            name="untouched",
            bytes=tiler.UNTOUCHED_BYTES,
            kind="kernel",
            note="no kernel reads or writes it",
        ),
        *(
            WorkspacePart(
                name=Text("copy of {name}", name=output.name),
                bytes=0,
                kind="kernel",
                evidence=Evidence.UNKNOWN,
                note="not published",
            )
            for output in case.operator.outputs
            if not case.specs[output.name].contiguous
        ),
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


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings a plan gives")."""
    tiling, row, rules = case.tiling, case.row, case.rules
    # Widths of the element offset of a core's first row (page, "Releases"); 64 bits never wrap.
    widths = {tiler.KEY_NORMAL: rules.row_offset_bits, tiler.KEY_SPLIT_D: 64}
    bits = widths.get(tiling.tiling_key, rules.core_offset_bits)
    if row.row * row.col > 1 << bits:
        who: str = Text("release {release} counts", release=case.profile.release)
        if rules.core_offset_depends_on_tag and tiling.tiling_key != tiler.KEY_NORMAL:
            who = "v9.1.0 and v9.2.0-beta.1 count"  # later sources of this release are wider
        yield caveat(
            "element_offset_wraps",
            "x",
            "{who} elements of x before a core's first in {bits} bits: cores that begin beyond "
            "2^{bits} elements read and write at that place modulo 2^{bits}; the simulator "
            "computes as if they did not",
            who=who,
            bits=bits,
            not_modelled="*",
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
        behind = -tiling.last_block_factor % RSTD_GROUP
        if behind:
            yield caveat(
                "rstd_written_behind_end",
                "rstd",
                "the last core writes {behind} zeros, {bytes} bytes, behind the end of rstd",
                behind=behind,
                bytes=4 * behind,
            )
    yield from zero_epsilon_caveats(case)


def zero_epsilon_caveats(case: Case) -> Iterator[Caveat]:
    """Warn of an epsilon that is 0 in fp32."""
    if to_fp32(case.arguments.epsilon) == 0:
        yield caveat(
            "zero_rows_without_epsilon",
            "epsilon",
            "epsilon is 0 in fp32: a row of zeros has rstd inf and y nan",
        )


LARGEST_SQUARED = 1.8446743e19
"""Largest magnitude with a finite square in fp32 (page, "Special values")."""


def split_of(case: Case) -> "Split":
    """Return the kernel's argument for the summation of a row."""
    from npu_sim.kernels import rms_norm as kernels

    path = {tiler.KEY_MERGE_N: kernels.LANES, tiler.KEY_SPLIT_D: kernels.PIECES}.get(
        case.tiling.tiling_key, kernels.HALVING
    )
    return kernels.Split(path, case.tiling.ub_factor if path == kernels.PIECES else case.row.col)


def compute(run: Run) -> None:
    """Compute y and rstd."""
    compute_rows(run, split_of)


def compute_rows(run: Run, split_of_case: Callable[[Case], "Split"]) -> None:
    """Compute y and rstd, with the kernel's argument for the summation of a row."""
    case = run.case
    with run.watch.stage("load"):
        from npu_sim.kernels.rms_norm import rms_norm
    with run.watch.stage("check"):
        run.caveats = unsupported_values(run.tensors) if case.profile.saturates else ()
    with run.watch.stage("compute"):
        shape, rstd = (case.row.row, case.row.col), run.written("rstd").reshape(-1)
        x, gamma = run.stored("x").reshape(shape), run.stored("gamma").reshape(-1)
        rms_norm(
            x,
            gamma,
            split_of_case(case),
            to_fp32(case.arguments.epsilon),
            run.written("y").reshape(shape),
            rstd,
        )
    run.caveats += _overflowing_rows(run.tensors["x"].reshape(shape), rstd)


def _overflowing_rows(x: np.ndarray, rstd: np.ndarray) -> tuple[Caveat, ...]:
    """Warn of rows whose sum overflows despite finite inputs; rstd is 0 in these rows only."""
    if rstd.all():
        return ()
    rows = np.flatnonzero(rstd == 0)
    sizes = np.abs(x[rows].astype(np.float32))
    found = int(np.count_nonzero((np.isfinite(sizes) & (sizes > LARGEST_SQUARED)).any(axis=1)))
    if not found:
        return ()
    return (
        caveat(
            "squares_overflow",
            "x",
            "{found} rows have a finite element above {largest_squared}, whose square is inf: "
            "their rstd is 0",
            found=found,
            largest_squared=f"{LARGEST_SQUARED:g}",
        ),
    )


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Return y and rstd by their formulas (page, "Formula")."""
    x, gamma = tensors["x"], tensors["gamma"].astype(precision).reshape(-1)
    rows = x.reshape(-1, gamma.size)
    y, rstd = np.empty(rows.shape, precision), np.empty(len(rows), precision)
    step = max(1, normalised_rows.BLOCK_ELEMENTS // gamma.size)
    for begin in range(0, len(rows), step):
        block = rows[begin : begin + step].astype(precision)
        rstd[begin : begin + step] = 1 / np.sqrt(
            np.mean(block * block, axis=1) + precision.type(arguments.epsilon)
        )
        y[begin : begin + step] = block * rstd[begin : begin + step, None] * gamma
    leading = x.shape[: x.ndim - tensors["gamma"].ndim]
    return {"y": y.reshape(x.shape), "rstd": rstd.reshape(leading + (1,) * tensors["gamma"].ndim)}


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return inputs as in a trained network: activations of order 1, scales near 1."""
    random = np.random.default_rng(seed)
    gamma = normalised_rows.draw_gamma(random, arguments.gamma)
    return {"x": normal(random, arguments.x), "gamma": gamma}

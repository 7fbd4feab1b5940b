"""RegluGrad: the gradient of y = relu(a) * b, where x = (a | b) along its last axis.

    da = dy * b where a > 0, else 0;  db = dy * max(a, 0);  dx = (da | db)

Rows are split over the vector cores; each core computes them in groups that fit the Unified Buffer.
A model: the product has no such operator.
"""

import numpy as np

from npu_sim.declare import *
from npu_sim.kernels import kernel


class Tiling(NamedTuple):
    status: int
    block_dim: Annotated[int, Field("cores that work", "vector_cores", vendor="blockDim")]
    core_rows: Annotated[int, Field("rows of a core", "row", vendor="coreRows")]
    ub_rows: Annotated[
        int, Field("rows in the Unified Buffer at a time", "ub_bytes", vendor="ubRows")
    ]
    ub_bytes: Annotated[int, Field("bytes they take", "ub_bytes")]


NO_TILING: Tiling = nothing(Tiling)


def row_bytes(row: Any) -> int:
    """Return the bytes of a row: dy, a, b, da and db in their dtype, and three fp32 buffers."""
    element_bytes = 4 if row.dtype == 0 else 2
    return align(row.col, 16) * (5 * element_bytes + 12)


def fits(row: Any, device: Device, rules: Any) -> bool:
    return row_bytes(row) <= device.ub_bytes


def too_wide(call: Any) -> tuple[str, str]:
    return (
        f"a row of {call.size('col')} columns takes {row_bytes(call.row)} bytes",
        f"at most {call.profile.device.ub_bytes} bytes",
    )


def fit_at_once(row: Any, device: Device, rules: Any) -> bool:
    return ceil_div(row.row, device.vector_cores) * row_bytes(row) <= device.ub_bytes


def tile(row: Any, device: Device, rules: Any) -> Tiling:
    if not fits(row, device, rules):
        return NO_TILING
    core_rows = ceil_div(row.row, device.vector_cores)
    ub_rows = min(core_rows, device.ub_bytes // row_bytes(row))
    return Tiling(
        SUCCESS, ceil_div(row.row, core_rows), core_rows, ub_rows, ub_rows * row_bytes(row)
    )


@kernel
def rows_of_core(core, dy, x, core_rows, dx):
    zero, columns = np.float32(0), dy.shape[1]
    for row in range(core * core_rows, min((core + 1) * core_rows, dy.shape[0])):
        for column in range(columns):
            a, b = x[row, column], x[row, columns + column]
            dx[row, column] = dy[row, column] * b if a > zero else zero
            dx[row, columns + column] = dy[row, column] * max(a, zero)


def compute(run: Any) -> None:
    with run.watch.stage("compute"):
        rows, tiling = run.case.row.row, run.case.tiling
        dy, x = (
            np.ascontiguousarray(run.tensors[name], np.float32).reshape(rows, -1)
            for name in ("dy", "x")
        )
        dx = np.empty_like(x)
        rows_of_core.over(tiling.block_dim, dy, x, tiling.core_rows, dx)
        run.outputs["dx"][...] = dx.reshape(run.outputs["dx"].shape)


def describe(case: Case) -> Description:
    tiling, rows = case.tiling, case.row.row
    at_once = Condition(
        "rows in one go",
        "bytes of a core's rows <= Unified Buffer",
        fit_at_once,
        "one copy in",
        "in groups",
        ("row",),
    )
    groups = ceil_div(tiling.core_rows, tiling.ub_rows)
    core_bytes = tiling.core_rows * row_bytes(case.row)
    return vector_plan(
        case,
        path="whole rows",
        path_reason=f"{row_bytes(case.row)} bytes a row",
        per_core=f"groups of up to {tiling.ub_rows} rows: {groups}",
        buffers={"rows": tiling.ub_bytes},
        ranges=[
            (start, min(start + tiling.core_rows, rows))
            for start in range(0, rows, tiling.core_rows)
        ],
        conditions=[decision(case, at_once, core_bytes=core_bytes, ub_bytes=case.device.ub_bytes)],
    )


def program(plan: Any) -> Program:
    spec = plan.arguments["dy"]
    columns, size = int(spec.split(":")[0].split("x")[-1]), 4 if spec.endswith("fp32") else 2

    def group(rows: int) -> Any:
        elements = rows * columns
        copies = Copy(size * elements, elements), Copy(2 * size * elements, 2 * elements)
        work = (
            Instruction("compare_compares_select", "float32", elements, times=2),
            Instruction("adds_muls_maxs_mins", "float32", elements),
            Instruction("add_sub_mul_max_min", "float32", elements, times=2),
        )
        return (vector_tile(copies, work, copies[1:]),)

    cores = {
        core: ranged("rows", *own, plan.tiling["ubRows"], group)
        for core, own in rows_of_cores(plan).items()
    }
    return Program((vector_phase("rows", cores),))


def formula(arguments: Any, tensors: Any, precision: Any) -> dict[str, Any]:
    dy, x = tensors["dy"].astype(precision), tensors["x"].astype(precision)
    a, b = np.split(x, 2, axis=-1)
    return {"dx": np.concatenate((np.where(a > 0, dy * b, 0), dy * np.maximum(a, 0)), axis=-1)}


OPERATOR = Operator(
    name="reglu_grad",
    title="RegluGrad",
    summary="Gradient of relu(a) * b, where a and b are the halves of x.",
    arguments=(
        Tensor("dy", "row* col", "gradient of the result", "dtype", samples=0),
        Tensor("x", "row* 2*col", "a and b, side by side", "dtype", samples=0),
        Output("dx", "row* 2*col", "gradients of a and b, side by side", "dtype", samples=0),
    ),
    axes=(
        Word("dtype", "dtype of all tensors", FLOAT_DTYPES, "float32"),
        Number("col", "columns of dy", 1024, unit="column"),
        Number("row", "rows", 4096, unit="row"),
    ),
    checks=(
        Given(),
        Supported(),
        Dtypes("dy", FLOAT_DTYPES),
        SameDtype("x dx", "dy"),
        Shapes("dy x dx"),
        Holds("col >= 1", "dy"),
        NothingToDo("row == 0"),
        Fits(fits, "dy", too_wide),
    ),
    tiling=Tiling,
    tile=tile,
    describe=describe,
    compute=compute,
    formula=formula,
    program=program,
    products=("atlas_a2", "atlas_a3"),
)

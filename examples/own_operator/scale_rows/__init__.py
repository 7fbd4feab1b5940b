"""ScaleRows: y = x * scale[row], total = sum of y over the columns; rows are split over cores."""

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
    """Return the bytes of a row: x and y in their dtype, y in fp32, and its scale and total."""
    element_bytes = 4 if row.dtype == 0 else 2
    return align(row.col, 16) * (2 * element_bytes + 4) + 64


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
def scale_core(core, x, scale, core_rows, y, total):
    for row in range(core * core_rows, min((core + 1) * core_rows, x.shape[0])):
        total_of_row = np.float32(0)
        for column in range(x.shape[1]):
            y[row, column] = x[row, column] * scale[row]
            total_of_row += y[row, column]
        total[row] = total_of_row


def compute(run: Any) -> None:
    with run.watch.stage("compute"):
        x = np.ascontiguousarray(run.tensors["x"], np.float32).reshape(run.case.row.row, -1)
        y = np.empty_like(x)
        tiling = run.case.tiling
        scale_core.over(
            tiling.block_dim,
            x,
            run.stored("scale").reshape(-1),
            tiling.core_rows,
            y,
            run.outputs["total"].reshape(-1),
        )
        run.outputs["y"][...] = y.reshape(run.outputs["y"].shape)


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
    return vector_plan(
        case,
        path="whole rows",
        path_reason=f"{row_bytes(case.row)} bytes a row",
        per_core=(
            f"{ceil_div(tiling.core_rows, tiling.ub_rows)} groups of up to {tiling.ub_rows} rows"
        ),
        buffers={"rows": tiling.ub_bytes},
        ranges=[
            (start, min(start + tiling.core_rows, rows))
            for start in range(0, rows, tiling.core_rows)
        ],
        conditions=[
            decision(
                case,
                at_once,
                core_bytes=tiling.core_rows * row_bytes(case.row),
                ub_bytes=case.device.ub_bytes,
            )
        ],
    )


def program(plan: Any) -> Program:
    spec = plan.arguments["x"]
    columns, size = int(spec.split(":")[0].split("x")[-1]), 4 if spec.endswith("fp32") else 2

    def group(rows: int) -> Any:
        copy = Copy(size * rows * columns, rows * columns)
        work = Instruction("add_sub_mul_max_min", "float32", rows * columns, times=2)
        return (vector_tile((copy, Copy(4 * rows, rows)), (work,), (copy, Copy(4 * rows, rows))),)

    cores = {
        core: ranged("rows", *own, plan.tiling["ubRows"], group)
        for core, own in rows_of_cores(plan).items()
    }
    return Program((vector_phase("rows", cores),))


def formula(arguments: Any, tensors: Any, precision: Any) -> dict[str, Any]:
    y = tensors["x"].astype(precision) * tensors["scale"].astype(precision).reshape(-1, 1)
    return {"y": y, "total": y.sum(axis=-1)}


def claims(call: Any) -> Any:
    rows, columns = call.tensors["x"].shape
    names = tuple(f"x*scale of column {column}" for column in range(columns))
    yield Claim(
        "total",
        (0,),
        rows,
        names,
        trees.left_fold(range(columns)),
        lambda codes: probe(call, codes),
    )


def probe(call: Any, codes: Any) -> Any:
    dtype = call.case.specs["x"].dtype
    changed = call.with_tensors(x=probe_terms(codes, dtype), scale=np.ones(len(codes), np.float32))
    return count_units(changed.run().outputs["total"], dtype)


def terms(call: Any, output: str, index: tuple[int, ...]) -> list[tuple[str, float]]:
    products = formula(None, call.tensors, np.float64)["y"][index[0]]
    columns = range(products.size) if output == "total" else [index[1]]
    return [(f"x*scale of column {column}", float(products[column])) for column in columns]


OPERATOR = Operator(
    name="scale_rows",
    title="ScaleRows",
    summary="Multiply every row with its scale, and sum the row.",
    arguments=(
        Tensor("x", "row col", "the matrix", "dtype", samples=0),
        Tensor("scale", "row", "scale of every row", "float32", samples=0),
        Output("y", "row col", "every row times its scale", "dtype", samples=0),
        Output("total", "row", "sum of every row of y", "float32", samples=0),
    ),
    axes=(
        Word("dtype", "dtype of x and y", FLOAT_DTYPES, "float32"),
        Number("col", "columns", 1024, unit="column"),
        Number("row", "rows", 4096, unit="row"),
    ),
    checks=(
        Given(),
        Supported(),
        Dtypes("x", FLOAT_DTYPES),
        Dtypes("scale total"),
        SameDtype("y", "x"),
        Shapes("x scale y total"),
        Holds("col >= 1", "x"),
        NothingToDo("row == 0"),
        Fits(fits, "x", too_wide),
    ),
    tiling=Tiling,
    tile=tile,
    describe=describe,
    compute=compute,
    formula=formula,
    program=program,
    claims=claims,
    terms=terms,
    products=("atlas_a2", "atlas_a3", "atlas_inference", "atlas_train"),
)

"""What a sweep of RmsNormGrad can vary, and the plan of one row in whole numbers."""

from typing import Any, NamedTuple

from npu_sim.cores import Device, Profile
from npu_sim.formats import TensorSpec
from npu_sim.ops.rms_norm_grad import NAME, Arguments
from npu_sim.ops.rms_norm_grad_checks import SIZE_LIMIT, dtype_rows
from npu_sim.sweeps.common import (
    BFLOAT16,
    DTYPES,
    FLOAT16,
    FLOAT32,
    REFUSED,
    TILING_FAILED,
    cores_bound,
    status_bound,
    switch_bound,
)
from npu_sim.sweeps.declaration import Column, Declaration, Number, Values, Word
from npu_sim.tiling import rms_norm_grad as tiler

X_IN_TABLE, GAMMA_IN_TABLE = 1, 3
"""Places of x and gamma in the contract's table of dtypes."""

AXES = (
    Word("gamma_dtype", "dtype of gamma", DTYPES, "bfloat16"),
    Word("dtype", "dtype of dy, x and dx", DTYPES, "bfloat16"),
    Number("col", "columns: product of the axes of gamma", 4096, unit="column", aliases=("columns", "cols")),
    Number("row", "rows: product of the other axes of x", 1024, unit="row", aliases=("rows",)),
)


class Row(NamedTuple):
    """Codes of the axes."""

    gamma_dtype: int
    dtype: int
    col: int
    row: int
    limits: int
    deterministic: int


class Rules(NamedTuple):
    """What the contract needs of a profile.

    Attributes
    ----------
    supported
        Whether it has the operator.
    dtype_pairs
        One bit for every pair of dtypes of x and gamma that it takes.
    last_axis_bytes
        Documented least size of the last axis; 0 for none.
    """

    supported: int
    dtype_pairs: int
    last_axis_bytes: int


class Record(NamedTuple):
    """Plan of one row."""

    status: int
    tiling: tiler.Tiling


def bytes_of(dtype: int) -> int:
    """Bytes of an element."""
    return 4 if dtype == FLOAT32 else 2


def contract_status(row: Row, device: Device, rules: Rules) -> int:
    """Return the status of the first check that fails on a call of consistent shapes, as ``ops`` does; 0 when none does."""
    if rules.supported == 0 or (rules.dtype_pairs >> (len(DTYPES) * row.dtype + row.gamma_dtype)) & 1 == 0:
        return REFUSED
    if row.row == 0 or row.col == 0 or row.row >= SIZE_LIMIT or row.col >= SIZE_LIMIT:
        return TILING_FAILED
    if row.col * min(bytes_of(row.dtype), bytes_of(row.gamma_dtype)) < rules.last_axis_bytes:
        return TILING_FAILED
    return 0 if tiler.columns_fit(row.col, device.npu_arch) else TILING_FAILED


def plan_row(row: Row, device: Device, rules: Rules) -> Record:
    """Plan one row."""
    status = contract_status(row, device, rules)
    if status != 0:
        return Record(status, tiler.failed_tiling())
    code = tiler.FP32 if row.dtype == FLOAT32 else tiler.FP16 if row.dtype == FLOAT16 else tiler.BF16
    tiling = tiler.tile(tiler.Problem(row.row, row.col, code, row.deterministic == 1), device)
    return Record(0 if tiling.status == tiler.SUCCESS else TILING_FAILED, tiling)


def call(values: Values) -> dict[str, Any]:
    """Return the arguments of a call with these sizes and dtypes."""
    row, col, dtype = int(values["row"]), int(values["col"]), str(values["dtype"])
    return {
        "dy": TensorSpec((row, col), dtype),
        "x": TensorSpec((row, col), dtype),
        "rstd": TensorSpec((row,), "float32"),
        "gamma": TensorSpec((col,), str(values["gamma_dtype"])),
    }


def read(arguments: Arguments) -> Values:
    """Return the sizes and dtypes of given arguments."""
    values: Values = {}
    x = arguments.x or arguments.dy
    if arguments.gamma is not None:
        values |= {"gamma_dtype": arguments.gamma.dtype, "col": arguments.gamma.numel}
    if x is not None:
        values["dtype"] = x.dtype
    if x is not None and arguments.gamma is not None and arguments.gamma.numel:
        values["row"] = x.numel // arguments.gamma.numel
    elif x is not None and x.rank == 2:
        values |= dict(zip(("row", "col"), x.shape, strict=True))
    return values


def rules(profile: Profile) -> Rules:
    """Return what the contract needs of a profile."""
    pairs = 0
    for combination in dtype_rows(profile):
        pairs |= 1 << (len(DTYPES) * DTYPES.index(combination[X_IN_TABLE]) + DTYPES.index(combination[GAMMA_IN_TABLE]))
    return Rules(int(NAME in profile.product.operators), pairs, profile.limits.rms_norm_last_axis_bytes_at_least or 0)


def _rows(most: Any) -> int:
    return int(most.row)


def _columns(most: Any) -> int:
    return int(most.col)


def _either(most: Any) -> int:
    return int(max(most.row, most.col, tiler.PIECE_COLUMNS))


def _workspace(most: Any) -> int:
    words = most.col + tiler.PIECE_COLUMNS + 64 + most.row
    return int(max(most.system_workspace_bytes, tiler.SYSTEM_WORKSPACE_BYTES) + 4 * most.vector_cores * words)


COLUMNS = (
    Column("status", status_bound, "aclnn status; 0 when the call runs"),
    Column("tiling.block_dim", cores_bound, "cores that work"),
    Column("tiling.tiling_key", lambda most: tiler.SPLIT_D, "tiling key: 1 whole rows, 2 rows in pieces"),
    Column("tiling.schedule_mode", switch_bound, "1 when all cores start together, else -1"),
    Column("tiling.workspace_bytes", _workspace, "workspace of the kernel"),
    Column("tiling.columns_aligned", _columns, "columns of a padded row"),
    Column("tiling.average_factor", None, "1 / col in fp32"),
    Column("tiling.dtype_code", lambda most: BFLOAT16 + 1, "dtype code of x and dy"),
    Column("tiling.block_factor", _rows, "rows of a core"),
    Column("tiling.core_tail", _rows, "rows of the last core, when it takes fewer"),
    Column("tiling.ub_factor", _either, "rows (key 1) or columns (key 2) in the Unified Buffer at a time"),
    Column("tiling.batches.num", _either, "rows or columns of a batch"),
    Column("tiling.batches.tail", _either, "rows or columns of the last batch"),
    Column("tiling.batches.loop", _either, "batches of a core"),
    Column("tiling.tail_batches.num", _either, "rows or columns of a batch of the last core"),
    Column("tiling.tail_batches.tail", _either, "rows or columns of its last batch"),
    Column("tiling.tail_batches.loop", _either, "its batches"),
    Column("tiling.fixed_output", switch_bound, "1 when the order of additions is fixed"),
    Column("tiling.chunks.size", lambda most: 1 << 32, "columns of dgamma that are reduced at a time"),
    Column("tiling.chunks.num", _columns, "chunks"),
    Column("tiling.chunks.tail", _columns, "columns of the last chunk"),
    Column("tiling.chunks.need", switch_bound, "whether dgamma is reduced in chunks"),
)

DECLARATION = Declaration(
    operator=NAME,
    axes=AXES,
    call=call,
    read=read,
    row=Row,
    rules=rules,
    plan_row=plan_row,
    columns=COLUMNS,
    left_out=("tiling.status", "tiling.rows", "tiling.columns"),
)

"""What a sweep of CrossEntropyLossGrad can vary, and the plan of one row in whole numbers."""

from typing import Any, NamedTuple

from npu_sim.cores import Device, Profile
from npu_sim.formats import TensorSpec
from npu_sim.ops.cross_entropy_loss_grad import Arguments
from npu_sim.ops.cross_entropy_loss_grad_checks import NAME
from npu_sim.sweeps.common import (
    DOCUMENTED,
    DTYPES,
    FLOAT16,
    FLOAT32,
    REFUSED,
    TILING_FAILED,
    cores_bound,
    dtype_mask,
    has_dtype,
    status_bound,
    switch_bound,
)
from npu_sim.sweeps.declaration import Column, Declaration, Number, Switch, Values, Word
from npu_sim.tiling import cross_entropy_loss_grad as tiler

LARGEST_KEY = 10 * tiler.FP32 + 1
INT64_MAX = 2**63 - 1

AXES = (
    Word("dtype", "dtype of log_prob and grad_loss", DTYPES, "float32"),
    Word("reduction", "reduction", tiler.REDUCTIONS, "mean"),
    Switch("weighted", "whether weight is given", aliases=("weight_given",)),
    Number("ignore_index", "ignore_index", -100, low=-INT64_MAX - 1, high=INT64_MAX, aliases=("ignoreIndex",)),
    Number("C", "classes, last axis of log_prob", 32000, unit="column", aliases=("classes", "col", "columns")),
    Number("N", "rows, first axis of log_prob", 4096, unit="row", aliases=("row", "rows")),
)


class Row(NamedTuple):
    """Codes of the axes."""

    dtype: int
    reduction: int
    weighted: int
    ignore_index: int
    C: int
    N: int
    limits: int
    deterministic: int


class Rules(NamedTuple):
    """What the contract needs of a profile: whether it has the operator, its dtypes, and the documented N (0 for none)."""

    supported: int
    dtypes: int
    rows_below: int


class Record(NamedTuple):
    """Plan of one row."""

    status: int
    tiling: tiler.Tiling


def contract_status(row: Row, rules: Rules) -> int:
    """Return the status of the first check that fails before the buffers are laid out; 0 when none does."""
    if rules.supported == 0 or not has_dtype(rules.dtypes, row.dtype):
        return REFUSED
    if row.C == 0:
        return TILING_FAILED
    if row.ignore_index >= row.C:
        return REFUSED
    documented = row.limits == DOCUMENTED and rules.rows_below > 0
    return TILING_FAILED if documented and rules.rows_below <= row.N else 0


def plan_row(row: Row, device: Device, rules: Rules) -> Record:
    """Plan one row."""
    status = contract_status(row, rules)
    if status != 0 or row.N == 0:
        return Record(status, tiler.failed_tiling())
    code = tiler.FP32 if row.dtype == FLOAT32 else tiler.FP16 if row.dtype == FLOAT16 else tiler.BF16
    problem = tiler.Problem(row.N, row.C, code, row.weighted == 1, row.reduction)
    if not tiler.fits(problem, device):
        return Record(TILING_FAILED, tiler.failed_tiling())
    return Record(0, tiler.tile(problem, device))


def call(values: Values) -> dict[str, Any]:
    """Return the arguments of a call with these sizes and dtypes."""
    rows, columns, dtype = int(values["N"]), int(values["C"]), str(values["dtype"])
    arguments = {
        "grad_loss": TensorSpec((rows,) if values["reduction"] == "none" else (), dtype),
        "log_prob": TensorSpec((rows, columns), dtype),
        "target": TensorSpec((rows,), "int64"),
        "reduction": values["reduction"],
        "ignore_index": values["ignore_index"],
    }
    return arguments | ({"weight": TensorSpec((columns,), "float32")} if values["weighted"] else {})


def read(arguments: Arguments) -> Values:
    """Return the sizes and dtypes of given arguments."""
    values: Values = {"reduction": arguments.reduction, "ignore_index": arguments.ignore_index, "weighted": arguments.weight is not None}
    if arguments.log_prob is not None:
        values["dtype"] = arguments.log_prob.dtype
        if arguments.log_prob.rank == 2:
            values |= dict(zip(("N", "C"), arguments.log_prob.shape, strict=True))
    return values


def rules(profile: Profile) -> Rules:
    """Return what the contract needs of a profile."""
    supported = int(NAME in profile.product.operators)
    return Rules(supported, dtype_mask(profile), profile.limits.cross_entropy_rows_below or 0)


def _rows(most: Any) -> int:
    return int(most.N)


def _columns(most: Any) -> int:
    return int(most.C)


def _ub(most: Any) -> int:
    """What fits the Unified Buffer; other calls are refused."""
    return int(most.ub_bytes)


BUFFERS = {
    "target": "labels",
    "target_cast": "labels as int32",
    "grad_loss": "grad_loss",
    "grad_loss_fp32": "grad_loss in fp32",
    "ignore": "ignore_index as fp32",
    "mask": "mask",
    "target_weight": "weights of the labels",
    "buf2": "sum over the rows",
    "buf3": "shares of the cores",
}

COLUMNS = (
    Column("status", status_bound, "aclnn status; 0 when the call runs"),
    Column("tiling.block_dim", cores_bound, "cores that work"),
    Column("tiling.tiling_key", lambda most: LARGEST_KEY, "tiling key"),
    Column("tiling.schedule_mode", switch_bound, "1 when all cores start together, else -1"),
    Column("tiling.workspace_bytes", lambda most: most.system_workspace_bytes + 4 * most.vector_cores + 32, "workspace of the kernel"),
    Column("tiling.front_cores", cores_bound, "cores that take front_rows rows"),
    Column("tiling.tail_cores", cores_bound, "cores that take tail_rows rows"),
    Column("tiling.front_rows", _rows, "rows of the first cores"),
    Column("tiling.tail_rows", _rows, "rows of the other cores"),
    Column("tiling.column_budget", _ub, "columns that fit beside the row buffers"),
    Column("tiling.align_columns", _columns, "columns of a piece of a row"),
    Column("tiling.column_loop", _columns, "whole pieces of a row"),
    Column("tiling.column_tail", _columns, "columns of the last piece"),
    *(Column(f"tiling.buffers.{name}", _ub, f"bytes of the buffer: {text}") for name, text in BUFFERS.items()),
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
    left_out=("tiling.status", "tiling.rows", "tiling.columns", "tiling.reduction", "tiling.wraps"),
)

"""What a sweep of MoeTokenPermuteGrad can vary, and the plan of one row in whole numbers."""

from typing import Any, NamedTuple

from npu_sim.cores import Device, Profile
from npu_sim.formats import TensorSpec
from npu_sim.ops.moe_token_permute_grad import NAME, Arguments
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
)
from npu_sim.sweeps.declaration import Column, Declaration, Number, Values, Word
from npu_sim.tiling import moe_token_permute_grad as moe

LARGEST_KEY = max(moe.KEYS.values())

AXES = (
    Word("dtype", "dtype of permuted_output_grad", DTYPES, "bfloat16"),
    Number("num_topk", "experts chosen for a token", 8, low=0, unit="expert", aliases=("numTopk", "topk", "K")),
    Number("hidden", "last axis of permuted_output_grad", 1024, unit="column", aliases=("H", "hidden_size")),
    Number("tokens", "tokens; sorted_indices has tokens * num_topk elements", 1024, unit="token", aliases=("T",)),
)


class Row(NamedTuple):
    """Codes of the axes."""

    dtype: int
    num_topk: int
    hidden: int
    tokens: int
    limits: int
    deterministic: int


class Rules(NamedTuple):
    """What the contract needs of a profile: whether it has the operator, its dtypes, and the documented numTopk (0 for none)."""

    supported: int
    dtypes: int
    num_topk_at_most: int


class Record(NamedTuple):
    """Plan of one row."""

    status: int
    tiling: moe.Tiling


def contract_status(row: Row, rules: Rules) -> int:
    """Return the status of the first check that fails before tiling; 0 when none does."""
    if rules.supported == 0 or not has_dtype(rules.dtypes, row.dtype) or row.num_topk < 1:
        return REFUSED
    if row.limits == DOCUMENTED and rules.num_topk_at_most > 0 and row.num_topk > rules.num_topk_at_most:
        return REFUSED
    return TILING_FAILED if row.hidden == 0 else 0


def nothing() -> moe.Tiling:
    """Return the tiling of a call that does not run."""
    return moe.Tiling(moe.FAILED, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def plan_row(row: Row, device: Device, rules: Rules) -> Record:
    """Plan one row."""
    status = contract_status(row, rules)
    if status != 0 or row.tokens == 0:
        return Record(status, nothing())
    key = moe.KEY_FP32 if row.dtype == FLOAT32 else moe.KEY_FP16 if row.dtype == FLOAT16 else moe.KEY_BF16
    entries = row.tokens * row.num_topk
    tiling = moe.tile(moe.Problem(entries, entries, row.hidden, row.num_topk, 4 if row.dtype == FLOAT32 else 2, key), device)
    # Without room for the indices of one token the product plans on and cannot work; the contract refuses.
    if tiling.status != moe.SUCCESS or tiling.batch_tokens == 0:
        return Record(TILING_FAILED, nothing())
    return Record(0, tiling)


def call(values: Values) -> dict[str, Any]:
    """Return the arguments of a call with these sizes and dtype."""
    entries = int(values["tokens"]) * int(values["num_topk"])
    return {
        "permuted_output_grad": TensorSpec((entries, int(values["hidden"])), str(values["dtype"])),
        "sorted_indices": TensorSpec((entries,), "int32"),
        "num_topk": values["num_topk"],
    }


def read(arguments: Arguments) -> Values:
    """Return the sizes and dtype of given arguments."""
    values: Values = {"num_topk": arguments.num_topk}
    if arguments.permuted_output_grad is not None and arguments.permuted_output_grad.rank == 2:
        values |= {"dtype": arguments.permuted_output_grad.dtype, "hidden": arguments.permuted_output_grad.shape[1]}
    if arguments.sorted_indices is not None and arguments.num_topk >= 1:
        values["tokens"] = arguments.sorted_indices.numel // arguments.num_topk
    return values


def rules(profile: Profile) -> Rules:
    """Return what the contract needs of a profile."""
    supported = int(NAME in profile.product.operators)
    return Rules(supported, dtype_mask(profile), profile.limits.moe_num_topk_at_most or 0)


def _hidden(most: Any) -> int:
    return int(most.hidden)


def _tokens(most: Any) -> int:
    return int(most.tokens)


COLUMNS = (
    Column("status", status_bound, "aclnn status; 0 when the call runs"),
    Column("tiling.block_dim", cores_bound, "cores that work"),
    Column("tiling.tiling_key", lambda most: LARGEST_KEY, "tiling key: bf16 0, fp16 2, fp32 4"),
    Column("tiling.workspace_bytes", lambda most: most.system_workspace_bytes, "workspace of the kernel"),
    Column("tiling.grad_rows", lambda most: most.tokens * most.num_topk, "rows of permuted_output_grad"),
    Column("tiling.hidden_length", _hidden, "columns taken at a time"),
    Column("tiling.hidden_pieces", _hidden, "whole pieces of a row"),
    Column("tiling.hidden_remainder", _hidden, "columns of the last piece"),
    Column("tiling.core_tokens", _tokens, "tokens of a core"),
    Column("tiling.core_remainder", cores_bound, "how many cores take one token more"),
    Column("tiling.batch_tokens", _tokens, "tokens whose indices are copied at a time"),
    Column("tiling.batches", _tokens, "batches of a core"),
    Column("tiling.batch_remainder", _tokens, "tokens of the last batch"),
    Column("tiling.buffers", lambda most: moe.MOST_BUFFERS, "rows in the Unified Buffer at a time"),
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
    left_out=("tiling.status", "tiling.hidden", "tiling.top_k"),
)

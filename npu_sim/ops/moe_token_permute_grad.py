"""MoeTokenPermuteGrad: arguments, ordered checks, documented and physical limits.

Source: product document aclnnMoeTokenPermuteGrad; specification page ``moe_token_permute_grad``, "Contract".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from npu_sim.areas import Areas, contiguous
from npu_sim.cores import Profile
from npu_sim.formats import TensorSpec
from npu_sim.ops import base
from npu_sim.ops.base import Arguments as BaseArguments
from npu_sim.ops.base import CoreOrder, Limits, Order, OrderMask, Result, Stopwatch, attribute, output_array, tensor
from npu_sim.plan_model import Plan
from npu_sim.planning.moe_token_permute_grad import Case, plan_fields
from npu_sim.status import INVALID, TILING_FAILURE, AclnnError
from npu_sim.tiling import moe_token_permute_grad as moe
from npu_sim.tiling.integers import align

NAME = "moe_token_permute_grad"
TITLE = "MoeTokenPermuteGrad"
INT64_MAX = 2**63 - 1
STORAGE_FORMATS = ("ND",)
"""数据格式要求为ND (product document)."""


@dataclass(frozen=True, kw_only=True)
class Arguments(BaseArguments):
    """Arguments of the call; ``out`` defaults to what the others imply."""

    OUTPUTS: ClassVar[tuple[str, ...]] = ("input_grad",)

    permuted_output_grad: TensorSpec | None = tensor("gradient of the permuted tokens, (tokens * num_topk, hidden), or fewer rows")
    sorted_indices: TensorSpec | None = tensor("row of every token and expert, (tokens * num_topk,), int32")
    num_topk: int = attribute("experts chosen for a token")
    padded_mode: bool = attribute("not supported yet: False", default=False)
    out: TensorSpec | None = tensor("the output, (tokens, hidden)", output=True)


def check(arguments: Arguments, profile: Profile, limits: Limits = "documented") -> Case:
    """Run the contract's checks in the product's order; return the call reduced to what planning needs.

    Raises
    ------
    AclnnError
        With the status of the first check that fails.
    """
    base.require_tensors(arguments)
    base.require_product(NAME, TITLE, profile)
    grad, indices, out = arguments.permuted_output_grad, arguments.sorted_indices, arguments.out
    assert grad is not None
    assert indices is not None
    _check_dtypes(grad, indices, out, profile)
    if base.require_bool("padded_mode", arguments.padded_mode):
        raise AclnnError(INVALID, "padded_mode", "padded_mode = True is not supported yet", "padded_mode = False")
    top_k = base.require_int("num_topk", arguments.num_topk, 1, INT64_MAX)
    documented = profile.limits.moe_num_topk_at_most
    if limits == "documented" and documented is not None and top_k > documented:
        raise _beyond_documented(top_k, documented, grad, profile)
    _check_shapes(grad, indices, out, top_k)
    case = Case(
        tokens=indices.numel // top_k,
        top_k=top_k,
        grad_rows=grad.shape[0],
        hidden=grad.shape[1],
        dtype=grad.dtype,
        grad_contiguous=grad.contiguous,
        indices_contiguous=indices.contiguous,
        profile=profile,
    )
    if not is_empty(case):
        _check_buffer(case)
    return case


def is_empty(case: Case) -> bool:
    """Whether there is no token: nothing runs."""
    return case.tokens == 0


def _check_dtypes(grad: TensorSpec, indices: TensorSpec, out: TensorSpec | None, profile: Profile) -> None:
    base.require_dtype("permuted_output_grad", grad, profile.product.dtypes, profile.product.title)
    base.require_dtype("sorted_indices", indices, ("int32",), TITLE)
    if out is not None and out.dtype != grad.dtype:
        message = f"out is {out.dtype}, permuted_output_grad is {grad.dtype}: they must agree"
        raise AclnnError(INVALID, "out", message, f"out: {grad.dtype}")
    for name, spec in (("permuted_output_grad", grad), ("sorted_indices", indices), ("out", out)):
        if spec is not None and spec.storage_format not in STORAGE_FORMATS:
            message = f"{name} has the format {spec.storage_format}"
            raise AclnnError(INVALID, name, message, f"format: {', '.join(STORAGE_FORMATS)}")


def _beyond_documented(top_k: int, documented: int, grad: TensorSpec, profile: Profile) -> AclnnError:
    """The documented bound, where it comes from, and where the buffers really end (page, "The real breaking point")."""
    ub_bytes = profile.device.ub_bytes
    always = moe.largest_topk_of_every_hidden(ub_bytes, grad.itemsize)
    really = f"numTopk <= {always} at every hidden size"
    if grad.rank == 2 and grad.shape[1] > 0:
        own = moe.largest_topk(ub_bytes, grad.shape[1], grad.itemsize)
        really = f"numTopk <= {own} at hidden {grad.shape[1]} {grad.dtype}, {really}"
    message = (
        f"num_topk = {top_k} exceeds the documented limit numTopk <= {documented}; "
        f"the planner keeps {moe.RESERVED_TOPK} * {moe.RESERVED_ENTRY_BYTES} = {moe.RESERVED_BYTES} bytes of the Unified Buffer for indices"
    )
    hint = f"nearest legal value: {documented}; what really fits on {profile.title}: {really} (limits=hardware)"
    return AclnnError(INVALID, "num_topk", message, hint)


def _check_shapes(grad: TensorSpec, indices: TensorSpec, out: TensorSpec | None, top_k: int) -> None:
    for name, spec, rank in (("permuted_output_grad", grad, 2), ("sorted_indices", indices, 1)):
        if spec.rank != rank:
            raise _bad_shape(name, f"{name} {spec} has rank {spec.rank}", f"rank {rank}")
    entries = indices.numel
    tokens = entries // top_k
    if entries % top_k:
        near = f"{tokens * top_k} or {(tokens + 1) * top_k} elements" if tokens else f"{top_k} elements"
        raise _bad_shape("sorted_indices", f"sorted_indices has {entries} elements, not a multiple of num_topk = {top_k}", near)
    rows, hidden = grad.shape
    if rows > entries:
        message = f"permuted_output_grad has {rows} rows, sorted_indices only {entries} elements"
        raise _bad_shape("permuted_output_grad", message, f"at most {entries} rows: one for every index, fewer when tokens were dropped")
    if hidden == 0:
        raise _bad_shape("permuted_output_grad", f"permuted_output_grad {grad} has no columns", "hidden >= 1")
    if out is not None and out.shape != (tokens, hidden):
        raise _bad_shape("out", f"out is {out}, the result has shape ({tokens}, {hidden})", f"out: {tokens}x{hidden}")


def _bad_shape(argument: str, message: str, hint: str) -> AclnnError:
    return AclnnError(TILING_FAILURE, argument, message, hint)


def _check_buffer(case: Case) -> None:
    """What does not fit the Unified Buffer, whatever the documents say."""
    ub_bytes, size = case.profile.device.ub_bytes, case.element_bytes
    length = moe.piece_length(ub_bytes, case.hidden, size)
    if length <= 0:
        smallest = moe.RESERVED_BYTES + (moe.HIDDEN_ALIGNMENT + 1) * moe.bytes_per_column(moe.FEWEST_BUFFERS, size)
        message = f"no piece of a row fits the Unified Buffer of {case.profile.title}: {ub_bytes} usable bytes"
        raise AclnnError(TILING_FAILURE, "permuted_output_grad", message, f"the smallest piece of {case.dtype} needs {smallest} bytes")
    largest = moe.largest_topk(ub_bytes, case.hidden, size)
    if case.top_k <= largest:
        return
    aligned = align(length, moe.HIDDEN_ALIGNMENT)
    unit = moe.bytes_per_column(moe.buffers_of(ub_bytes, length, size), size)
    needed, left = moe.INDEX_BYTES * case.top_k, moe.bytes_for_indices(ub_bytes, case.hidden, size)
    message = (
        f"num_topk = {case.top_k}: the indices of one token need {moe.INDEX_BYTES} * {case.top_k} = {needed} bytes, "
        f"the rows leave {ub_bytes} - {aligned} * {unit} - {moe.MARGIN_BYTES} = {left} of the Unified Buffer"
    )
    always = moe.largest_topk_of_every_hidden(ub_bytes, size)
    hint = f"nearest legal value: {largest} at hidden {case.hidden} {case.dtype}; {always} fits at every hidden size"
    raise AclnnError(TILING_FAILURE, "num_topk", message, hint)


def make_plan(arguments: Arguments, profile: Profile, deterministic: bool, limits: Limits) -> Plan:
    """Check a call and plan it."""
    return plan_of(check(arguments, profile, limits), arguments, deterministic, limits)


def plan_of(case: Case, arguments: Arguments, deterministic: bool, limits: Limits) -> Plan:
    """Plan a checked call."""
    fields = base.empty_fields("empty: no tokens, nothing runs") if is_empty(case) else plan_fields(case)
    return base.assemble_plan(NAME, TITLE, arguments, case.profile, fields, deterministic=deterministic, limits=limits)


def check_indices(indices: np.ndarray) -> None:
    """Check what only the data can tell.

    Raises
    ------
    AclnnError
        361001 for a negative index, naming the first one's position and value.
    """
    if indices.size and indices.min() < 0:
        position = int(np.argmax(indices < 0))
        message = f"sorted_indices[{position}] = {indices[position]} is negative"
        raise base.runtime_failure(
            "sorted_indices", message, "index >= 0, at or beyond the rows of the gradient for a dropped token; nothing was written"
        )


def execute(
    arguments: Arguments,
    tensors: Mapping[str, np.ndarray],
    profile: Profile,
    *,
    deterministic: bool,
    order: Order,
    limits: Limits,
    outs: tuple[Any, ...] = (),
    areas: Areas | None = None,
) -> Result:
    """Check, plan and compute one call; see :func:`npu_sim.ops.run`. No addition depends on ``order``.

    With ``areas`` the copies of inputs that are not contiguous lie in the workspace; the kernel itself has nothing there.
    """
    watch = Stopwatch()
    with watch.stage("plan"):
        case = check(arguments, profile, limits)
    spec = TensorSpec((case.tokens, case.hidden), case.dtype)
    written, out = output_array("out", outs[0] if outs else None, spec, tensors)
    if not is_empty(case):
        with watch.stage("check"):
            check_indices(tensors["sorted_indices"])
        with watch.stage("load"):
            from npu_sim.dtypes import kernel_input, saturate, storage_view
            from npu_sim.kernels.moe_token_permute_grad import sum_tokens
        with watch.stage("compute"):
            names = ("permuted_output_grad", "sorted_indices")
            grad, indices = (kernel_input(contiguous(name, tensors[name], areas)) for name in names)
            sum_tokens(grad.reshape(-1), indices, storage_view(written).reshape(-1), case.top_k, case.hidden)
            if profile.saturates:
                saturate(written)
            if written is not out:
                np.copyto(out, written)
    mask = OrderMask("row", np.zeros(case.tokens, np.bool_))
    return Result({"input_grad": out}, partial(plan_of, case, arguments, deterministic, limits), {"input_grad": mask}, watch.seconds)


def moe_token_permute_grad(
    permuted_output_grad: Any,
    sorted_indices: Any,
    num_topk: int,
    padded_mode: bool = False,
    *,
    profile: str | Path | Profile = "atlas_a2",
    soc: str | None = None,
    deterministic: bool = False,
    core_order: CoreOrder = "sequential",
    seed: int = 0,
    limits: Limits = "documented",
    out: Any = None,
) -> np.ndarray:
    """Sum for every token the gradients that its experts return, as the product does.

    Parameters
    ----------
    permuted_output_grad
        Gradient of the permuted tokens, (tokens * num_topk, hidden): float32, float16, or bfloat16 (ml_dtypes, or anything that
        speaks DLPack). Fewer rows when tokens were dropped.
    sorted_indices
        Row of every token and expert, (tokens * num_topk,) int32; one at or beyond the rows of the gradient was dropped.
    num_topk
        Experts chosen for a token, 1 to 512.
    padded_mode
        Only False is supported.
    profile, soc, deterministic, core_order, seed, limits, out
        See :func:`npu_sim.run`; the result never depends on ``deterministic``, ``core_order`` and ``seed``.

    Returns
    -------
    ndarray
        (tokens, hidden) in the dtype of ``permuted_output_grad``.

    Raises
    ------
    AclnnError
        With the product's status when the call is refused, 361001 for a negative index.
    """
    from npu_sim.ops import run

    result = run(
        NAME,
        profile=profile,
        soc=soc,
        deterministic=deterministic,
        core_order=core_order,
        seed=seed,
        limits=limits,
        out=out,
        permuted_output_grad=permuted_output_grad,
        sorted_indices=sorted_indices,
        num_topk=num_topk,
        padded_mode=padded_mode,
    )
    return result.outputs["input_grad"]

"""EmbeddingDenseBackward: arguments, ordered checks, documented limits.

Source: product document aclnnEmbeddingDenseBackward; specification page ``embedding_dense_backward``, "Contract" and
"Documented limits".
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from npu_sim.areas import Areas
from npu_sim.cores import Profile
from npu_sim.formats import TensorSpec
from npu_sim.ops import base
from npu_sim.ops.base import Arguments as BaseArguments
from npu_sim.ops.base import CoreOrder, Limits, Order, OrderMask, Result, Stopwatch, attribute, output_array, tensor
from npu_sim.plan_model import Plan
from npu_sim.planning.embedding_dense_backward import plan_fields
from npu_sim.planning.embedding_dense_backward_case import Case
from npu_sim.status import INVALID, TILING_FAILURE, AclnnError
from npu_sim.tiling import embedding_dense_backward as v2
from npu_sim.tiling import embedding_dense_grad as v1

if TYPE_CHECKING:
    from npu_sim.kernels.embedding_dense_backward_chunks import Cut

NAME = "embedding_dense_backward"
TITLE = "EmbeddingDenseBackward"
INDEX_DTYPES = ("float32", "float16", "float64", "int32", "int64", "int16", "int8", "uint8", "bool")
UINT64_MAX = 2**64 - 1
ND_FORMATS = ("ND", "NCL", "NCHW", "NCDHW", "NHWC", "NDHWC")
"""Formats without a private layout: the tensor is what its shape and strides say."""


@dataclass(frozen=True, kw_only=True)
class Arguments(BaseArguments):
    """Arguments of the call, named as in PyTorch; ``out`` defaults to what the others imply."""

    OUTPUTS: ClassVar[tuple[str, ...]] = ("grad_weight",)

    grad: TensorSpec | None = tensor("gradient of the embedding's output, (..., dim)")
    indices: TensorSpec | None = tensor("index of every gradient row, same element count as grad without its last axis")
    num_weights: int = attribute("rows of the output")
    padding_idx: int = attribute("row that gets no gradient; negative means none", default=-1)
    scale_grad_by_freq: bool = attribute("divide every row by how often its index occurs", default=False)
    out: TensorSpec | None = tensor("the output, (num_weights, dim)", output=True)


def check(arguments: Arguments, profile: Profile, limits: Limits = "documented") -> Case:
    """Run the contract's checks in the product's order; return the call reduced to what planning needs.

    Raises
    ------
    AclnnError
        With the status of the first check that fails.
    """
    base.require_tensors(arguments)
    base.require_product(NAME, TITLE, profile)
    grad, indices = arguments.grad, arguments.indices
    assert grad is not None
    assert indices is not None
    num_weights = base.require_int("num_weights", arguments.num_weights, 0, UINT64_MAX)
    padding_idx = base.require_int("padding_idx", arguments.padding_idx, -(2**63), UINT64_MAX)
    scale = base.require_bool("scale_grad_by_freq", arguments.scale_grad_by_freq)
    base.require_dtype("grad", grad, profile.product.dtypes, profile.product.title)
    base.require_dtype("indices", indices, INDEX_DTYPES, TITLE)
    out = arguments.out
    if out is not None and out.dtype != grad.dtype:
        raise AclnnError(INVALID, "out", f"out is {out.dtype}, grad is {grad.dtype}: they must agree", f"out: {grad.dtype}")
    _check_ranks(grad, indices, out)
    dim = grad.shape[-1]
    rows = _product(grad.shape[:-1])
    if dim != 0 and rows != indices.numel:
        message = f"indices {indices} has {indices.numel} elements, grad {grad} has {rows} rows"
        raise AclnnError(INVALID, "indices", message, f"indices needs {rows} elements: one for every row of grad")
    if out is None:
        out = TensorSpec((num_weights, dim), grad.dtype)
    if out.shape != (num_weights, dim):
        raise AclnnError(INVALID, "out", f"out is {out}, the result has shape ({num_weights}, {dim})", f"out: {num_weights}x{dim}")
    for name, spec in (("grad", grad), ("indices", indices), ("out", out)):
        if spec.storage_format not in ND_FORMATS:
            message = f"{name} has the private format {spec.storage_format}"
            raise AclnnError(INVALID, name, message, f"formats: {', '.join(ND_FORMATS)}")
    case = Case(
        rows=indices.numel,
        dim=dim,
        num_weights=num_weights,
        padding_idx=padding_idx,
        scale_grad_by_freq=scale,
        grad_dtype=grad.dtype,
        indices_dtype=indices.dtype,
        grad_contiguous=grad.contiguous,
        indices_contiguous=indices.contiguous,
        out_contiguous=out.contiguous,
        deterministic=False,
        profile=profile,
    )
    if not is_empty(case):
        _check_limits(case, limits)
    return case


def is_empty(case: Case) -> bool:
    """Whether nothing is computed: the output is all zeros and no kernel runs."""
    return case.rows == 0 or case.dim == 0


def _product(sizes: tuple[int, ...]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def _check_ranks(grad: TensorSpec, indices: TensorSpec, out: TensorSpec | None) -> None:
    specs = {"grad": (grad, 2), "indices": (indices, 1)} | ({"out": (out, 2)} if out is not None else {})
    for name, (spec, _) in specs.items():
        if spec.rank > base.MAX_RANK:
            raise AclnnError(INVALID, name, f"{name} has rank {spec.rank}", f"rank at most {base.MAX_RANK}")
    for name, (spec, lowest) in specs.items():
        if name != "out" and spec.rank < lowest:
            raise AclnnError(INVALID, name, f"{name} has rank {spec.rank}", f"rank {lowest} to {base.MAX_RANK}")


def _check_limits(case: Case, limits: Limits) -> None:
    if case.scale_grad_by_freq and case.num_weights == 0:
        message = "num_weights = 0 with scale_grad_by_freq: there is no row to scale"
        raise AclnnError(TILING_FAILURE, "num_weights", message, "num_weights >= 1, or scale_grad_by_freq = False")
    if not case.takes_v2 and case.scale_grad_by_freq and case.profile.limits.embedding_scale_bound_bytes is not None:
        _check_scale_bound(case, limits, case.profile.limits.embedding_scale_bound_bytes)


def _check_scale_bound(case: Case, limits: Limits, documented_bytes: int) -> None:
    """The embeddingDim bound of the Atlas training series (product document, "约束与限制")."""
    cores, ub_bytes = case.profile.device.vector_cores, case.profile.device.ub_bytes
    documented = v1.largest_scale_dim_documented(case.num_weights, case.index_bytes, cores, documented_bytes)
    hardware = v1.largest_scale_dim_hardware(case.num_weights, case.index_bytes, cores, ub_bytes)
    largest = documented if limits == "documented" else hardware
    if case.dim <= largest:
        return
    counts, factor = v1.counts_size(case.num_weights, cores), v1.bytes_per_column(case.index_bytes)
    used = v1.scale_bytes(case.dim, case.num_weights, case.index_bytes, cores)
    formula = f"{factor}*embeddingDim + {case.index_bytes}*countsSize"
    physical = ub_bytes - v1.UB_RESERVED_BYTES - v1.BLOCK_BYTES
    bound = f"< {documented_bytes} (documented)" if limits == "documented" else f"<= {physical} (Unified Buffer)"
    message = (
        f"embeddingDim = {case.dim} is too large for scale_grad_by_freq on {case.profile.title}: {formula} = {used} must be {bound}; "
        f"countsSize = {case.num_weights}//{cores} + {case.num_weights}%{cores} = {counts}"
    )
    both = f"{_dim_text(documented)} documented, {_dim_text(hardware)} by the Unified Buffer (limits=hardware)"
    raise AclnnError(TILING_FAILURE, "grad", message, f"largest embeddingDim for numWeights {case.num_weights}: {both}")


def _dim_text(largest: int) -> str:
    return str(largest) if largest > 0 else "none"


def resolve(arguments: Arguments, profile: Profile, deterministic: bool, limits: Limits) -> Case:
    """Check a call, and that a tiling exists for the kernel it takes."""
    case = replace(check(arguments, profile, limits), deterministic=deterministic)
    if not is_empty(case) and case.takes_v2 and v2.tile(case.v2_problem(), profile.device).status != v2.SUCCESS:
        message = f"no row of dim {case.dim} fits the Unified Buffer of {profile.title}: {profile.device.ub_bytes} usable bytes"
        hint = f"the kernel keeps {v2.UB_RESERVED_BYTES} bytes free: it needs a larger buffer or a smaller dim"
        raise AclnnError(TILING_FAILURE, "grad", message, hint)
    return case


def make_plan(arguments: Arguments, profile: Profile, deterministic: bool, limits: Limits) -> Plan:
    """Check a call and plan it."""
    return plan_of(resolve(arguments, profile, deterministic, limits), arguments, limits)


def plan_of(case: Case, arguments: Arguments, limits: Limits) -> Plan:
    """Plan a checked call."""
    fields = base.empty_fields("empty: nothing runs, the output is all zeros") if is_empty(case) else plan_fields(case)
    return base.assemble_plan(NAME, TITLE, arguments, case.profile, fields, deterministic=case.deterministic, limits=limits)


def cut_of(case: Case) -> "Cut":
    """Return how the case's rows are cut over cores, as the kernel takes it."""
    from npu_sim.kernels import embedding_dense_backward_chunks as cuts

    device = case.profile.device
    if not case.takes_v2:
        older = v1.tile(case.v1_problem(), device)
        path = cuts.INDEX_ORDER if older.splits_weights else cuts.ROW_ATOMIC
        return cuts.share_cut(path, older.block_dim, older.share)
    tiling = v2.tile(case.v2_problem(), device)
    if tiling.tiling_key >= 100:
        small = tiling.small_dim
        return cuts.small_dim_cut(tiling.block_dim, small.former_copy_row, small.tail_copy_row, small.max_row_in_ub)
    in_default_mode = cuts.STAGED if case.native_16_bit else cuts.SORTED
    path = cuts.DETERMINISTIC if tiling.tiling_key >= 10 else in_default_mode
    split = tiling.row_split
    return cuts.even_cut(path, tiling.block_dim, split.former_row_rep_time, split.former_row_num, split.tail_row_num)


def checked_indices(indices: np.ndarray, num_weights: int) -> np.ndarray:
    """Return the indices as the kernel takes them.

    Raises
    ------
    AclnnError
        361001 for an index outside [0, num_weights), naming the first one's position and value.
    """
    from npu_sim.kernels.embedding_dense_backward_grouping import convert_indices, first_out_of_range

    converted = convert_indices(indices, num_weights)
    bad = first_out_of_range(converted, num_weights)
    if bad >= 0:
        position = ", ".join(str(int(place)) for place in np.unravel_index(bad, indices.shape))
        message = f"indices[{position}] = {indices.reshape(-1)[bad]} is out of range: num_weights = {num_weights}"
        raise base.runtime_failure("indices", message, f"0 <= index < {num_weights}; nothing was written")
    return converted


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
    """Check, plan and compute one call; see :func:`npu_sim.ops.run`. With ``areas`` what lies in the workspace passes through it."""
    watch = Stopwatch()
    with watch.stage("plan"):
        case = resolve(arguments, profile, deterministic, limits)
    spec = TensorSpec((case.num_weights, case.dim), case.grad_dtype)
    written, out = output_array("out", outs[0] if outs else None, spec, tensors)
    if is_empty(case):
        out.fill(0)
        mask = OrderMask("row", np.zeros(case.num_weights, np.bool_))
    else:
        with watch.stage("load"):
            from npu_sim.dtypes import kernel_input, saturate, storage_view
            from npu_sim.kernels import embedding_dense_backward as kernels
        with watch.stage("check"):
            indices = checked_indices(tensors["indices"], case.num_weights)
        with watch.stage("compute"):
            if areas:
                from npu_sim.staging import embedding_dense_backward as staging

                written = staging.last_array(case, written, areas)
                grouped = staging.compute(case, tensors, indices, written, order, areas)
            else:
                grad = kernel_input(tensors["grad"]).reshape(case.rows, case.dim)
                call = (cut_of(case), case.padding_idx, case.scale_grad_by_freq, order.code, order.seed)
                grouped = kernels.embedding_dense_backward(grad, indices, storage_view(written), *call)
            if profile.saturates:
                saturate(written)
            if written is not out:
                np.copyto(out, written)
        find = partial(kernels.order_dependent_rows, grouped)
        mask = OrderMask("row", find() if areas else find)  # what lies in the workspace may be gone when somebody asks
    return Result({"grad_weight": out}, partial(plan_of, case, arguments, limits), {"grad_weight": mask}, watch.seconds)


def embedding_dense_backward(
    grad: Any,
    indices: Any,
    num_weights: int,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    *,
    profile: str | Path | Profile = "atlas_a2",
    soc: str | None = None,
    deterministic: bool = False,
    core_order: CoreOrder = "sequential",
    seed: int = 0,
    limits: Limits = "documented",
    out: Any = None,
) -> np.ndarray:
    """Sum the rows of ``grad`` that share an index, as the product does.

    Parameters
    ----------
    grad
        Gradient of the embedding's output, (..., dim): float32, float16, or bfloat16 (ml_dtypes, or anything that speaks DLPack).
    indices
        Index of every row; nine dtypes, values in [0, num_weights).
    num_weights
        Rows of the result.
    padding_idx
        Row that stays zero; negative for none.
    scale_grad_by_freq
        Divide every row by how often its index occurs.
    profile, soc, deterministic, core_order, seed, limits, out
        See :func:`npu_sim.run`.

    Returns
    -------
    ndarray
        (num_weights, dim) in the dtype of ``grad``.

    Raises
    ------
    AclnnError
        With the product's status when the call is refused, 361001 for an index out of range.
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
        grad=grad,
        indices=indices,
        num_weights=num_weights,
        padding_idx=padding_idx,
        scale_grad_by_freq=scale_grad_by_freq,
    )
    return result.outputs["grad_weight"]

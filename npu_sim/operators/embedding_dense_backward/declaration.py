"""EmbeddingDenseBackward: the gradient of an embedding table.

Source: product document aclnnEmbeddingDenseBackward; specification page
``embedding_dense_backward``, "Contract" and "Documented limits".
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    FLOAT_DTYPES,
    FORMATS,
    INVALID,
    AclnnError,
    Argument,
    Attribute,
    Case,
    Derived,
    Evidence,
    Inspection,
    Number,
    Operator,
    Output,
    Run,
    Switch,
    Tensor,
    TensorSpec,
    Text,
    Word,
    checks,
    numpy_dtype,
    runtime_failure,
)
from npu_sim.operators.embedding_dense_backward import plan
from npu_sim.operators.embedding_dense_backward.plan import KERNEL_GRAD, rows_per_flush
from npu_sim.tiling import embedding_dense_backward as v2
from npu_sim.tiling import embedding_dense_grad as v1

if TYPE_CHECKING:
    from npu_sim.kernels.embedding_dense_backward import Cut

UINT64_MAX = 2**64 - 1


def check_index_count(call: Inspection) -> None:
    """Check that there is one index for every row of grad, if grad has columns."""
    grad, indices = call.specs["grad"], call.specs["indices"]
    if call.size("dim") and call.size("rows") != indices.numel:
        raise AclnnError(
            INVALID,
            "indices",
            Text(
                "indices {indices} has {numel} elements, grad {grad} has {size} rows",
                indices=indices,
                numel=indices.numel,
                grad=grad,
                size=call.size("rows"),
            ),
            Text(
                "indices needs {size} elements: one for every row of grad", size=call.size("rows")
            ),
        )


def _no_weights_message(call: Inspection) -> tuple[str, str]:
    return (
        "num_weights = 0 with scale_grad_by_freq: there is no row to scale",
        "num_weights >= 1, or scale_grad_by_freq = False",
    )


def _scaled_message(call: Inspection) -> tuple[str, str]:
    """Return message and hint for the bound on embeddingDim (product document, "约束与限制")."""
    row, device, cores = call.row, call.device, call.device.vector_cores
    index_bytes, bound_bytes = plan.older_index_bytes(row), call.rules.scale_bound_bytes
    documented, hardware = (
        str(max(dim, 0) or "none") for dim in plan.largest_scaled_dims(row, device, bound_bytes)
    )
    return Text(
        "embeddingDim = {dim} is too large for scale_grad_by_freq on {title}: "
        "{bytes_per_column}*embeddingDim + {index_bytes}*countsSize = {scale_bytes} must be "
        "{bound}; countsSize = {num_weights}//{cores} + {num_weights}%{cores} = {counts_size}",
        dim=row.dim,
        title=call.profile.title,
        bytes_per_column=v1.bytes_per_column(index_bytes),
        index_bytes=index_bytes,
        scale_bytes=v1.scale_bytes(row.dim, row.num_weights, index_bytes, cores),
        bound=Text("< {bound_bytes} (documented)", bound_bytes=bound_bytes)
        if call.limits == "documented"
        else Text(
            "<= {physical} (Unified Buffer)", physical=v1.usable_scale_bytes(device.ub_bytes)
        ),
        num_weights=row.num_weights,
        cores=cores,
        counts_size=v1.counts_size(row.num_weights, cores),
    ), Text(
        "largest embeddingDim for numWeights {num_weights}: {both}",
        num_weights=row.num_weights,
        both=Text(
            "{documented} documented, {hardware} by the Unified Buffer ({limits})",
            documented=documented,
            hardware=hardware,
            limits=Argument("limits", "hardware"),
        ),
    )


def _no_tiling_message(case: Case) -> tuple[str, str, str]:
    return (
        "grad",
        Text(
            "no row of dim {dim} fits the Unified Buffer of {product_title}: {ub_bytes} usable "
            "bytes",
            dim=case.row.dim,
            product_title=case.profile.title,
            ub_bytes=case.device.ub_bytes,
        ),
        Text(
            "the kernel keeps {ub_reserved_bytes} bytes free: it needs a larger buffer or a "
            "smaller dim",
            ub_reserved_bytes=v2.UB_RESERVED_BYTES,
        ),
    )


OPERATOR = Operator(
    name="embedding_dense_backward",
    title="EmbeddingDenseBackward",
    summary="Sum the rows of ``grad`` that share an index, as the product does.",
    arguments=(
        Tensor(
            "grad",
            "rows+ dim",
            "gradient of the embedding's output, (..., dim)",
            "grad_dtype",
            samples=0,
        ),
        Tensor(
            "indices",
            "rows~",
            "index of every gradient row, same element count as grad without its last axis",
            "indices_dtype",
            samples=0,
            addresses=True,
        ),
        Attribute("num_weights", int, "rows of the output", low=0, high=UINT64_MAX),
        Attribute(
            "padding_idx",
            int,
            "row that gets no gradient; negative means none",
            -1,
            low=-(2**63),
            high=UINT64_MAX,
        ),
        Attribute(
            "scale_grad_by_freq", bool, "divide every row by how often its index occurs", False
        ),
        Output(
            "out",
            "num_weights dim",
            "the output, (num_weights, dim)",
            "grad_dtype",
            result="grad_weight",
        ),
    ),
    axes=(
        Word("grad_dtype", "dtype of grad", FLOAT_DTYPES, "float32"),
        Word("indices_dtype", "dtype of indices", plan.INDEX_DTYPES, "int32"),
        Switch("scale_grad_by_freq", "scale_grad_by_freq", aliases=("scaleGradByFreq",)),
        Number(
            "num_weights", "rows of the output", 1000, unit="weight row", aliases=("numWeights",)
        ),
        Number(
            "dim",
            "last axis of grad",
            128,
            unit="column",
            aliases=("embedding_dim", "embeddingDim"),
        ),
        Number(
            "rows", "product of the other axes of grad; element count of indices", 1024, unit="row"
        ),
    ),
    derived=(Derived("padding_idx", "-1"),),
    shards=("num_weights",),
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.Attributes("num_weights padding_idx scale_grad_by_freq"),
        checks.Dtypes("grad", checks.product_dtypes),
        checks.Dtypes("indices", plan.INDEX_DTYPES),
        checks.SameDtype("out", "grad"),
        checks.Ranks("grad indices out", 0),
        checks.Ranks("grad", 2),
        checks.Ranks("indices", 1),
        checks.Shapes("grad"),
        check_index_count,
        checks.Shapes("out"),
        checks.Formats(checks.PLAIN_FORMATS),
        checks.NothingToDo("rows == 0 or dim == 0"),
        checks.Holds(
            "num_weights >= 1 or scale_grad_by_freq == 0", "num_weights", _no_weights_message
        ),
        checks.Fits(plan.fits_scaled, "grad", _scaled_message),
    ),
    tiling=plan.CallTiling,
    tile=plan.tile_row,
    evidence=Evidence.EXACT,
    empty="empty: nothing runs, the output is all zeros",
    planner_message=_no_tiling_message,
    bounds={"older": plan.older_can_run},
    families=(ASCEND_950,),
    package=__package__,
)


Array = np.ndarray[Any, Any]


def cut_of(case: Case) -> "Cut":
    """Return how the rows are split over cores, as the kernel takes it."""
    from npu_sim.kernels.embedding_dense_backward import grouping

    outcome = case.tiling
    if outcome.kernel == KERNEL_GRAD:
        path = grouping.INDEX_ORDER if outcome.older.splits_weights else grouping.ROW_ATOMIC
        share = outcome.older.share  # the last core takes the remainder
        return grouping.Cut(path, outcome.block_dim, outcome.block_dim, share, share)
    tiling = outcome.tiling
    key, small, split = tiling.tiling_key, tiling.small_dim, tiling.row_split
    if v2.is_small_dim(key):
        return grouping.Cut(
            grouping.SMALL_DIM,
            outcome.block_dim,
            outcome.block_dim - 1,
            small.former_copy_row,
            small.tail_copy_row,
            batch_rows=small.max_row_in_ub,
        )
    path = grouping.STAGED if outcome.native_16_bit else grouping.SORTED
    return grouping.Cut(
        grouping.DETERMINISTIC if v2.is_deterministic(key) else path,
        outcome.block_dim,
        split.former_row_rep_time,
        split.former_row_num,
        split.tail_row_num,
        chunk_rows=rows_per_flush(key, case.rules),
    )


def checked_indices(indices: Array, num_weights: int) -> Array:
    """Return the indices as the kernel takes them.

    Raises
    ------
    AclnnError
        361001 for an index outside [0, num_weights); the message gives the position and value of
        the first one.
    """
    from npu_sim.kernels.embedding_dense_backward import grouping

    converted = grouping.convert_indices(indices, num_weights)
    first_bad = grouping.first_out_of_range(converted, num_weights)
    if first_bad >= 0:
        raise runtime_failure(
            "indices",
            Text(
                "indices[{position}] = {index} is out of range: num_weights = {num_weights}",
                position=", ".join(
                    str(int(axis_index))
                    for axis_index in np.unravel_index(first_bad, indices.shape)
                ),
                index=indices.reshape(-1)[first_bad],
                num_weights=num_weights,
            ),
            Text("0 <= index < {num_weights}; nothing was written", num_weights=num_weights),
        )
    return converted


def compute(run: Run) -> None:
    """Compute the gradient."""
    from npu_sim.kernels import embedding_dense_backward as kernels

    row, order = run.case.row, run.order
    with run.watch.stage("check"):
        indices = checked_indices(run.tensors["indices"], row.num_weights)
    with run.watch.stage("compute"):
        grouped = kernels.embedding_dense_backward(
            run.stored("grad").reshape(row.rows, row.dim),
            indices,
            run.written("grad_weight"),
            cut_of(run.case),
            row.padding_idx,
            row.scale_grad_by_freq == 1,
            order.code,
            order.seed,
        )
        run.masks["grad_weight"] = partial(kernels.order_dependent_rows, grouped)


BLOCK_COLUMNS = 256
"""Columns of the formula summed at a time; limits the size of the gathered copy of grad."""


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Return the sums of the rows of every index, divided by their number when scaled."""
    indices = np.trunc(tensors["indices"]).astype(np.int64).reshape(-1)
    grad = tensors["grad"]
    grad = grad.reshape(indices.size, -1) if indices.size else grad.reshape(0, grad.shape[-1])
    out = np.zeros((arguments.num_weights, grad.shape[1]), precision)
    order = np.argsort(indices, kind="stable")
    rows = order[indices[order] != arguments.padding_idx]
    if rows.size == 0:
        return {"grad_weight": out}
    present, starts, counts = np.unique(indices[rows], return_index=True, return_counts=True)
    for begin in range(0, grad.shape[1], BLOCK_COLUMNS):
        columns = slice(begin, begin + BLOCK_COLUMNS)
        terms = grad[rows, columns].astype(precision)
        out[present, columns] = np.add.reduceat(terms, starts, axis=0)
    if arguments.scale_grad_by_freq:
        out[present] /= counts.astype(precision)[:, None]
    return {"grad_weight": out}


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return normal gradients and indices distributed as in text (Zipf's law), frequent first."""
    from npu_sim.numbers.values import normal, zipf

    random, spec = np.random.default_rng(seed), arguments.indices
    gradient = normal(random, arguments.grad)
    vocabulary = max(min(arguments.num_weights, _consecutive_integers(spec)), 1)
    indices = zipf(random, spec.numel, vocabulary).reshape(spec.shape)
    return {"grad": gradient, "indices": indices.astype(numpy_dtype(spec.dtype))}


def _consecutive_integers(spec: TensorSpec) -> int:
    """Return n if a dtype represents all integers 0..n-1 exactly and consecutively."""
    if spec.dtype == "bool":
        return 2
    dtype = numpy_dtype(spec.dtype)
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).max) + 1
    bits = FORMATS[spec.dtype].mantissa_bits if spec.dtype in FORMATS else np.finfo(dtype).nmant
    return int(2 ** (bits + 1)) + 1

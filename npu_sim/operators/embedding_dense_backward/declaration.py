"""EmbeddingDenseBackward: the gradient of an embedding table.

Source: product document aclnnEmbeddingDenseBackward; specification page
``embedding_dense_backward``, "Contract" and "Documented limits".
"""

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    FLOAT_DTYPES,
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
    Switch,
    Tensor,
    Text,
    Word,
    checks,
)
from npu_sim.operators.embedding_dense_backward import plan
from npu_sim.tiling import embedding_dense_backward as v2
from npu_sim.tiling.embedding_dense_backward import embedding_dense_grad as v1

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

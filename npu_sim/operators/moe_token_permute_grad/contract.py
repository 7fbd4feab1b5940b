"""Check of the shapes of MoeTokenPermuteGrad, for every family of products.

Source: specification page ``moe_token_permute_grad``.
"""

from npu_sim.framework.case import Inspection
from npu_sim.framework.inference import bound_sizes
from npu_sim.language import Text
from npu_sim.status import TILING_FAILURE, AclnnError


def check_entries(call: Inspection) -> None:
    """Check num_topk indices per token and at most one row per index; set the sizes."""
    call.sizes = bound_sizes(call.operator, call.arguments)
    entries, rows, top_k = (call.size(name) for name in ("entries", "grad_rows", "num_topk"))
    tokens = entries // top_k
    if entries % top_k:
        near = Text(
            "{entries} or {next_entries} elements",
            entries=tokens * top_k,
            next_entries=(tokens + 1) * top_k,
        )
        near = near if tokens else Text("{top_k} elements", top_k=top_k)
        message = Text(
            "sorted_indices has {entries} elements, not a multiple of num_topk = {top_k}",
            entries=entries,
            top_k=top_k,
        )
        raise AclnnError(TILING_FAILURE, "sorted_indices", message, near)
    if rows > entries:
        message = Text(
            "permuted_output_grad has {rows} rows, sorted_indices only {entries} elements",
            rows=rows,
            entries=entries,
        )
        hint = Text(
            "at most {entries} rows: one for every index, fewer when tokens were dropped",
            entries=entries,
        )
        raise AclnnError(TILING_FAILURE, "permuted_output_grad", message, hint)

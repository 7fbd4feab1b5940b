"""Contract of MoeTokenUnpermute on Ascend 950.

Source: specification page ``moe_token_unpermute_950``.
"""

from npu_sim.framework.vocabulary import FLOAT_DTYPES, TILING_FAILURE, checks
from npu_sim.operators.shared.routed_tokens.declaration import check_padding

CHECKS = (
    checks.Attributes("padded_mode restore_shape"),
    check_padding,
    checks.Given(),
    checks.Supported(),
    checks.Dtypes("permuted_tokens", checks.product_dtypes),
    checks.Dtypes("sorted_indices"),
    checks.Dtypes("probs", FLOAT_DTYPES),
    checks.SameDtype("out", "permuted_tokens"),
    checks.Formats(checks.ND),
    checks.Ranks("permuted_tokens", 2, 2, TILING_FAILURE),
    checks.Ranks("sorted_indices", 1, 1, TILING_FAILURE),
    checks.Ranks("probs", 2, 2, TILING_FAILURE),
    checks.Shapes("permuted_tokens probs sorted_indices", TILING_FAILURE),
    checks.Shapes("out", TILING_FAILURE),
    checks.NothingToDo("tokens == 0 or hidden == 0"),
    checks.Holds("top_k >= 1", "probs"),
)

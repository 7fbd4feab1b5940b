"""MoeTokenUnpermuteGrad on Ascend 950: own planner, sums and checks of sizes.

Source: specification page ``moe_token_unpermute_grad_950``.
"""

from typing import Any

from npu_sim.framework import checks
from npu_sim.framework.axes import FLOAT_DTYPES, Derived
from npu_sim.framework.case import Inspection
from npu_sim.framework.operator import Assumed
from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.moe_token_unpermute_grad.ascend_950.compute import compute
from npu_sim.operators.moe_token_unpermute_grad.ascend_950.plan import describe
from npu_sim.operators.shared import unpermuted_tokens
from npu_sim.operators.shared.token_sums import check_padding
from npu_sim.status import NULL_POINTER, TILING_FAILURE, AclnnError
from npu_sim.tiling.ascend_950 import moe_token_unpermute_grad as tiler
from npu_sim.tiling.common import SYSTEM_WORKSPACE_BYTES

MOST_COLUMNS = 65535 * 10400
"""Columns up to which the sums of fp32 rows are described (page, "Order": 65536 slots are not)."""


def _missing_message(call: Inspection) -> tuple[str, str]:
    return (
        "permuted_tokens is missing",
        "permuted_tokens: rows of the experts, (tokens * num_topk, hidden); Ascend 950 needs it "
        "without probs too",
    )


def check_tokens(call: Inspection) -> None:
    """Check the shape of permuted_tokens; without probs the product does not look at it."""
    if "probs" in call.specs:
        checks.Shapes("permuted_tokens", TILING_FAILURE)(call)
    elif "permuted_tokens_grad" not in call.specs:
        shape = call.size("entries"), call.size("hidden")
        dtype = call.specs["unpermuted_tokens_grad"].dtype
        call.specs["permuted_tokens_grad"] = TensorSpec.known(shape, dtype)


def check_probs_grad(call: Inspection) -> None:
    """Check that probs_grad has the dtype of probs: the planner refuses others, 561002."""
    given, probs = call.specs.get("probs_grad"), call.specs.get("probs")
    if given is not None and probs is not None and given.dtype != probs.dtype:
        message = Text(
            "{name} is {dtype}, {like} is {expected}: they must agree",
            given,
            name="probs_grad",
            like="probs",
            expected=probs.dtype,
        )
        hint = Text("{name}: {expected}", name="probs_grad", expected=probs.dtype)
        raise AclnnError(TILING_FAILURE, "probs_grad", message, hint)


def _rows_message(call: Inspection) -> tuple[str, str]:
    rows, entries = call.size("rows"), call.size("entries")
    message = Text(
        "permuted_tokens has {rows} rows, sorted_indices {entries} elements",
        rows=rows,
        entries=entries,
    )
    return message, Text(
        "{entries} rows, one for every index: Ascend 950 refuses dropped rows", entries=entries
    )


def _timeline_hooks() -> dict[str, Any]:
    from npu_sim.operators.moe_token_unpermute_grad.ascend_950 import timeline

    return {"program": timeline.program, "steps": timeline.steps}


def _study_hooks() -> dict[str, Any]:
    from npu_sim.operators.moe_token_unpermute_grad import study as shared
    from npu_sim.operators.moe_token_unpermute_grad.ascend_950 import study

    return {
        "claims": study.claims,
        "terms": shared.terms,
        "changes": shared.CHANGES,
        "writes": study.writes,
        "open_rules": shared.open_rules,
    }


FIELDS: dict[str, Any] = {
    "derived": (*unpermuted_tokens.DERIVED, Derived("rows", "entries")),
    "checks": (
        checks.Attributes("padded_mode restore_shape"),
        check_padding,
        checks.Given(),
        checks.Holds("has_tokens == 1", "permuted_tokens", _missing_message, NULL_POINTER),
        checks.Supported(),
        checks.Dtypes("unpermuted_tokens_grad", lambda profile: profile.product.dtypes),
        checks.SameDtype("permuted_tokens permuted_tokens_grad", "unpermuted_tokens_grad"),
        checks.Dtypes("sorted_indices", ("int32",)),
        checks.Dtypes("probs probs_grad", FLOAT_DTYPES),
        checks.Ranks("sorted_indices", 1),
        checks.Formats(checks.ND),
        checks.Ranks("unpermuted_tokens_grad", 2, 2, TILING_FAILURE),
        checks.Ranks("sorted_indices", 1, 1, TILING_FAILURE),
        checks.Ranks("probs", 2, 2, TILING_FAILURE),
        checks.Shapes("unpermuted_tokens_grad", TILING_FAILURE),
        checks.Shapes("probs", TILING_FAILURE),
        checks.Shapes("sorted_indices", TILING_FAILURE),
        check_tokens,
        check_probs_grad,
        checks.Holds("rows == entries", "permuted_tokens", _rows_message),
        checks.Shapes("permuted_tokens_grad probs_grad", TILING_FAILURE),
        checks.NothingToDo("entries == 0 or (hidden == 0 and has_probs == 0)"),
        checks.Holds("hidden >= 1", "unpermuted_tokens_grad"),
        checks.Holds(f"hidden <= {MOST_COLUMNS} or has_probs == 0", "unpermuted_tokens_grad"),
    ),
    "tiling": tiler.Tiling,
    "tile": tiler.tile_row,
    "used_bytes": tiler.used_bytes,
    "assumed": (
        Assumed(
            "system_workspace_bytes",
            SYSTEM_WORKSPACE_BYTES,
            "specification page moe_token_unpermute_grad_950, Tiling",
        ),
    ),
    "describe": describe,
    "compute": compute,
    "empty": "empty: no tokens or no columns, nothing runs",
    "planner_message": None,
    "timeline_hooks": _timeline_hooks,
    "study_hooks": _study_hooks,
}
"""Fields of the declaration that differ on Ascend 950."""

"""MoeTokenPermute on Ascend 950: int8 tokens too, own planners and kernels.

Source: specification page ``moe_token_permute_950``.
"""

from typing import Any

from npu_sim.framework import checks
from npu_sim.framework.axes import FLOAT_DTYPES, Word
from npu_sim.framework.case import Inspection
from npu_sim.framework.operator import Assumed
from npu_sim.language import Text
from npu_sim.operators.moe_token_permute.ascend_950.compute import compute
from npu_sim.operators.moe_token_permute.ascend_950.plan import describe
from npu_sim.operators.moe_token_permute.compute import ID_DTYPES
from npu_sim.operators.moe_token_permute.contract import AXES
from npu_sim.operators.shared.token_sums import check_padding
from npu_sim.status import TILING_FAILURE
from npu_sim.tiling.ascend_950 import moe_token_permute as tiler
from npu_sim.tiling.common import SYSTEM_WORKSPACE_BYTES
from npu_sim.tiling.moe_token_permute import MOST_TOPK

DTYPES = (*FLOAT_DTYPES, "int8")


def is_documented(row: Any, device: Any, rules: Any) -> bool:
    """Return whether an int8 call keeps the document's limits."""
    few = max(row.entries, row.num_out_tokens) <= tiler.EXPERTS
    return bool(row.limits == 1 or row.dtype != tiler.INT8 or few)


def _int8_message(call: Inspection) -> tuple[str, str]:
    message = Text(
        "indices has {entries} elements, num_out_tokens = {num_out_tokens}: with int8 tokens the "
        "product document allows {most} of each",
        entries=call.size("entries"),
        num_out_tokens=call.size("num_out_tokens"),
        most=tiler.EXPERTS,
    )
    return message, 'limits="hardware" allows more'


def _timeline_hooks() -> dict[str, Any]:
    from npu_sim.operators.moe_token_permute.ascend_950 import timeline

    return {"program": timeline.program, "steps": timeline.steps}


FIELDS: dict[str, Any] = {
    "axes": (Word("dtype", "dtype of tokens", DTYPES, "bfloat16"), *AXES[1:]),
    "checks": (
        checks.Attributes("num_out_tokens padded_mode"),
        check_padding,
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("tokens", DTYPES),
        checks.SameDtype("permuted_tokens", "tokens"),
        checks.Dtypes("indices", ID_DTYPES),
        checks.Dtypes("sorted_indices", ("int32",)),
        checks.Formats(checks.ND),
        checks.Ranks("tokens permuted_tokens", 2, 2, TILING_FAILURE),
        checks.Ranks("indices", 1, 2, TILING_FAILURE),
        checks.Shapes("tokens indices permuted_tokens sorted_indices", TILING_FAILURE),
        checks.Holds(f"num_topk <= {MOST_TOPK}", "indices"),
        checks.Fits(is_documented, "indices", _int8_message),
        checks.NothingToDo("entries == 0"),
    ),
    "tiling": tiler.Tiling,
    "tile": tiler.tile_row,
    "used_bytes": tiler.used_bytes,
    "assumed": (
        Assumed(
            "system_workspace_bytes",
            SYSTEM_WORKSPACE_BYTES,
            "specification page moe_token_permute_950, Tiling",
        ),
    ),
    "describe": describe,
    "compute": compute,
    "planner_message": None,
    "timeline_hooks": _timeline_hooks,
}
"""Fields of the declaration that differ on Ascend 950."""

"""Caveats of MoeTokenUnpermute on Ascend 950 as experiments."""

from typing import Any

import numpy as np

from npu_sim.language import Text
from npu_sim.operators import run
from npu_sim.operators.shared.experiment import Caveat, Numbers

OPERATOR = "moe_token_unpermute"
PRODUCTS = ("atlas_a2", "ascend_950")


def _zero_probs() -> Numbers:
    rows = np.ones((2, 4), np.float32)
    rows[1] = np.inf
    call: dict[str, Any] = {
        "permuted_tokens": rows,
        "sorted_indices": np.array([0, 1], np.int32),
        "probs": np.array([[1, 0]], np.float32),
    }
    sums = {
        product: run(OPERATOR, product=product, **call).outputs["unpermuted_tokens"]
        for product in PRODUCTS
    }
    return {"nan": {product: int(np.isnan(values).sum()) for product, values in sums.items()}}


def _explain_zero_probs(numbers: Numbers) -> list[str]:
    lines = [
        Text("{product}: {count} of 4 elements are nan", product=product, count=count)
        for product, count in numbers["nan"].items()
    ]
    return [
        *lines,
        "A2 and A3 do not read a row whose probs are 0, Ascend 950 multiplies it: 0 * inf is nan; "
        "read in the public sources, not run on a device",
    ]


CAVEATS: tuple[Caveat, ...] = (
    Caveat(
        "zero-probs",
        "On Ascend 950 rows with probs of 0 take part in the sums of MoeTokenUnpermute",
        "public sources of summer 2026, MoeFinalizeRoutingV2",
        _zero_probs,
        _explain_zero_probs,
        ("zero_prob_gives_nan",),
    ),
)

"""Studies of MoeTokenUnpermute: the tree of a token's sum; every order is fixed."""

from functools import partial
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import Text
from npu_sim.operators.shared.routed_tokens.study import (
    UNPERMUTE,
    Sums,
    arguments_in_dump,
    grown,
    places,
)
from npu_sim.operators.shared.study import (
    Changes,
    Experiment,
    FoundCall,
    InDumps,
    Shown,
    WrappedCall,
    rows_of_last_axis,
    run,
)

SUMS = Sums("permuted_tokens", "unpermuted_tokens", "tokens", skips_zeros=True)
CHANGES = Changes(grown=grown, places=places)


claims, terms, unfused = SUMS.claims, SUMS.terms, SUMS.unfused


def _in_dump(wrapped: WrappedCall) -> FoundCall:
    return arguments_in_dump(wrapped), {"unpermuted_tokens": wrapped.output(0)}


IN_DUMPS = InDumps(
    (UNPERMUTE,), _in_dump, index_ranges=partial(rows_of_last_axis, "sorted_indices")
)


PRODUCTS = ("atlas_a2", "ascend_950")


def _zero_probs() -> Shown:
    rows = np.ones((2, 4), np.float32)
    rows[1] = np.inf
    call: dict[str, Any] = {
        "permuted_tokens": rows,
        "sorted_indices": np.array([0, 1], np.int32),
        "probs": np.array([[1, 0]], np.float32),
    }
    counts = {}
    for product in PRODUCTS:
        outputs = run("moe_token_unpermute", product=product, **call).outputs
        counts[product] = int(np.isnan(outputs["unpermuted_tokens"]).sum())
    return {"nan": counts}, [
        *(
            Text("{product}: {count} of 4 elements are nan", product=product, count=count)
            for product, count in counts.items()
        ),
        "A2 and A3 do not read a row whose probs are 0, Ascend 950 multiplies it: 0 * inf is nan; "
        "read in the public sources, not run on a device",
    ]


CAVEATS: tuple[Experiment, ...] = (
    Experiment(
        "zero_probs",
        "On Ascend 950 rows with probs of 0 take part in the sums of MoeTokenUnpermute",
        "public sources of summer 2026, MoeFinalizeRoutingV2",
        _zero_probs,
        ("zero_prob_gives_nan",),
    ),
)

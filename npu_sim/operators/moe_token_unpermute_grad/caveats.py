"""Caveats of MoeTokenUnpermuteGrad on Ascend 950 as experiments."""

import numpy as np

from npu_sim.language import Text
from npu_sim.operators import run
from npu_sim.operators.shared.experiment import Caveat, Numbers, different

OPERATOR = "moe_token_unpermute_grad"
COLUMNS = (100, 300, 700, 2048)
ROWS = 256


def _folds() -> Numbers:
    random, differing = np.random.default_rng(0), {}
    for columns in COLUMNS:
        values = random.standard_normal((ROWS, columns), np.float32)
        first, second = (
            run(
                OPERATOR,
                product=product,
                permuted_tokens=values,
                unpermuted_tokens_grad=values[::-1].copy(),
                sorted_indices=np.arange(ROWS, dtype=np.int32),
                probs=np.ones((ROWS, 1), np.float32),
            ).outputs["probs_grad"]
            for product in ("atlas_a2", "ascend_950")
        )
        differing[columns] = different(first, second)
    return {"rows": ROWS, "different": differing}


def _explain_folds(numbers: Numbers) -> list[str]:
    lines = [
        Text(
            "{columns} columns: {count} of {rows} gradients of probs differ between A2 and Ascend "
            "950",
            columns=columns,
            count=count,
            rows=numbers["rows"],
        )
        for columns, count in numbers["different"].items()
    ]
    return [
        *lines,
        "Ascend 950 folds the products of a row once, to the largest power of two, A2 and A3 to "
        "64, 512 or 4096; read in the public sources, not run on a device",
    ]


CAVEATS: tuple[Caveat, ...] = (
    Caveat(
        "folds",
        "On Ascend 950 gradients of probs have other last bits than on A2 and A3",
        "public sources of summer 2026, MoeFinalizeRoutingV2Grad",
        _folds,
        _explain_folds,
    ),
)

import gzip
import json
import re
from functools import cache
from math import prod
from pathlib import Path

import pytest

import npu_sim

RECORDED = Path(__file__).parents[1] / "data" / "recorded_calls"
OPERATORS = (
    "embedding_dense_backward",
    "conv_tbc_backward",
    "rms_norm_grad",
    "cross_entropy_loss_grad",
    "moe_token_permute_grad",
)
ACCEPTED = [0, ""]
MISTAKE = None
"""Status of a call that the product never hears of; those were recorded as 161001 and 161002."""
SPELLINGS = {
    "A2": "atlas_a2",
    "ATLAS_A2": "atlas_a2",
    "atlas a2": "atlas_a2",
    "ascend910b1": "Ascend910B1",
}
"""Names of products and SoCs that named none when the calls were recorded."""
SHOWN = 5


@cache
def product(file_name):
    return npu_sim.load_profile(RECORDED / file_name)


def verdict(operator, call):
    """Status and blamed argument of a call; recordings name the product ``profile``."""
    options = {"operator": operator, **call}
    named = options.pop("profile", "atlas_a2")
    try:  # a product that does not ship lies beside the calls
        npu_sim.plan(product=product(named) if named.endswith(".yaml") else named, **options)
    except npu_sim.AclnnError as refused:
        return [int(refused.status), refused.argument.replace("product", "profile")]
    except npu_sim.UsageError as mistake:
        return [MISTAKE, mistake.argument.replace("product", "profile")]
    return ACCEPTED


def agrees(operator, call, now, recorded):
    """Return whether a verdict is the recorded one.

    A missing tensor, and tensors that contradict each other beside it, are now reported first.
    Sizes beyond int64 are a usage error, now before the contract is asked.
    """
    if recorded[1] in ("profile", "soc") and call.get(recorded[1]) in SPELLINGS:
        return now == verdict(operator, {**call, recorded[1]: SPELLINGS[call[recorded[1]]]})
    if now[0] is not MISTAKE:
        return now == recorded
    if recorded[1] in ("limits", "deterministic"):
        return True
    if is_beyond_int64(call.get(now[1])):
        return True
    if recorded == ACCEPTED:
        return now[1] == "out"
    return now[1] not in call or (recorded[0] in (161001, 161002) and now[1] == recorded[1])


def is_beyond_int64(value):
    """Return whether an argument is a tensor with more bytes than shapes of int64 can state."""
    if not isinstance(value, str) or not (shape := re.match(r"[\dx]+(?=:)", value)):
        return False
    return 4 * prod(map(int, shape[0].split("x"))) > 2**63 - 1


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_recorded_call_has_its_status_and_blames_its_argument(operator):
    calls = json.loads(gzip.decompress((RECORDED / f"{operator}.json.gz").read_bytes()))
    found = [(call, recorded, verdict(operator, call)) for call, *recorded in calls]
    different = [
        f"{json.dumps(call)}: {now}, recorded {recorded}"
        for call, recorded, now in found
        if not agrees(operator, call, now, recorded)
    ]
    assert not different, "\n".join(
        (f"{len(different)} of {len(calls)} calls differ", *different[:SHOWN])
    )

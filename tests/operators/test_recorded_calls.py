import gzip
import json
from functools import cache
from pathlib import Path

import pytest

import npu_sim

RECORDED = Path(__file__).parents[1] / "data" / "recorded_calls"
OPERATORS = ("embedding_dense_backward", "conv_tbc_backward", "rms_norm_grad", "cross_entropy_loss_grad", "moe_token_permute_grad")
ACCEPTED = [0, ""]
SHOWN = 5


@cache
def product(file_name):
    return npu_sim.load_profile(RECORDED / file_name)


def verdict(operator, call):
    """Status and blamed argument of a call."""
    options = {"operator": operator, **call}
    if options.get("profile", "").endswith(".yaml"):  # a product that does not ship lies beside the calls
        options["profile"] = product(options["profile"])
    try:
        npu_sim.plan(**options)
    except npu_sim.AclnnError as refused:
        return [int(refused.status), refused.argument]
    return ACCEPTED


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_recorded_call_has_its_status_and_blames_its_argument(operator):
    calls = json.loads(gzip.decompress((RECORDED / f"{operator}.json.gz").read_bytes()))
    found = [(call, recorded, verdict(operator, call)) for call, *recorded in calls]
    different = [f"{json.dumps(call)}: {now}, recorded {recorded}" for call, recorded, now in found if now != recorded]
    assert not different, "\n".join((f"{len(different)} of {len(calls)} calls differ", *different[:SHOWN]))

"""What a plan says of itself when nobody says it."""

import npu_sim
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Plan


def test_exact_is_earned():
    assert Plan.model_fields["evidence"].default is Evidence.MODEL


def test_doing_nothing_is_exact():
    plan = npu_sim.plan("embedding_dense_backward", grad="0x8:fp32", indices="0:int32", num_weights=5)
    assert plan.block_dim == 0
    assert plan.evidence is Evidence.EXACT

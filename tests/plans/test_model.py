"""The plan model: defaults, immutability, and calls that must not share a cache entry."""

import copy
import pickle

import pytest

import npu_sim
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Plan


def test_evidence_is_exact_only_when_stated():
    assert Plan.model_fields["evidence"].default is Evidence.MODEL


def test_doing_nothing_is_exact():
    plan = npu_sim.plan(
        "embedding_dense_backward", grad="0x8:fp32", indices="0:int32", num_weights=5
    )
    assert plan.block_dim == 0
    assert plan.evidence is Evidence.EXACT


def cross_entropy(**changed):
    call = {"grad_loss": "scalar:fp32", "log_prob": "32x100:fp32", "target": "32:int64", **changed}
    return npu_sim.plan("cross_entropy_loss_grad", **call)


def test_a_plan_cannot_be_changed():
    plan, again = cross_entropy(), cross_entropy()
    assert again == plan
    for mapping in (plan.tiling, plan.arguments, plan.decisions[0].values, plan.cores[0].ranges):
        with pytest.raises(TypeError, match="do not change"):
            mapping["rowVal"] = 1
    assert pickle.loads(pickle.dumps(plan)) == copy.deepcopy(plan) == copy.copy(plan) == plan


def test_a_pickled_plan_is_not_planned_again(monkeypatch):
    plan = cross_entropy()
    pickled = pickle.dumps(plan)
    monkeypatch.setattr("npu_sim.framework.planning._description", None)
    restored = pickle.loads(pickled)
    assert restored.profile == plan.profile
    assert restored.as_dict() == plan.as_dict()


def test_a_plan_is_restored_from_its_data():
    plan = cross_entropy()
    assert Plan.model_validate(plan.model_dump()) == plan


def test_decisions_are_computed_when_they_are_read():
    plan = cross_entropy()
    assert "decisions" not in vars(plan)
    assert all(flip.outcome for decision in plan.decisions for flip in decision.flips)
    assert "decisions" in vars(plan)
    assert list(plan.as_dict())[22:24] == ["decisions", "workspace"]


@pytest.mark.parametrize(
    "changed",
    [
        {"ignore_index": -101},
        {"label_smoothing": -0.0},
        {"deterministic": True},
        {"product": "atlas_a3"},
    ],
)
def test_different_calls_do_not_share_a_cached_plan(changed):
    ordinary, other = (
        [repr(cross_entropy(**call).as_dict()) for _ in range(3)] for call in ({}, changed)
    )
    assert set(ordinary).isdisjoint(other)


def test_a_refused_call_does_not_share_a_cached_plan():
    for _ in range(3):
        npu_sim.plan(
            "moe_token_permute_grad",
            permuted_output_grad="64x64:fp32",
            sorted_indices="64:int32",
            num_topk=1,
        )
    with pytest.raises(npu_sim.UsageError, match="num_topk"):
        npu_sim.plan(
            "moe_token_permute_grad",
            permuted_output_grad="64x64:fp32",
            sorted_indices="64:int32",
            num_topk=True,
        )

"""What a plan says of itself when nobody says it."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

import npu_sim
from npu_sim.plans.answers import Evidence, Promised
from npu_sim.plans.model import Plan


def test_exact_is_earned():
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


def test_a_plan_is_remembered_and_cannot_be_changed():
    _, plan, again = (cross_entropy() for _ in range(3))
    assert again is plan  # from the second time on
    for facts in (plan.tiling, plan.arguments, plan.decisions[0].values, plan.cores[0].ranges):
        with pytest.raises(TypeError, match="do not change"):
            facts["rowVal"] = 1
    assert pickle.loads(pickle.dumps(plan)) == copy.deepcopy(plan) == plan


class Sum(Promised):
    term: int
    total: int = 0


@pytest.mark.parametrize(
    "ask", [lambda answer: answer.total, lambda answer: answer == Sum(term=1, total=3)]
)
def test_threads_that_ask_at_once_are_given_one_answer(ask):
    begun, asked, made = Event(), Event(), []

    def make():
        begun.set()
        asked.wait()
        made.append("term")
        return {"term": 1, "total": lambda: made.append("total") or 3}

    answer = Sum.promise(make)

    def ask_too():
        begun.wait()
        asked.set()
        return ask(answer)

    with ThreadPoolExecutor() as threads:
        first, others = (
            threads.submit(lambda: answer.term),
            [threads.submit(ask_too) for _ in range(3)],
        )
        assert first.result() == 1
        assert all(other.result() for other in others)
    assert made == ["term", "total"]


@pytest.mark.parametrize(
    "changed",
    [
        {"ignore_index": -101},
        {"label_smoothing": -0.0},
        {"deterministic": True},
        {"product": "atlas_a3"},
    ],
)
def test_calls_that_differ_are_not_taken_for_each_other(changed):
    ordinary, other = (
        [repr(cross_entropy(**call).as_dict()) for _ in range(3)] for call in ({}, changed)
    )
    assert set(ordinary).isdisjoint(other)


def test_a_refused_call_is_not_taken_for_its_equal():
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

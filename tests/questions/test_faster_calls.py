"""What would make a call faster: every change is planned and bounded like a call of its own."""

import pytest

import npu_sim
from npu_sim.questions.faster_calls import with_changes
from npu_sim.timelines import timeline

PROFILE = npu_sim.load_profile("atlas_a2", "Ascend910B3")
EMBEDDING = "embedding_dense_backward"
CALL = {"grad": "4096x1024:bf16", "indices": "4096:int64", "num_weights": 151936, "scale_grad_by_freq": True}


def changes(operator=EMBEDDING, **arguments):
    plan = npu_sim.plan(operator, product=PROFILE, **arguments)
    return {change.change: change for change in with_changes(timeline(plan, PROFILE), plan, PROFILE).changes}


def bound(**arguments):
    return timeline(npu_sim.plan(EMBEDDING, product=PROFILE, **arguments), PROFILE).bound_us


def test_changes_are_those_that_remove_the_largest_launches():
    found = changes(**CALL)
    assert list(found) == ["num_weights = 75968", "grad_dtype = float32", "deterministic = true"]
    assert found["grad_dtype = float32"].without == ("Cast", "Cast")


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ("num_weights = 75968", {"num_weights": 75968}),
        ("grad_dtype = float32", {"grad": "4096x1024:fp32"}),
        ("deterministic = true", {"deterministic": True}),
    ],
)
def test_a_change_has_the_bound_of_the_changed_call(change, changed):
    found = changes(**CALL)[change]
    assert found.bound_us == pytest.approx(bound(**(CALL | changed)))
    assert found.saved_share == pytest.approx(1 - found.bound_us / bound(**CALL))


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_mode_with_the_lower_bound_is_not_called_faster(deterministic):
    found = changes(grad="8192x256:fp32", indices="8192:int32", num_weights=8000, deterministic=deterministic)
    other = found[f"deterministic = {str(not deterministic).lower()}"]
    assert (other.saved_share > 0) == deterministic
    assert bool(other.note) == deterministic


def test_contiguous_tensors_remove_their_copies():
    found = changes(grad="4096x1024:fp32:strided", indices="4096:int32", num_weights=100, out="100x1024:fp32:strided")
    assert found["contiguous tensors"].without == ("Contiguous", "ViewCopy")


def test_a_call_of_one_kernel_has_nothing_to_remove():
    found = changes("rms_norm_grad", dy="4096x1024:bf16", gamma="1024:bf16")
    assert list(found) == ["deterministic = true"]


def test_a_call_without_work_stays_as_it_is():
    assert changes(grad="0x8:fp32", indices="0:int32", num_weights=3) == {}

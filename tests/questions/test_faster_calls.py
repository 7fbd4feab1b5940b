"""Changes that make a call faster: each is planned and bounded like a separate call."""

import pytest

import npu_sim
from npu_sim.operators.timelines import timeline
from npu_sim.questions.explain import with_changes

PROFILE = npu_sim.load_profile("atlas_a2", "Ascend910B3")
EMBEDDING = "embedding_dense_backward"
CALL = {
    "grad": "4096x1024:bf16",
    "indices": "4096:int64",
    "num_weights": 151936,
    "scale_grad_by_freq": True,
}


def changes(operator=EMBEDDING, **arguments):
    plan = npu_sim.plan(operator, product=PROFILE, **arguments)
    return {
        change.change: change
        for change in with_changes(timeline(plan, PROFILE), plan, PROFILE).changes
    }


def bound(**arguments):
    return timeline(npu_sim.plan(EMBEDDING, product=PROFILE, **arguments), PROFILE).bound_us


def test_changes_remove_the_largest_launches():
    by_change = changes(**CALL)
    assert list(by_change) == ["num_weights = 75968", "grad_dtype = float32"]
    assert by_change["grad_dtype = float32"].without == ("Cast", "Cast")


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ("num_weights = 75968", {"num_weights": 75968}),
        ("grad_dtype = float32", {"grad": "4096x1024:fp32"}),
    ],
)
def test_a_change_has_the_bound_of_the_changed_call(change, changed):
    faster = changes(**CALL)[change]
    assert faster.bound_us == pytest.approx(bound(**(CALL | changed)))
    assert faster.saved_share == pytest.approx(1 - faster.bound_us / bound(**CALL))


def prices(operator=EMBEDDING, **arguments):
    plan = npu_sim.plan(operator, product=PROFILE, **arguments)
    return with_changes(timeline(plan, PROFILE), plan, PROFILE).determinism


@pytest.mark.parametrize("deterministic", [False, True])
def test_both_modes_are_side_by_side_and_unpublished_kernels_have_no_time(deterministic):
    call = {"grad": "8192x256:fp32", "indices": "8192:int32", "num_weights": 8000}
    off, on = prices(**call, deterministic=deterministic)
    plans = [
        npu_sim.plan(EMBEDDING, product=PROFILE, **call, deterministic=mode)
        for mode in (False, True)
    ]
    assert [price.deterministic for price in (off, on)] == [False, True]
    assert [price.launches for price in (off, on)] == [len(plan.launches) for plan in plans]
    assert [price.workspace_bytes for price in (off, on)] == [
        plan.workspace.total_bytes for plan in plans
    ]
    assert off.bound_us == pytest.approx(bound(**call))
    assert (on.bound_us, on.unbounded) == (None, ("Sort", "ZerosLike"))


def test_modes_of_the_same_kernels_have_both_bounds():
    off, on = prices("rms_norm_grad", dy="4096x1024:bf16", gamma="1024:bf16")
    assert on.workspace_bytes > off.workspace_bytes
    assert off.bound_us is not None
    assert on.bound_us is not None


def test_contiguous_tensors_remove_their_copies():
    by_change = changes(
        grad="4096x1024:fp32:strided",
        indices="4096:int32",
        num_weights=100,
        out="100x1024:fp32:strided",
    )
    assert by_change["contiguous tensors"].without == ("Contiguous", "ViewCopy")


def test_a_call_of_one_kernel_has_nothing_to_remove():
    by_change = changes("rms_norm_grad", dy="4096x1024:bf16", gamma="1024:bf16")
    assert list(by_change) == []


def test_a_call_without_work_has_no_changes():
    assert changes(grad="0x8:fp32", indices="0:int32", num_weights=3) == {}

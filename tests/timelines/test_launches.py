"""The bound of a whole call: specification page ``timeline``, "The whole call"."""

import pytest

import npu_sim
from npu_sim.operators.timelines import timeline
from tests.timelines.calls import CALLS

EMBEDDING = "embedding_dense_backward"
VOCABULARY = {
    "grad": "4096x1024:bf16",
    "indices": "4096:int64",
    "num_weights": 151936,
    "scale_grad_by_freq": True,
}
"""A call whose gradient is cast to fp32, of a vocabulary larger than the L2."""


def bound(soc="Ascend910B3", release=None, **arguments):
    profile = npu_sim.load_profile("atlas_a2", soc, release)
    return timeline(npu_sim.plan(EMBEDDING, product=profile, **arguments), profile)


def test_launches_without_a_plan_move_their_tensors_once_on_all_cores():
    launches = {launch.kernel: launch for launch in bound(**VOCABULARY).launches}
    table, l2 = 151936 * 1024 * 4, npu_sim.load_profile("atlas_a2", "Ascend910B3").chip.l2_bytes
    # What the L2 cannot hold moves at 32 bytes a cycle and core, the rest at the rates of the L2.
    cleared, read = (l2 / rate + (table - l2) / 32 for rate in (86, 110))
    assert launches["MemSet"].us == launches["ZerosLike"].us == pytest.approx(cleared / 40 / 1800)
    assert launches["Cast"].us == pytest.approx(read / 40 / 1800)  # of the last one
    assert launches["Sort"].us == pytest.approx(
        8 * 4096 / 86 / 1800
    )  # one core, values and positions written to the L2
    assert launches["Cast"].binds == "reading"


def test_many_indices_are_sorted_on_all_cores():
    shares = {
        rows: bound(grad=f"{rows}x1024:fp32", indices=f"{rows}:int32", num_weights=9).launches[0]
        for rows in (6112, 6113)
    }
    assert [launch.kernel for launch in shares.values()] == ["Sort", "Sort"]
    assert shares[6112].us / shares[6113].us == pytest.approx(40 * 6112 / 6113)


def test_clearing_and_rounding_the_result_are_the_largest_parts_of_a_call_that_was_measured():
    """Release 8.3, 40 cores, 1650 MHz: 2567 us, 130 of them in the planned kernel."""
    table = bound(release="8.3", **(VOCABULARY | {"scale_grad_by_freq": False}))
    at_1650_mhz = table.bound_us * 1800 / 1650
    assert 0.18 * 2567 < at_1650_mhz < 2567
    memset, cast = table.launches[3], table.launches[5]
    assert (memset.kernel, cast.kernel) == ("MemSet", "Cast")
    assert memset.share + cast.share > 0.98
    assert table.kernel_us < 0.01 * table.bound_us


def test_what_the_ai_cpu_sorts_is_counted_0_and_named():
    table = bound(
        grad="2139095040x8:fp32", indices="2139095040:int32", num_weights=9, deterministic=True
    )
    assert [launch.us for launch in table.launches if launch.kernel == "Sort"] == [0]
    assert "Sort on the AI CPU" in table.not_counted


def test_determinism_is_not_cheaper_because_something_is_left_out():
    arguments = {"grad": "8192x256:fp32", "indices": "8192:int32", "num_weights": 8000}
    usual, fixed = (
        bound("Ascend910B1", deterministic=deterministic, **arguments)
        for deterministic in (False, True)
    )
    assert "Sort" in {launch.kernel for launch in fixed.launches}
    assert fixed.bound_us > usual.bound_us


@pytest.mark.parametrize("name", CALLS)
def test_every_launch_of_a_plan_has_a_bound(name):
    operator, product, arguments = CALLS[name]
    profile = npu_sim.load_profile(product)
    plan = npu_sim.plan(operator, product=profile, **arguments)
    table = timeline(plan, profile)
    assert [launch.kernel for launch in table.launches] == [
        launch.kernel for launch in plan.launches
    ]
    assert all(launch.us > 0 for launch in table.launches)
    assert [launch.read_bytes for launch in table.launches] == [
        launch.read_bytes for launch in plan.launches
    ]


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_filter_gradient_of_a_convolution_is_cleared_in_default_mode(deterministic):
    operator, product, arguments = CALLS["conv"]
    plan = npu_sim.plan(operator, product=product, deterministic=deterministic, **arguments)
    kernels = [launch.kernel for launch in plan.launches]
    before = kernels[kernels.index("Conv2DBackpropFilter") - 1]
    assert (before == "MemSet") is not deterministic
    if not deterministic:
        memset = plan.launches[kernels.index("MemSet")]
        assert memset.outputs == plan.launches[kernels.index("Conv2DBackpropFilter")].outputs
        assert (memset.evidence, memset.written_bytes) == ("model", 4 * 3 * 512 * 512)

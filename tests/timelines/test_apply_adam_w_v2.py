"""Timeline of ApplyAdamWV2: cycles, bounds and bytes of the page."""

import pytest

import npu_sim


def timeline(elements, dtype="fp32", grad=None, **changed):
    state = dict.fromkeys(("var", "m", "v"), f"{elements}:{dtype}")
    call = {**state, "grad": f"{elements}:{grad or dtype}", "step": "1:int64"}
    return npu_sim.timeline("apply_adam_w_v2", **{"soc": "Ascend910B4", **call, **changed})


@pytest.mark.parametrize(
    ("dtype", "grad", "amsgrad", "maximize", "cycles"),
    [
        ("fp32", "fp32", False, False, 1206.7 + 1829),
        ("fp32", "fp32", True, False, 1302.8 + 1829),
        ("bf16", "bf16", False, False, 1614.5 + 1829),
        ("bf16", "bf16", True, False, 1827.2 + 1829),
        ("fp32", "bf16", False, False, 1264.8 + 1815),
        ("fp32", "fp16", True, False, 1477.5 + 1815),
        ("fp32", "fp32", False, True, 1206.7 + 61.1 + 1829),
    ],
)
def test_estimated_cycles_of_a_tile(dtype, grad, amsgrad, maximize, cycles):
    norm = {"max_grad_norm": f"2432:{grad}"} if amsgrad else {}
    answer = timeline(2432, dtype, grad, amsgrad=amsgrad, maximize=maximize, **norm)
    assert answer.launches[0].estimate.vector_cycles == pytest.approx(cycles, abs=0.3)


@pytest.mark.parametrize(
    ("elements", "us", "bound"),
    [
        (3145728, 24.76, 7.1),
        (4194304, 32.64, 9.4),
        (6291456, 48.41, 13.9),
        (77791232, 585.9, 319.1),
    ],
)
def test_the_estimate_of_the_profile(elements, us, bound):
    answer = timeline(elements, release="8.3", soc="Ascend910B4")
    (launch,) = answer.launches
    assert launch.estimate.vector_cycles / 1650 == pytest.approx(us, rel=1e-3)
    assert answer.read_bytes == 16 * elements
    assert answer.written_bytes == 12 * elements


@pytest.mark.parametrize(
    ("dtype", "grad", "amsgrad", "maximize", "cycles"),
    [
        *(("fp32", "fp32", False, False, 608), ("fp32", "fp32", True, False, 646)),
        *(("bf16", "bf16", False, False, 817), ("bf16", "bf16", True, False, 912)),
        *(("fp32", "bf16", False, False, 646), ("fp32", "bf16", True, False, 741)),
        ("fp32", "fp32", False, True, 646),
    ],
)
def test_the_bound_of_a_tile(dtype, grad, amsgrad, maximize, cycles):
    norm = {"max_grad_norm": f"2432:{grad}"} if amsgrad else {}
    answer = timeline(2432, dtype, grad, amsgrad=amsgrad, maximize=maximize, **norm)
    busy = answer.busy_share["V"] * answer.kernel_us * answer.clock_mhz
    assert busy == pytest.approx(cycles, abs=0.5)


def test_many_tiles_are_counted():
    listed, counted = timeline(2432 * 40 * 40 + 5), timeline(2432 * 40 * 41 + 5)
    assert counted.kernel_us > listed.kernel_us


def test_ascend_950_counts_copies_alone():
    answer = timeline(1 << 20, soc="Ascend950PR_9589")
    assert answer.launches[0].estimate is None
    assert answer.written_bytes == 12 << 20


def test_the_kernel_of_the_cast_path_is_that_of_fp32():
    native, cast = timeline(1 << 20), timeline(1 << 20, "bf16", "fp32")
    cycles = [
        launch.estimate.vector_cycles
        for answer in (native, cast)
        for launch in answer.launches
        if launch.kernel == "ApplyAdamWV2"
    ]
    assert cycles[0] == cycles[1]

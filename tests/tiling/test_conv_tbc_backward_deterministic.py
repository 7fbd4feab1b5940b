import random

import pytest

from npu_sim.cores import load_profile
from npu_sim.tiling import conv_tbc_backward as model
from npu_sim.tiling import plan_kernel
from npu_sim.tiling.common import FAILED
from npu_sim.tiling.conv_tbc_backward import grad_weight_deterministic as calls
from npu_sim.tiling.conv_tbc_backward import grad_weight_deterministic as published
from tests.compiled_planners import compiled
from tests.golden import not_reproduced, tiling_lines
from tests.reference.conv_tbc_grad_weight_deterministic import plan as reference_plan
from tests.rules import rules_of

KERNEL = "conv_tbc_grad_weight_deterministic"
LINES = tiling_lines(KERNEL)
RULES = rules_of("conv_tbc_backward")
A2 = load_profile(None, "Ascend910B1").device
CUBE_CORES = {"Ascend910B1": 24, "Ascend910B3": 20}
DTYPE = {2: "bfloat16", 4: "float32"}


def random_cases(seed, count):
    """Shapes of all sizes; long sequences and wide taps often enough that L1 runs out."""
    rng = random.Random(seed)
    cases = []
    while len(cases) < count:
        time = rng.choice(
            (
                rng.randint(1, 64),
                rng.randint(1, 1000),
                rng.randint(1000, 16500),
                rng.randint(2000, 9000),
            )
        )
        taps = rng.choice((1, 2, 3, 5, 9, rng.randint(1, 255)))
        pad = rng.choice((0, 0, taps // 2, rng.randint(0, taps)))
        if time + 2 * pad - taps + 1 > 0:
            channels = [rng.choice((1, 16, 64, 256, rng.randint(1, 2000))) for _ in range(2)]
            batch = rng.choice((1, 2, 8, 16, rng.randint(1, 300)))
            soc = rng.choice(tuple(CUBE_CORES))
            cases.append(
                (calls.ConvTbcProblem(time, batch, *channels, taps, pad, rng.choice((2, 4))), soc)
            )
    return cases


def inputs_of(problem):
    time, batch, in_channels, out_channels, taps, pad, element_bytes = problem
    shape = {"T": time, "B": batch, "Cin": in_channels, "Cout": out_channels, "K": taps, "pad": pad}
    return {**shape, "dtype": DTYPE[element_bytes]}


def problem_of(inputs):
    sizes = (inputs[name] for name in ("T", "B", "Cin", "Cout", "K", "pad"))
    return calls.ConvTbcProblem(*sizes, 4 if inputs["dtype"] == "float32" else 2)


def defects(tiling):
    return tiling.exceeds_l0a, tiling.exceeds_l0b, tiling.exceeds_l0c, tiling.exceeds_l1


def test_every_golden_line_is_reproduced():
    lines = [
        {**line, "expect": {"route": line["route"], **line.get("expect", {})}} for line in LINES
    ]
    assert not_reproduced(lines) == []


@pytest.mark.parametrize("seed", range(4))
def test_random_shapes_agree_with_a_second_transcription_of_the_rule(seed):
    routes = set()
    for problem, soc in random_cases(seed, 2500):
        route, expect = reference_plan(*problem, CUBE_CORES[soc])
        assert plan_kernel(KERNEL, soc, inputs_of(problem), True) == {
            "route": route,
            **(expect or {}),
        }, (problem, soc)
        routes.add(route)
    assert routes == {"planner", "gate_failed", "matmul"}


@pytest.mark.long
def test_the_compiled_planner_gives_the_same_integers():
    plan, route = (
        compiled(published.plan_grad_weight_deterministic),
        compiled(calls.grad_weight_route),
    )
    golden = [(problem_of(line["inputs"]), line["soc"]) for line in LINES]
    for problem, soc in golden + random_cases(99, 1500):
        device = load_profile(None, soc).device
        taken = calls.grad_weight_route(problem, device, True, RULES)
        assert route(problem, device, True, RULES) == taken
        if taken == calls.ROUTE_PLANNER:
            assert plan(problem, device) == published.plan_grad_weight_deterministic(
                problem, device
            )


@pytest.mark.long
def test_sizes_up_to_the_documented_ranges_stay_within_64_bits():
    plan = compiled(published.plan_grad_weight_deterministic)
    largest = 2147483646
    for element_bytes in (2, 4):
        for taps, time in ((1, 100), (255, 300), (7, 2146)):
            problem = calls.ConvTbcProblem(time, largest, largest, largest, taps, 0, element_bytes)
            tiling = published.plan_grad_weight_deterministic(problem, A2)
            assert all(0 <= field < 2**63 for field in tiling)
            assert plan(problem, A2) == tiling


def test_more_than_l0b_on_the_documented_shape():
    # Page, "Known defects": 16, 224, 2160, L0B 967680 bytes in one of its two buffers.
    problem = calls.ConvTbcProblem(2146, 32, 80, 8, 7, 3, 2)
    tiling = published.plan_grad_weight_deterministic(problem, A2)
    assert (tiling.base_m, tiling.base_n, tiling.base_k) == (16, 224, 2160)
    assert tiling.l0b_bytes == 2 * 967680
    assert defects(tiling) == (1, 1, 0, 0)


def test_more_than_l1_on_the_documented_shape():
    problem = calls.ConvTbcProblem(5989, 2, 3, 1, 23, 0, 2)
    tiling = published.plan_grad_weight_deterministic(problem, A2)
    assert (tiling.base_m, tiling.base_n, tiling.base_k) == (16, 16, 16)
    # The page's 766592 bytes are x alone (two samples of 5989 steps, two blocks of 16 channels);
    # self adds 512.
    assert tiling.x_l1_elements * 2 == 766592
    assert tiling.l1_bytes == 766592 + 512
    assert defects(tiling) == (0, 0, 0, 1)


def test_an_ordinary_shape_exceeds_nothing():
    tiling = published.plan_grad_weight_deterministic(
        calls.ConvTbcProblem(512, 32, 512, 512, 3, 1, 4), A2
    )
    assert defects(tiling) == (0, 0, 0, 0)


PLAIN = calls.ConvTbcProblem(100, 4, 64, 64, 3, 1, 2)


@pytest.mark.parametrize(
    ("problem", "device", "deterministic", "route"),
    [
        (PLAIN, A2, True, calls.ROUTE_PLANNER),
        (PLAIN, A2, False, calls.ROUTE_MODEL),
        (PLAIN, load_profile(None, "Ascend910A").device, True, calls.ROUTE_MODEL),
        (PLAIN, A2._replace(l1_bytes=100 * 2 * 32 + 16 * 32), True, calls.ROUTE_PLANNER),
        (PLAIN, A2._replace(l1_bytes=100 * 2 * 32 + 16 * 32 - 1), True, calls.ROUTE_GATE_FAILED),
        (PLAIN, A2._replace(l0a_bytes=65535), True, calls.ROUTE_GATE_FAILED),
        (PLAIN, A2._replace(l0b_bytes=65535), True, calls.ROUTE_GATE_FAILED),
        (PLAIN, A2._replace(l0c_bytes=131071), True, calls.ROUTE_GATE_FAILED),
        (PLAIN._replace(pad=2), A2, True, calls.ROUTE_PLANNER),
        (PLAIN._replace(pad=3), A2, True, calls.ROUTE_GATE_FAILED),
        (PLAIN._replace(time=3, pad=0), A2, False, calls.ROUTE_MATMUL),
        (PLAIN._replace(time=3, pad=0), A2, True, calls.ROUTE_MATMUL),
        (
            PLAIN._replace(time=3, pad=0),
            load_profile(None, "Ascend910A").device,
            True,
            calls.ROUTE_MODEL,
        ),
        (PLAIN._replace(time=1), A2, True, calls.ROUTE_PLANNER),
        (PLAIN._replace(time=0, pad=1), A2, True, calls.ROUTE_GATE_FAILED),
    ],
)
def test_routes(problem, device, deterministic, route):
    assert calls.grad_weight_route(problem, device, deterministic, RULES) == route


def test_half_the_l1_is_planned_for():
    half = A2._replace(l1_bytes=262144)
    problem = calls.ConvTbcProblem(512, 32, 512, 512, 3, 1, 4)
    tiling = published.plan_grad_weight_deterministic(problem, half)
    assert (
        tiling.l1_bytes <= 262144 < published.plan_grad_weight_deterministic(problem, A2).l1_bytes
    )


def test_no_elements_is_a_failure_not_a_crash():
    empty = PLAIN._replace(batch=0)
    assert published.plan_grad_weight_deterministic(empty, A2).status == FAILED
    assert model.plan_grad_weight(empty, A2, True).status == FAILED
    assert model.plan_grad_input(empty, A2).status == FAILED

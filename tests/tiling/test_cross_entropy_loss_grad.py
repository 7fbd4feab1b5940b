from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_sim.cores import Device, load_profile
from npu_sim.tiling import cross_entropy_loss_grad as ce
from npu_sim.tiling import plan_kernel
from npu_sim.tiling.common import BF16, FAILED, FP16, FP32
from tests.compiled_planners import compiled
from tests.golden import not_reproduced, tiling_lines
from tests.rules import rules_at_any_release, rules_of

LINES = tiling_lines("cross_entropy_loss_grad")
RULES = rules_of("cross_entropy_loss_grad")
any_rules = rules_at_any_release("cross_entropy_loss_grad")

devices = st.builds(
    Device,
    npu_arch=st.just(2201),
    vector_cores=st.integers(1, 64),
    cube_cores=st.integers(1, 32),
    ub_bytes=st.integers(16 * 1024, 512 * 1024),
    l1_bytes=st.just(524288),
    l0a_bytes=st.just(65536),
    l0b_bytes=st.just(65536),
    l0c_bytes=st.just(131072),
    system_workspace_bytes=st.just(16777216),
)
problems = st.builds(
    ce.Problem,
    N=st.one_of(st.integers(1, 2000), st.integers(1, 2_000_000)),
    C=st.one_of(st.integers(1, 300), st.integers(1, 200_000)),
    dtype=st.sampled_from((BF16, FP16, FP32)),
    weighted=st.booleans(),
    reduction=st.sampled_from((ce.NONE, ce.MEAN, ce.SUM)),
)

# Specification page, "The limit": largest N before the wrap, and before alignColLoopNum becomes 0
# at C = 32000; 48 cores fp32, 48 cores 16-bit, 40 cores fp32, 40 cores 16-bit.
LIMITS = {
    ("none", False): [(448512, 445056), (409728, 405504), (373760, 370880), (341440, 337920)],
    ("none", True): [(376704, 374016), (348864, 345216), (313920, 311680), (290720, 287680)],
    ("mean", False): [(448512, 445056), (448512, 443904), (373760, 370880), (373760, 369920)],
    ("mean", True): [(376704, 373824), (376704, 372864), (313920, 311520), (313920, 310720)],
    ("sum", False): [(554304, 549888), (554304, 548352), (461920, 458240), (461920, 456960)],
    ("sum", True): [(448512, 445056), (448512, 443904), (373760, 370880), (373760, 369920)],
}


def test_every_golden_line_is_reproduced():
    assert len(LINES) == 391
    assert not_reproduced(LINES) == []


@pytest.mark.parametrize(("call", "expected"), LIMITS.items(), ids=str)
def test_the_table_of_the_page(call, expected):
    reduction, weighted = call
    found = []
    for soc in ("Ascend910B1", "Ascend910B4"):
        device = load_profile("atlas_a2", soc).device
        for code in (FP32, BF16):
            problem = ce.Problem(1, 32000, code, weighted, ce.REDUCTIONS.index(reduction))
            found.append(
                (
                    ce.largest_rows(problem, device, RULES, columns=0),
                    ce.largest_rows(problem, device, RULES),
                )
            )
    assert found == expected


@given(problems, devices, any_rules)
def test_every_row_belongs_to_exactly_one_core(problem, device, rules):
    tiling = ce.tile(problem, device, rules)
    ranges = [ce.row_range(tiling, core) for core in range(tiling.block_dim)]
    assert tiling.block_dim <= device.vector_cores
    assert ranges[0][0] == 0
    assert ranges[-1][1] == problem.N
    assert all(left[1] == right[0] for left, right in pairwise(ranges))
    assert all(start < stop for start, stop in ranges)


@given(problems, devices, any_rules)
def test_pieces_of_a_row_add_up_to_the_row(problem, device, rules):
    tiling = ce.tile(problem, device, rules)
    assert tiling.align_columns * tiling.column_loop + tiling.column_tail == problem.C
    assert tiling.align_columns % ce.unit_columns(problem.dtype) == 0
    assert tiling.align_columns == 0 or tiling.column_tail < tiling.align_columns


@given(problems, devices, any_rules)
def test_what_fits_lies_within_the_unified_buffer(problem, device, rules):
    tiling = ce.tile(problem, device, rules)
    if ce.fits(problem, device, rules):
        assert ce.used_bytes(tiling, problem.dtype) <= device.ub_bytes
        assert tiling.align_columns > 0 or tiling.column_budget >= problem.C


@given(problems, devices, any_rules)
def test_the_column_budget_is_unsigned_64_bit_arithmetic(problem, device, rules):
    tiling = ce.tile(problem, device, rules)
    used = sum(tiling.buffers)
    assert tiling.column_budget == (device.ub_bytes - used) % 2**64 // ce.bytes_per_column(
        problem.dtype
    )
    assert tiling.wraps == (used > device.ub_bytes)


@given(problems, devices, any_rules)
def test_the_largest_rows_are_the_last_that_fit(problem, device, rules):
    largest = ce.largest_rows(problem, device, rules)
    assert largest == 0 or ce.fits(problem._replace(N=largest), device, rules)
    assert not ce.fits(problem._replace(N=largest + 1), device, rules)
    assert ce.fits(problem, device, rules) == (largest >= problem.N)


@given(problems, devices, any_rules)
def test_the_largest_rows_beside_some_columns(problem, device, rules):
    largest = ce.largest_rows(problem, device, rules, problem.C)
    for rows, expected in ((largest, True), (largest + 1, False)):
        if rows > 0:
            tiling = ce.tile(problem._replace(N=rows), device, rules)
            assert (tiling.wraps == 0 and tiling.column_budget >= problem.C) == expected


@given(problems, devices, any_rules)
def test_the_largest_short_row(problem, device, rules):
    largest = ce.largest_short_row(problem, device, rules)
    assert 0 <= largest < ce.unit_columns(problem.dtype)
    assert largest == 0 or ce.fits(problem._replace(C=largest), device, rules)


@pytest.mark.long
def test_compiled_functions_agree_with_python():
    device = load_profile("atlas_a2").device
    tile, fits = compiled(ce.tile), compiled(ce.fits)
    for rows in (1, 47, 48, 49, 199999, 448512, 448513, 10_000_000, 2**40):
        for columns in (1, 127, 128, 1000, 32000, 2**35):
            for code in (BF16, FP32):
                for reduction in (ce.NONE, ce.MEAN, ce.SUM):
                    problem = ce.Problem(rows, columns, code, rows % 2 == 0, reduction)
                    assert tile(problem, device, RULES) == ce.tile(problem, device, RULES)
                    assert fits(problem, device, RULES) == ce.fits(problem, device, RULES)


def test_no_cores_fail():
    device = load_profile("atlas_a2").device
    assert (
        ce.tile(
            ce.Problem(5, 5, FP32, False, ce.SUM), device._replace(vector_cores=0), RULES
        ).status
        == FAILED
    )


RAW = {
    "grad_loss_shape": [],
    "log_prob_shape": [8, 10],
    "target_shape": [8],
    "weight_shape": [10],
    "log_prob_dtype": "float32",
    "reduction": "sum",
    "ignore_index": -100,
    "label_smoothing": 0.0,
}


@pytest.mark.parametrize(
    "changes",
    [
        {"target_shape": [7]},
        {"weight_shape": [9]},
        {"log_prob_shape": [8, 0]},
        {"log_prob_shape": [8]},
    ],
)
def test_shapes_that_disagree_fail(changes):
    assert plan_kernel("cross_entropy_loss_grad", "Ascend910B1", RAW)["status"] == "success"
    assert plan_kernel("cross_entropy_loss_grad", "Ascend910B1", RAW | changes) == {
        "status": "failed"
    }


@pytest.mark.parametrize("shape", [[8], [30], [2, 3]])
def test_the_raw_planner_does_not_look_at_the_shape_of_grad_loss(shape):
    expected = plan_kernel("cross_entropy_loss_grad", "Ascend910B1", RAW)
    assert (
        plan_kernel("cross_entropy_loss_grad", "Ascend910B1", RAW | {"grad_loss_shape": shape})
        == expected
    )


def test_the_raw_planner_takes_no_columns():
    without = RAW | {"log_prob_shape": [8, 0], "weight_shape": None}
    planned = plan_kernel("cross_entropy_loss_grad", "Ascend910B1", without)
    assert planned["status"] == "success"
    assert {
        planned["tiling"][name]
        for name in ("colVal", "alignColLoopNum", "colLoop", "colLoopNumTail")
    } == {0}

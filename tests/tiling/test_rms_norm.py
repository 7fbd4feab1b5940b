from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from npu_sim.cores import load_profile, shipped_products
from npu_sim.tiling import rms_norm as tiler
from npu_sim.tiling.common import BF16, FAILED, FP16, FP32, SUCCESS, table
from npu_sim.tiling.rms_norm import KEY_MERGE_N, KEY_NORMAL, KEY_SINGLE_ROW, KEY_SPLIT_D, buffers
from tests.compiled_planners import compiled
from tests.golden import not_reproduced, tiling_lines
from tests.rules import rules_at_any_release, rules_of

LINES = tiling_lines("rms_norm")
RULES = rules_of("rms_norm")
any_rules = rules_at_any_release("rms_norm")
A2, A3, INFERENCE = (
    load_profile(None, soc).device for soc in ("Ascend910B1", "Ascend910_9391", "Ascend310P3")
)
WIDTHS = (
    1,
    8,
    128,
    1985,
    2000,
    2001,
    10240,
    10241,
    12160,
    12161,
    12288,
    12289,
    13904,
    13905,
    24577,
)

columns = st.one_of(
    st.sampled_from(WIDTHS),
    st.integers(1, 3000),
    st.integers(1, 30000),
    st.integers(1, 10**6),
    st.integers(1, 2**40),
)
rows = st.one_of(
    st.integers(1, 100),
    st.integers(1, 100).map(lambda count: 16 * count),
    st.integers(1, 10**6),
    st.integers(1, 2**40),
)
dtypes = st.sampled_from(((FP32, FP32), (FP16, FP16), (BF16, BF16), (FP16, FP32), (BF16, FP32)))
devices = st.sampled_from(
    (
        A2,
        load_profile(None, "Ascend910B4").device,
        A3,
        INFERENCE,
        load_profile(None, "Ascend310P1").device,
    )
)


@st.composite
def problems(draw):
    """x of one to three axes before the last, folded, with a gamma of one or two axes."""
    dtype, gamma_dtype = draw(dtypes)
    count = draw(rows)
    second = draw(st.sampled_from([one for one in (1, 2, 5, 8, 9) if count % one == 0]))
    rank = draw(st.integers(2, 4))
    first, second = (count, draw(columns)) if rank == 2 else (count // second, second)
    wide = second if rank == 2 else draw(columns)
    return tiler.Problem(
        count, wide, dtype, gamma_dtype, rank, draw(st.integers(1, 2)), first, second
    )


def problem(count, wide, dtype=FP32, gamma_dtype=None):
    return tiler.Problem(
        count, wide, dtype, dtype if gamma_dtype is None else gamma_dtype, 2, 1, count, wide
    )


def problem_of(x, gamma, dtype, gamma_dtype):
    shapes = {"x_shape": x, "gamma_shape": gamma, "y_shape": x, "rstd_shape": (1,)}
    dtypes = {"x_dtype": dtype, "gamma_dtype": gamma_dtype}
    return tiler.problem_of({**shapes, **dtypes, "epsilon": 1e-6}, RULES)


def test_the_golden_data_has_every_kind_of_line():
    assert len(LINES) == 392
    succeeded = [line["expect"] for line in LINES if line["expect"]["status"] == "success"]
    assert len(succeeded) == 368
    assert {expect["tiling_key"] for expect in succeeded} == {0, 1, 2, 3}
    assert sum(expect["tiling"]["is_performance"] for expect in succeeded) > 20


def test_every_golden_line_is_reproduced():
    assert not_reproduced(LINES) == []


@given(problems(), devices, any_rules)
def test_every_row_belongs_to_exactly_one_core(problem, device, rules):
    tiling = tiler.tile(problem, device, rules)
    assert 1 <= tiling.block_dim <= device.vector_cores
    ranges = [tiler.row_range(tiling, core) for core in range(tiling.block_dim)]
    assert ranges[0][0] == 0
    assert all(
        left[1] == right[0] and left[0] < left[1]
        for left, right in pairwise([*ranges, (problem.row, None)])
    )
    assert all(stop - start == tiling.block_factor for start, stop in ranges[:-1])
    assert ranges[-1][1] - ranges[-1][0] == tiling.groups.last_block_factor


@given(problems(), devices, any_rules)
def test_groups_of_rows_add_up(problem, device, rules):
    tiling = tiler.tile(problem, device, rules)
    groups = tiling.groups
    for loop, tail, total in (
        (groups.row_loop, groups.row_tail, tiling.block_factor),
        (groups.last_block_row_loop, groups.last_block_row_tail, groups.last_block_factor),
    ):
        assert 0 < tail <= tiling.row_factor
        assert (loop - 1) * tiling.row_factor + tail == total


@given(problems(), devices, any_rules)
def test_the_key_says_how_a_row_lies_in_the_unified_buffer(problem, device, rules):
    tiling = tiler.tile(problem, device, rules)
    mixed, wide = tiler.is_mixed(problem), tiling.columns_aligned
    assert problem.col <= wide < problem.col + 16
    if tiling.tiling_key == KEY_MERGE_N:
        assert tiling.ub_factor == tiling.row_factor * wide
        assert wide <= 2000
    elif tiling.tiling_key == KEY_SPLIT_D:
        assert tiling.ub_factor % 16 == 0
        assert tiling.ub_factor < problem.col
    else:
        assert tiling.ub_factor == (wide if mixed else tiler.widest_row(problem)) >= wide
    assert mixed or tiling.tiling_key != KEY_SINGLE_ROW


@given(problems(), devices, any_rules)
def test_pieces_are_nearly_even_and_none_is_short(problem, device, rules):
    tiling = tiler.tile(problem, device, rules)
    if tiling.tiling_key != KEY_SPLIT_D:
        return
    if tiler.is_mixed(problem):
        assert device.ub_bytes != A2.ub_bytes or tiling.ub_factor == 12048
        return
    assert tiling.ub_factor <= tiler.widest_row(problem)
    assert tiling.ub_factor >= tiler.widest_row(problem) // 2
    assert problem.col % tiling.ub_factor not in range(1, 16)


@given(problems(), devices, any_rules)
def test_the_unified_buffer_holds_every_buffer(problem, device, rules):
    if device.npu_arch == INFERENCE.npu_arch and tiler.is_mixed(problem):
        return  # refused by the contract
    most = 240032 if device.npu_arch == INFERENCE.npu_arch else 195328
    assert (
        sum(buffers(tiler.tile(problem, device, rules), problem, device, rules))
        <= most
        <= device.ub_bytes
    )


@pytest.mark.parametrize(
    ("one", "device", "expected"),
    [
        (problem(16, 128, FP16), INFERENCE, (26624, 53248, 26624, 416, 53248, 53248, 26624, 0, 0)),
        (problem(9, 300, FP16), INFERENCE, (24576, 24576, 24576, 256, 49152, 49152, 256, 0, 256)),
        (problem(9, 4096, FP32), A2, (40960, 40960, 40960, 256, 0, 40960, 256, 0, 0)),
        (problem(9, 12160, BF16, FP32), A2, (24320, 48640, 24320, 256, 48640, 48640, 256, 0, 0)),
        (problem(9, 13904, FP16, FP32), A3, (55616, 55616, 27808, 256, 55616, 0, 256, 0, 0)),
        (problem(9, 20000, BF16), A3, (20000, 20000, 20000, 256, 40000, 40000, 256, 2048, 0)),
        (problem(100, 2000, BF16, FP32), A2, (24000, 48000, 24000, 32, 48000, 48000, 1536, 0, 0)),
    ],
)
def test_buffers_by_hand(one, device, expected):
    assert buffers(tiler.tile(one, device, RULES), one, device, RULES) == expected


@pytest.mark.parametrize(
    ("device", "keys"),
    [
        (A2, {KEY_NORMAL, KEY_SPLIT_D, KEY_MERGE_N, KEY_SINGLE_ROW}),
        (A3, {KEY_NORMAL, KEY_SPLIT_D, KEY_MERGE_N, KEY_SINGLE_ROW}),
        (INFERENCE, {KEY_NORMAL, KEY_SPLIT_D, KEY_MERGE_N}),
    ],
)
def test_which_keys_a_product_has(device, keys):
    pairs = [(FP32, FP32), (FP16, FP16), *(() if device is INFERENCE else ((BF16, FP32),))]
    assert {
        tiler.tile(problem(32, wide, *pair), device, RULES).tiling_key
        for wide in WIDTHS
        for pair in pairs
    } == keys


@pytest.mark.parametrize(
    ("key", "widths", "dtype", "gamma_dtype"),
    [
        *[
            (KEY_MERGE_N, (1, 2000), dtype, gamma)
            for dtype, gamma in ((FP32, FP32), (FP16, FP16), (BF16, FP32))
        ],
        *[(KEY_NORMAL, (2001, 10240), FP32, FP32), (KEY_SPLIT_D, (10241, 10**6), FP32, FP32)],
        *[(KEY_NORMAL, (2001, 12288), BF16, BF16), (KEY_SPLIT_D, (12289, 10**6), FP16, FP16)],
        *[(KEY_NORMAL, (2001, 12160), FP16, FP32), (KEY_SINGLE_ROW, (12161, 13904), BF16, FP32)],
        (KEY_SPLIT_D, (13905, 10**6), FP16, FP32),
    ],
)
def test_where_keys_begin_and_end_on_a2(key, widths, dtype, gamma_dtype):
    assert {
        tiler.tile(problem(7, wide, dtype, gamma_dtype), A2, RULES).tiling_key for wide in widths
    } == {key}


@given(problems(), any_rules)
def test_a2_and_a3_plan_alike(problem, rules):
    assert A2.vector_cores == A3.vector_cores
    assert tiler.tile(problem, A2, rules) == tiler.tile(problem, A3, rules)


@pytest.mark.parametrize(
    ("x", "gamma", "dtype", "gamma_dtype", "expected"),
    [
        ((512, 5120), (5120,), "float16", "float16", 1),
        ((513, 5120), (5120,), "float16", "float16", 0),
        ((512, 5121), (5121,), "bfloat16", "bfloat16", 0),
        ((512, 8, 64), (64,), "bfloat16", "bfloat16", 1),
        ((512, 9, 64), (64,), "bfloat16", "bfloat16", 0),
        ((512, 8, 64), (8, 64), "bfloat16", "bfloat16", 0),
        ((5, 1, 1, 64), (64,), "bfloat16", "bfloat16", 0),
        ((64,), (64,), "bfloat16", "bfloat16", 0),
        ((5, 64), (64,), "float32", "float32", 0),
        ((5, 64), (64,), "float16", "float32", 0),
    ],
)
def test_is_performance(x, gamma, dtype, gamma_dtype, expected):
    one = problem_of(x, gamma, dtype, gamma_dtype)
    assert tiler.tile(one, A2, RULES).is_performance == expected
    assert tiler.tile(one, A3, RULES).is_performance == expected


@pytest.mark.parametrize(
    ("count", "wide", "merges"),
    [(160, 128, True), (24, 128, False), (160, 127, False), (16, 128, True)],
)
def test_the_inference_series_merges_rows_of_one_width(count, wide, merges):
    tiling = tiler.tile(problem(count, wide, FP16), INFERENCE, RULES)
    assert (tiling.tiling_key == KEY_MERGE_N) == bool(tiling.is_performance) == merges
    assert not merges or (tiling.row_factor == 104 and tiling.block_factor % 8 == 0)
    assert tiler.tile(problem(count, wide, FP32), INFERENCE, RULES).tiling_key == KEY_NORMAL


@given(problems(), devices, st.integers(-1000, 300000), st.integers(0, 64))
def test_a_what_if_soc_is_planned_or_refused(problem, device, ub_bytes, cores):
    device = device._replace(ub_bytes=ub_bytes, vector_cores=cores)
    tiling = tiler.tile(problem, device, RULES)
    assert tiling.status in (SUCCESS, FAILED)
    if tiling.status == FAILED:
        assert tiling == tiler.NO_TILING
    else:
        assert min(tiling.row_factor, tiling.ub_factor, tiling.block_dim) > 0


def test_what_cannot_be_planned():
    assert (
        tiler.tile(problem(0, 8), A2, RULES)
        == tiler.tile(problem(8, 0), A2, RULES)
        == tiler.NO_TILING
    )
    assert (
        tiler.tile(problem(8, 8), load_profile(None, "Ascend910A").device, RULES) == tiler.NO_TILING
    )
    small = A2._replace(ub_bytes=2560 + 1024)
    assert tiler.tile(problem(8, 20000, FP16, FP32), small, RULES) == tiler.NO_TILING
    assert (
        tiler.tile(
            problem(8, 20000, FP16, FP32), small._replace(ub_bytes=3840 + 1), RULES
        ).ub_factor
        == 16
    )
    assert tiler.tile(problem(8, 2000), small, RULES) == tiler.NO_TILING


def test_the_workspace_is_the_same_everywhere():
    assert {
        tiler.tile(problem(9, wide), device, RULES).workspace_bytes
        for wide in WIDTHS
        for device in (A2, A3, INFERENCE)
    } == {16777472}


@pytest.mark.long
@settings(max_examples=300)
@given(problems(), devices, any_rules)
@example(problem(0, 5), A2, RULES)
@example(problem(64, 128, FP16), INFERENCE, RULES)
@example(problem(7, 13000, BF16, FP32), A3, RULES)
def test_the_compiled_planner_gives_the_same_tiling(problem, device, rules):
    assert tuple(compiled(tiler.tile)(problem, device, rules)) == tuple(
        tiler.tile(problem, device, rules)
    )


def test_conditions_compile_by_themselves():
    for name in (
        "is_mixed",
        "merges_rows",
        "merges_inference_rows",
        "fits_normal_row",
        "fits_single_row",
        "spares_broadcasts",
    ):
        condition = getattr(tiler, name)
        arguments = (problem(16, 128, FP16), A2, RULES)[: condition.__code__.co_argcount]
        assert compiled(condition)(*arguments) == condition(*arguments)


@given(columns)
def test_the_average_factor_is_a_float32(wide):
    tiling = tiler.tile(problem(1, wide), A2, RULES)
    assert tiling.average_factor == np.float32(1) / np.float32(wide)
    assert type(tiling.average_factor) is float
    assert (
        np.float32(tiler.vendor_structure(tiling, {"epsilon": 0}, RULES)["avg_factor"])
        == tiling.average_factor
    )


@pytest.mark.parametrize(
    ("epsilon", "shown"),
    [(1e-6, 9.99999997e-07), (1e-45, 1.40129846e-45), (-1e-50, -0.0), (1e300, np.inf), (0.5, 0.5)],
)
def test_epsilon_is_rounded_to_fp32(epsilon, shown):
    assert tiler.vendor_epsilon({"epsilon": epsilon}) == shown


def test_every_field_of_the_vendor_has_one_name():
    names = [name for column in table(tiler.Tiling) for name in column.field.vendor.split()]
    assert len(names) == len(set(names)) == 27
    assert (
        tiler.vendor_structure(
            tiler.tile(problem(1, 8), A2, RULES), {"epsilon": 1e-6}, RULES
        ).keys()
        == {*names, "epsilon"}
        == {*LINES[0]["expect"]["tiling"]}
    )


@pytest.mark.parametrize(
    ("changes", "takes"),
    [
        ({}, True),
        ({"rstd": (2, 3)}, True),
        ({"rstd": ()}, True),
        ({"rstd": (1, 1, 1)}, True),
        ({"rstd": (2, 3, 8, 1, 1)}, True),
        ({"gamma": (2, 3, 8)}, True),
        ({"rstd": (3, 3, 1)}, False),
        ({"rstd": (2, 3, 8, 2)}, False),
        ({"rstd": (2, 0, 1)}, False),
        ({"y": (6, 8)}, False),
        ({"gamma": ()}, False),
        ({"gamma": (3,)}, False),
        ({"gamma": (1, 2, 3, 8)}, False),
        ({"x": (), "y": (), "gamma": ()}, False),
        ({"x": (0, 3, 8), "y": (0, 3, 8)}, False),
        ({"x": (2, 3, 0), "y": (2, 3, 0), "gamma": (0,)}, False),
        ({"x": (1,) * 8, "y": (1,) * 8, "gamma": (1,), "rstd": ()}, True),
        ({"x": (1,) * 9, "y": (1,) * 9, "gamma": (1,), "rstd": ()}, False),
    ],
)
def test_shapes_that_the_raw_planner_takes(changes, takes):
    assert (
        tiler.takes_shapes(
            **({"x": (2, 3, 8), "gamma": (8,), "y": (2, 3, 8), "rstd": (2, 3, 1)} | changes)
        )
        == takes
    )


def test_every_soc_that_supports_the_operator_is_planned():
    for product in shipped_products():
        profile = load_profile(product)
        for soc in profile.product.socs:
            device = profile.with_soc(soc).device
            tiling = tiler.tile(problem(1000, 640, FP16), device, RULES)
            assert tiling.status == (FAILED if product == "atlas_train" else SUCCESS)
            assert tiling.status == FAILED or tiling.block_dim == -(
                -1000 // -(-1000 // device.vector_cores)
            )

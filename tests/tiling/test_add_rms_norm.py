from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_sim.cores import load_profile, release_names
from npu_sim.tiling import add_rms_norm as tiler
from npu_sim.tiling import find_structure, layout
from npu_sim.tiling.ascend_950 import add_rms_norm as later
from npu_sim.tiling.common import BF16, FAILED, FP16, FP32, SUCCESS
from npu_sim.tiling.rms_norm import row_range
from tests.compiled_planners import compiled
from tests.golden import not_reproduced, tiling_lines
from tests.rules import rules_at_any_release, rules_of

LINES = tiling_lines("add_rms_norm")
RULES = rules_of("add_rms_norm")
A2, B4, INFERENCE, LATER = (
    load_profile(None, soc).device
    for soc in ("Ascend910B1", "Ascend910B4", "Ascend310P3", "Ascend950DT_9591")
)
WIDTHS = (1, 8, 100, 1985, 2000, 2001, 4096, 10240, 10241, 10848, 12288, 12289, 29088, 10**6)

problems = st.builds(
    lambda row, col, dtype, outputs: problem(row, col, dtype, outputs),
    st.one_of(st.integers(1, 200), st.integers(1, 2**31)),
    st.one_of(st.sampled_from(WIDTHS), st.integers(1, 40000)),
    st.sampled_from((FP32, FP16, BF16)),
    st.sampled_from((tiler.FULL, tiler.NO_RSTD, tiler.Y_ONLY)),
)
devices = st.sampled_from((A2, B4, INFERENCE))


def problem(row, col, dtype=BF16, outputs=tiler.FULL):
    folded = row if outputs == tiler.FULL else 1
    return tiler.Problem(row, col, dtype, outputs, folded, col, 2, 1 + (outputs > 0), row, col)


def keys(row, widths, dtype, device=A2):
    found = (tiler.tile(problem(row, col, dtype), device, RULES).tiling_key for col in widths)
    return {key % 10 for key in found}


def test_the_golden_data_has_every_kind_of_line():
    succeeded = [line["expect"] for line in LINES if line["expect"]["status"] == "success"]
    assert len(LINES) == 620
    assert {expect["tiling_key"] % 10 for expect in succeeded} == set(range(5))
    assert {expect["tiling_key"] // 100 for expect in succeeded} >= {0, 1, 10}


def test_every_golden_line_is_reproduced():
    assert not_reproduced(LINES) == []


@given(problems, devices, rules_at_any_release("add_rms_norm"))
def test_every_row_belongs_to_exactly_one_core(problem, device, rules):
    tiling = tiler.tile(problem, device, rules)
    assert tiling.status == SUCCESS
    ranges = [row_range(tiling, core) for core in range(tiling.block_dim)]
    assert [ranges[0][0], ranges[-1][1]] == [0, problem.row]
    assert all(left[1] == right[0] for left, right in pairwise(ranges))
    assert ranges[-1][1] - ranges[-1][0] == tiling.groups.last_block_factor
    assert 1 <= tiling.block_dim <= device.vector_cores


@given(problems, devices)
def test_buffers_fit_but_for_the_bytes_of_the_system(problem, device):
    tiling = tiler.tile(problem, device, RULES)
    sizes = tiler.buffers_of(tiling.tiling_key % 10, tiling.row_factor, tiling.ub_factor, problem)
    # Pieces of 9696 fp32 columns alone take more than the profile states.
    is_longest = problem.dtype == FP32 and tiling.ub_factor == 9696
    most = 196480 if device is not INFERENCE and is_longest else device.ub_bytes
    assert all(size >= 0 for size in sizes)
    assert sum(sizes) <= most


@pytest.mark.parametrize(
    ("row", "col", "dtype", "device", "total"),
    [
        (4096, 4096, BF16, A2, 172544),
        (4096, 4096, FP32, A2, 164352),
        (4096, 29088, FP32, A2, 196480),
        (16, 4096, BF16, A2, 195584),
        (4096, 4096, FP16, INFERENCE, 205248),
    ],
)
def test_bytes_of_the_buffers_by_hand(row, col, dtype, device, total):
    one = problem(row, col, dtype)
    tiling = tiler.tile(one, device, RULES)
    key = tiling.tiling_key % 10
    assert sum(tiler.buffers_of(key, tiling.row_factor, tiling.ub_factor, one)) == total


def test_where_templates_begin_and_end_on_a2():
    assert keys(4096, (2001, 12288), BF16) == {tiler.KEY_NORMAL}
    assert keys(4096, (12289, 10**6), BF16) == keys(3, (12289,), BF16) == {tiler.KEY_SPLIT_D}
    assert keys(4096, (10241,), FP32) == {tiler.KEY_SPLIT_D}
    assert keys(48, (1, 2001, 12288), BF16) == {tiler.KEY_SINGLE_ROW}
    assert keys(49, (1, 2000), BF16) == {tiler.KEY_MERGE_N}
    assert keys(49, (2016, 10832), FP16) == {tiler.KEY_MULTI_N}
    assert keys(49, (2017, 10848), FP16) == {tiler.KEY_NORMAL}
    assert keys(7, (16, 12288), FP16, INFERENCE) == {tiler.KEY_MULTI_N}
    assert keys(7, (17, 2000), FP32, INFERENCE) == {tiler.KEY_NORMAL}


def test_worked_examples_of_40_cores():
    for row, key, cores, rows in ((32, 33, 32, 1), (41, 30, 21, 2), (4096, 30, 40, 103)):
        tiling = tiler.tile(problem(row, 4096), B4, RULES)
        assert (tiling.tiling_key, tiling.block_dim, tiling.block_factor) == (key, cores, rows)


def test_release_9_0_counts_a_missing_x():
    rules = rules_of("add_rms_norm", "9.0")
    one = problem(100, 4096, FP16, tiler.Y_ONLY)
    assert tiler.tile(one, A2, rules).workspace_bytes == 16777472 + 4 * 409600
    many = problem(1 << 20, 1 << 12, FP16, tiler.Y_ONLY)
    assert tiler.tile(many, A2, rules).workspace_bytes == 16777472
    assert tiler.tile(one, A2, RULES).workspace_bytes == 16777472


def test_what_cannot_be_planned():
    for one in (problem(0, 8), problem(8, 0), problem(1 << 32, 8)):
        assert tiler.tile(one, A2, RULES) == tiler.NO_TILING
    small = A2._replace(ub_bytes=5000)
    for col in (1000, 4096, 20000):
        assert tiler.tile(problem(100, col), small, RULES).status == FAILED
    assert tiler.tile(problem(8, 8), A2._replace(vector_cores=0), RULES) == tiler.NO_TILING


@pytest.mark.parametrize("release", release_names())
def test_bytes_of_the_structure(release):
    structure = find_structure("InplaceAddRmsNorm")
    assert structure.kernel == "InplaceAddRmsNorm"
    found = layout(structure, release)
    assert (len(found.members), found.bytes) == ((7, 32) if release == "8.3" else (20, 80))
    offsets = {member.name: member.offset for member in found.members}
    assert offsets["epsilon"] == 20
    assert release == "8.3" or offsets["is_performance"] == 76


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.sampled_from((FP32, FP16, BF16)))
def test_ascend_950_splits_what_does_not_fit(row, col, dtype):
    tiling = later.tile(problem(row, col, dtype), LATER, RULES)
    assert sum(later.buffers(tiling, problem(row, col, dtype))) <= LATER.ub_bytes
    if tiling.tiling_key == later.KEY_FULL_LOAD:
        assert 1 <= tiling.row_factor <= tiling.block_factor
        assert tiling.fold < tiling.columns_aligned <= 2 * tiling.fold
    else:
        assert tiling.ub_factor == (4096 if dtype == FP32 else 8192)
        assert tiling.ub_loop * tiling.ub_factor <= col < 2 * tiling.ub_loop * tiling.ub_factor


@pytest.mark.long
@given(problems, devices, rules_at_any_release("add_rms_norm"))
def test_the_compiled_planner_gives_the_same_tiling(problem, device, rules):
    assert tuple(compiled(tiler.tile)(problem, device, rules)) == tuple(
        tiler.tile(problem, device, rules)
    )


def test_the_average_factor_is_a_float32():
    tiling = tiler.tile(problem(1, 3), A2, RULES)
    assert tiling.average_factor == np.float32(1) / np.float32(3)

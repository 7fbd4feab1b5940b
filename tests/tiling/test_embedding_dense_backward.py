from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_sim.cores import Device, load_profile
from npu_sim.tiling import embedding_dense_backward as v2
from npu_sim.tiling.common import VECTOR_LANES
from npu_sim.tiling.embedding_dense_backward import embedding_dense_grad as v1
from tests.golden import not_reproduced, tiling_lines
from tests.rules import rules_at_any_release, rules_of

LINES = tiling_lines("embedding_dense_grad_v2")
RULES = rules_of("embedding_dense_backward")
any_rules = rules_at_any_release("embedding_dense_backward")

devices = st.builds(
    Device,
    npu_arch=st.just(2201),
    vector_cores=st.integers(1, 64),
    cube_cores=st.integers(1, 32),
    ub_bytes=st.integers(64 * 1024, 512 * 1024),
    l1_bytes=st.just(524288),
    l0a_bytes=st.just(65536),
    l0b_bytes=st.just(65536),
    l0c_bytes=st.just(131072),
    system_workspace_bytes=st.just(16777216),
)
problems = st.builds(
    v2.Problem,
    rows=st.integers(1, 2**31),
    dim=st.integers(1, 40000),
    num_weights=st.integers(1, 2**31),
    element_bytes=st.sampled_from((2, 4)),
    scale_grad_by_freq=st.booleans(),
    deterministic=st.booleans(),
)


def test_every_golden_line_is_reproduced():
    assert not_reproduced(LINES) == []


@given(problems, devices, any_rules)
def test_every_row_belongs_to_exactly_one_core(problem, device, rules):
    tiling = v2.tile(problem, device, rules)
    if tiling.status != v2.SUCCESS:
        return
    ranges = [v2.row_range(tiling, core) for core in range(tiling.block_dim)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == problem.rows
    assert all(left[1] == right[0] and left[0] < left[1] for left, right in pairwise(ranges))
    weights = [v2.weight_range(tiling, core) for core in range(tiling.block_dim)]
    assert weights[0][0] == 0
    assert weights[-1][1] == problem.num_weights


@given(problems, devices, any_rules)
def test_pieces_of_a_row_add_up_to_the_row(problem, device, rules):
    tiling = v2.tile(problem, device, rules)
    if tiling.status != v2.SUCCESS:
        return
    assert tiling.former_dim * tiling.former_dim_rep_time + tiling.tail_dim == problem.dim
    for dim, split in (
        (tiling.former_dim, tiling.former_vector),
        (tiling.tail_dim, tiling.tail_vector),
    ):
        assert split.compute_former_num + split.compute_tail_num == dim
        assert split.compute_rep_time * VECTOR_LANES == split.compute_former_num


@given(problems, devices, any_rules)
def test_batches_of_the_small_dim_kernel_cover_the_rows_of_a_core(problem, device, rules):
    tiling = v2.tile(problem, device, rules)
    if tiling.status != v2.SUCCESS or tiling.tiling_key < 100:
        return
    small = tiling.small_dim
    for rows, times, last in (
        (small.former_copy_row, small.former_copy_time, small.former_last_row),
        (small.tail_copy_row, small.tail_copy_time, small.tail_last_row),
    ):
        assert (times - 1) * small.max_row_in_ub + last == rows
        assert 0 < last <= small.max_row_in_ub


@pytest.mark.parametrize(("soc", "cores"), [("Ascend910A", 32), ("Ascend910B", 30)])
@pytest.mark.parametrize("index_bytes", [4, 8])
@pytest.mark.parametrize("num_weights", [1, 31, 1000, 32000, 1000000])
def test_the_largest_scaled_dim_is_the_last_one_within_the_bound(
    soc, cores, index_bytes, num_weights
):
    counts = num_weights // cores + num_weights % cores
    factor = 36 if index_bytes == 4 else 20
    documented = v1.largest_scale_dim(num_weights, index_bytes, cores, 180191)
    assert (
        factor * documented + index_bytes * counts
        < 180192
        <= factor * (documented + 1) + index_bytes * counts
    )
    ub_bytes = load_profile(None, soc).device.ub_bytes
    hardware = v1.largest_scale_dim(
        num_weights, index_bytes, cores, v1.usable_scale_bytes(ub_bytes)
    )
    free = ub_bytes - 16384 - index_bytes * counts
    assert factor * hardware + 32 <= free < factor * (hardware + 1) + 32


@given(
    st.builds(
        v1.Problem,
        rows=st.integers(1, 2**33),
        dim=st.integers(1, 60000),
        num_weights=st.integers(1, 2**33),
        index_bytes=st.sampled_from((4, 8)),
        scale_grad_by_freq=st.booleans(),
        deterministic=st.booleans(),
    ),
    devices,
)
def test_the_older_kernel_covers_everything_once_within_the_unified_buffer(problem, device):
    tiling = v1.tile(problem, device)
    total = problem.num_weights if tiling.splits_weights else problem.rows
    ranges = [v1.split_range(tiling, total, core) for core in range(tiling.block_dim)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == total
    assert all(left[1] == right[0] and left[0] < left[1] for left, right in pairwise(ranges))
    assert tiling.block_dim <= device.vector_cores
    assert (
        tiling.dim_piece * (tiling.dim_pieces - 1)
        < problem.dim
        <= tiling.dim_piece * tiling.dim_pieces
    )
    rows_bytes = tiling.batch_rows * (4 * tiling.dim_piece + problem.index_bytes)
    counters = problem.index_bytes * tiling.counters * tiling.counters_fit
    accumulator = 4 * tiling.dim_piece * tiling.splits_weights
    assert rows_bytes + counters + accumulator <= device.ub_bytes - v1.UB_RESERVED_BYTES

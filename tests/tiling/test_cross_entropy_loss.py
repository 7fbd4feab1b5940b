import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_sim.cores import Device, load_profile
from npu_sim.tiling import cross_entropy_loss as ce
from npu_sim.tiling import plan_kernel
from npu_sim.tiling.common import BF16, FP16, FP32, core_ranges, element_bytes
from npu_sim.tiling.cross_entropy_loss_grad import row_range
from tests.golden import not_reproduced, tiling_lines
from tests.rules import rules_at_any_release, rules_of

LINES = tiling_lines("cross_entropy_loss")
RULES = rules_of("cross_entropy_loss")

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
    weighted=st.integers(0, 1),
    label_smoothing=st.integers(0, 1),
    reduction=st.integers(0, 2),
)


def test_every_golden_line_is_reproduced():
    assert len(LINES) == 600
    assert not_reproduced(LINES) == []


@pytest.mark.parametrize(
    ("core_rows", "columns"),
    [
        (8, [48000, 23936, 23808, 15872]),
        (96, [47744, 23808, 23808, 15872]),
        (4096, [35712, 17792, 17664, 11776]),
    ],
)
def test_the_columns_of_the_page(core_rows, columns):
    device = load_profile("atlas_a2", "Ascend910B1").device
    found = [
        ce.most_columns(ce.Problem(48 * core_rows, 10**6, dtype, smooths, smooths, 0), device)
        for dtype in (FP32, BF16)
        for smooths in (0, 1)
    ]
    assert found == columns


@given(problems, devices, rules_at_any_release("cross_entropy_loss"))
def test_every_row_belongs_to_exactly_one_core(problem, device, rules):
    tiling = ce.tile(problem, device, rules)
    ranges = core_ranges(row_range, tiling)
    assert tiling.block_dim <= device.vector_cores
    assert [first for first, _ in ranges] == [0, *(last for _, last in ranges[:-1])]
    assert ranges[-1][1] == problem.N
    assert max(last - first for first, last in ranges) == tiling.front_rows


@given(problems, devices)
def test_chunks_cover_a_row_and_fit(problem, device):
    tiling = ce.tile(problem, device, RULES)
    used_bytes = sum(ce.buffers(tiling, problem.dtype).values())
    chunk_bytes = element_bytes(problem.dtype) * tiling.chunk_columns
    assert used_bytes == chunk_bytes + tiling.scratch_bytes
    assert ce.fits(problem, device, RULES) == (
        tiling.chunk_columns > 0 and used_bytes <= device.ub_bytes
    )
    if ce.fits(problem, device, RULES):
        assert tiling.chunks * tiling.chunk_columns + tiling.tail_columns == problem.C


@given(problems, devices)
def test_the_largest_number_of_rows_is_a_limit(problem, device):
    most = ce.largest_rows(problem, device, RULES)
    assert most == 0 or ce.fits(problem._replace(N=most), device, RULES)
    assert not ce.fits(problem._replace(N=most + 1), device, RULES)


RAW = {
    "input_shape": [8, 10],
    "target_shape": [8],
    "weight_shape": [10],
    "input_dtype": "float32",
    "target_dtype": "int64",
    "reduction": "sum",
    "ignore_index": -100,
    "label_smoothing": 0.0,
}


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"target_shape": [7]}, "failed"),
        ({"weight_shape": [9]}, "failed"),
        ({"target_dtype": "int32"}, "failed"),
        ({"reduction": "average"}, "failed"),
        ({"label_smoothing": 1.1}, "failed"),
        ({"label_smoothing": -1e-50}, "success"),
        ({"label_smoothing": 1.00000001}, "success"),
        ({"label_smoothing": float("nan")}, "success"),
        ({"target_shape": [8, 3], "weight_shape": [10, 2]}, "success"),
    ],
)
def test_what_the_raw_planner_refuses(changes, status):
    assert plan_kernel("cross_entropy_loss", "Ascend910B1", RAW | changes)["status"] == status

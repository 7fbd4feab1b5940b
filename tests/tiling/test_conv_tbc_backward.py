from itertools import pairwise
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_sim.cores import Device, load_profile
from npu_sim.tiling import conv_tbc_backward as model
from npu_sim.tiling.common import FAILED, SUCCESS
from npu_sim.tiling.conv_tbc_backward.grad_weight_deterministic import ConvTbcProblem, output_time
from tests.compiled_planners import compiled

A2 = load_profile(None, "Ascend910B1").device
TRAIN = load_profile(None, "Ascend910A").device
LARGEST = 2147483646

sizes = st.one_of(st.integers(1, 40), st.integers(1, 3000), st.integers(1, 10**6))
devices = st.one_of(
    st.sampled_from((A2, TRAIN)),
    st.builds(
        Device,
        npu_arch=st.sampled_from((2201, 1001)),
        vector_cores=st.just(8),
        cube_cores=st.integers(1, 100),
        ub_bytes=st.just(196352),
        l1_bytes=st.integers(512, 2**21),
        l0a_bytes=st.integers(512, 2**18),
        l0b_bytes=st.integers(512, 2**18),
        l0c_bytes=st.integers(512, 2**19),
        system_workspace_bytes=st.just(16777216),
    ),
)
problems = st.builds(
    ConvTbcProblem,
    time=sizes,
    batch=st.one_of(st.integers(1, 64), st.integers(1, 10**5)),
    in_channels=sizes,
    out_channels=sizes,
    taps=st.one_of(st.integers(1, 9), st.integers(1, 255)),
    pad=st.integers(0, 255),
    element_bytes=st.sampled_from((2, 4)),
).filter(lambda problem: output_time(problem) > 0)
splits = st.booleans()


def both(problem, device, split):
    return model.plan_grad_input(problem, device), model.plan_grad_weight(problem, device, split)


def up(value, unit):
    return -(-value // unit) * unit


def l1_bytes_by_the_page(tiling, problem, grad_weight):
    """The page's sentence on L1, for one buffer."""
    c0 = 32 // problem.element_bytes
    e, taps = problem.element_bytes, problem.taps
    if grad_weight:
        x_bytes = (tiling.length_l1 - 1 + taps) * c0 * -(-tiling.base_n // (taps * c0)) * e
        return tiling.base_m * tiling.length_l1 * e + x_bytes
    return tiling.slices_l1 * ((tiling.base_m - 1 + taps) * c0 * e + taps * c0 * tiling.base_n * e)


@settings(max_examples=400)
@given(problems, devices, splits)
def test_no_tile_exceeds_a_buffer(problem, device, split):
    for grad_weight, tiling in enumerate(both(problem, device, split)):
        if tiling.status != SUCCESS:
            continue
        e = problem.element_bytes
        assert tiling.l0a_bytes == 2 * tiling.base_m * tiling.base_k * e <= device.l0a_bytes
        assert tiling.l0b_bytes == 2 * tiling.base_n * tiling.base_k * e <= device.l0b_bytes
        assert (
            tiling.l0c_bytes
            == tiling.l0c_buffers * 4 * tiling.base_m * tiling.base_n
            <= device.l0c_bytes
        )
        content = l1_bytes_by_the_page(tiling, problem, grad_weight)
        assert tiling.l1_bytes == tiling.l1_buffers * content <= device.l1_bytes
        assert tiling.base_m % 16 == tiling.base_n % 16 == tiling.base_k % (32 // e) == 0
        assert 0 < tiling.base_k <= tiling.length_l1
        assert tiling.steps_l1 == -(-tiling.length_l1 // tiling.base_k)


@settings(max_examples=200)
@given(problems, devices, splits)
def test_a_failure_names_a_buffer_too_small_for_16_by_16(problem, device, split):
    for grad_weight, tiling in enumerate(both(problem, device, split)):
        if tiling.status == SUCCESS:
            continue
        capacity = (0, device.l0a_bytes, device.l0b_bytes, device.l0c_bytes, device.l1_bytes)[
            tiling.shortage
        ]
        c0 = 32 // problem.element_bytes
        groups = -(-16 // (problem.taps * c0))
        smallest_l1 = (
            512 + problem.taps * 32 * groups + 32 * (c0 - 1) * groups
            if grad_weight
            else (15 + problem.taps) * 32 + problem.taps * 16 * 32
        )
        assert tiling.bytes_needed == (0, 1024, 1024, 1024, smallest_l1)[tiling.shortage]
        assert tiling.bytes_available == capacity < tiling.bytes_needed


@settings(max_examples=300)
@given(problems, devices, splits)
def test_blocks_and_cores_add_up(problem, device, split):
    for tiling in both(problem, device, split):
        if tiling.status != SUCCESS:
            continue
        axes = (tiling.m_blocks, tiling.n_blocks, tiling.sample_blocks, tiling.time_blocks)
        assert tiling.blocks == axes[0] * axes[1] * axes[2] * axes[3]
        assert tiling.block_dim + tiling.idle_cores == tiling.cores == device.cube_cores
        assert tiling.block_dim == min(tiling.blocks, tiling.cores)
        assert tiling.blocks_per_core == -(-tiling.blocks // tiling.cores)
        assert tiling.single_m % tiling.base_m == tiling.single_n % tiling.base_n == 0


def assert_covers_once(ranges, total):
    """Half-open ranges, in order, make up [0, total) without gap or overlap."""
    distinct = sorted(set(ranges))
    assert distinct[0][0] == 0
    assert distinct[-1][1] == total
    assert all(left[1] == right[0] for left, right in pairwise(distinct))
    assert all(start < stop for start, stop in distinct)


small = st.builds(
    ConvTbcProblem,
    time=st.integers(1, 900),
    batch=st.integers(1, 12),
    in_channels=st.integers(1, 300),
    out_channels=st.integers(1, 300),
    taps=st.integers(1, 9),
    pad=st.integers(0, 12),
    element_bytes=st.sampled_from((2, 4)),
).filter(lambda problem: output_time(problem) > 0)


@settings(max_examples=200)
@given(small, devices, splits)
def test_every_output_element_and_every_term_belongs_to_exactly_one_block(problem, device, split):
    for grad_weight, tiling in enumerate(both(problem, device, split)):
        if tiling.status != SUCCESS or tiling.blocks > 5000:
            continue
        blocks = [model.block_range(tiling, block) for block in range(tiling.blocks)]
        # The ranges are a product of one partition per axis, and every combination appears once.
        assert len(set(blocks)) == tiling.blocks
        extents = (problem.batch, tiling.m, tiling.n, tiling.reduction)
        for axis, extent in enumerate(extents):
            assert_covers_once([block[axis] for block in blocks], extent)
        terms = sum(prod(stop - start for start, stop in block) for block in blocks)
        assert terms == extents[0] * extents[1] * extents[2] * extents[3]
        c0 = 32 // problem.element_bytes
        expected_reduction = (
            up(output_time(problem), c0)
            if grad_weight
            else problem.taps * up(problem.out_channels, c0)
        )
        assert tiling.reduction == expected_reduction
        # No block has nothing but alignment in it.
        if grad_weight:
            assert all(block.reduction[0] < output_time(problem) for block in blocks)


@settings(max_examples=300)
@given(problems, devices)
def test_only_the_default_mode_splits_the_reduction(problem, device):
    fixed = model.plan_grad_weight(problem, device, False)
    shared = model.plan_grad_weight(problem, device, True)
    if fixed.status != SUCCESS:
        assert shared == fixed
        return
    assert fixed.sample_blocks == fixed.time_blocks == 1
    parts = shared.sample_blocks * shared.time_blocks
    if fixed.blocks >= device.cube_cores:
        assert parts == 1
    if parts > 1:
        assert shared.blocks <= device.cube_cores
    if shared.time_blocks > 1:
        # Samples are given out first: time is only split when there are cores for several parts a
        # sample.
        assert shared.single_reduction % 16 == 0
        assert fixed.blocks * shared.sample_blocks * 2 <= device.cube_cores


@settings(max_examples=150)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 70), st.integers(1, 70))
def test_the_split_over_cores_is_the_best_one(m_tiles, n_tiles, samples, cores):
    m_blocks, n_blocks = model.split_output(m_tiles, n_tiles, samples, cores)

    def rank(m_single, n_single):
        blocks = samples * -(-m_tiles // m_single) * -(-n_tiles // n_single)
        rounds = -(-blocks // cores)
        # Utilisation as an exact fraction of a common denominator is compared through its idle
        # share.
        return blocks / (rounds * cores), -blocks

    best = max(
        rank(m_single, n_single)
        for m_single in range(1, m_tiles + 1)
        for n_single in range(1, n_tiles + 1)
    )
    chosen = rank(-(-m_tiles // m_blocks), -(-n_tiles // n_blocks))
    assert chosen == best


def test_gradients_of_the_benchmark_shape_on_a2():
    # T=512 B=32 512->512 K=3 pad 1 in fp32, worked by hand from the page.
    problem = ConvTbcProblem(512, 32, 512, 512, 3, 1, 4)
    grad_input, grad_weight = both(problem, A2, True)
    assert (grad_input.m, grad_input.n, grad_input.reduction, grad_input.halo) == (
        512,
        512,
        3 * 512,
        1,
    )
    # base_k = 32768 / (4 * 256) = 32; 256 * 128 * 4 is all of L0C, so one buffer.
    assert grad_input[grad_input._fields.index("base_m") :][:3] == (256, 128, 32)
    assert grad_input.l0c_buffers == 1
    # A slice of 8 channels: (255 + 3) * 32 + 3 * 8 * 128 * 4 = 20544 bytes; 12 of them fit 262144.
    assert (grad_input.slices_l1, grad_input.l1_buffers, grad_input.l1_bytes) == (
        12,
        2,
        2 * 12 * 20544,
    )
    # 32 samples x 1, 2 x 1, 2, 4 tiles on 24 cores: 256 blocks leave 8 of 264 places idle, the
    # smallest share.
    assert (grad_input.m_blocks, grad_input.n_blocks, grad_input.blocks) == (2, 4, 256)
    assert (grad_weight.m, grad_weight.n, grad_weight.reduction) == (512, 3 * 512, 512)
    # 128 columns of 3 x 8 touch 6 groups: k * 256 * 4 + (k + 2) * 6 * 32 <= 262144 gives k = 192 in
    # steps of 32.
    assert (grad_weight.base_k, grad_weight.length_l1, grad_weight.l1_buffers) == (32, 192, 2)
    assert grad_weight.l1_bytes == 2 * (192 * 1024 + 194 * 192)
    # 2 x 12 tiles fill the 24 cores: nothing is split.
    assert (grad_weight.blocks, grad_weight.sample_blocks, grad_weight.time_blocks) == (24, 1, 1)


def test_small_weights_split_samples_first_and_then_time():
    # 1 x 1 tile on 24 cores: 4 samples on 4 cores each, then 6 parts of 16 x ceil(200 / 6 / 16) =
    # 48 time steps.
    problem = ConvTbcProblem(200, 4, 16, 16, 1, 0, 2)
    tiling = model.plan_grad_weight(problem, A2, True)
    assert (tiling.sample_blocks, tiling.single_samples) == (4, 1)
    assert (tiling.time_blocks, tiling.single_reduction) == (5, 48)
    assert (tiling.base_k, tiling.length_l1) == (48, 48)
    assert (tiling.blocks, tiling.idle_cores) == (20, 4)


def test_the_widest_documented_kernel_fits_and_needs_139_kilobytes():
    widest = ConvTbcProblem(1000, 2, 512, 512, 255, 127, 2)
    assert model.plan_grad_input(widest, A2).status == SUCCESS
    without = A2._replace(l1_bytes=139199)
    tiling = model.plan_grad_input(widest, without)
    # Page, contract 9: about 139 KB of L1.
    assert (tiling.status, model.BUFFER_NAMES[tiling.shortage]) == (FAILED, "L1")
    assert (tiling.bytes_needed, tiling.bytes_available) == (139200, 139199)
    enough = model.plan_grad_input(widest, A2._replace(l1_bytes=139200))
    assert (enough.status, enough.base_m, enough.base_n, enough.l1_bytes) == (
        SUCCESS,
        16,
        16,
        139200,
    )


def test_a_negative_halo_when_padding_is_wider_than_the_taps():
    assert model.plan_grad_input(ConvTbcProblem(10, 1, 16, 16, 3, 5, 2), A2).halo == -3


@pytest.mark.long
def test_the_compiled_planners_give_the_same_integers_up_to_the_documented_ranges():
    plan_input, plan_weight = compiled(model.plan_grad_input), compiled(model.plan_grad_weight)
    block_range = compiled(model.block_range)
    axis = (1, 17, 1000, LARGEST)
    for element_bytes in (2, 4):
        for time in axis:
            for batch in (1, 5, LARGEST):
                for channels in axis:
                    for taps, pad in ((1, 0), (3, 1), (255, 127)):
                        problem = ConvTbcProblem(
                            time, batch, channels, channels, taps, pad, element_bytes
                        )
                        for device in (A2, TRAIN, A2._replace(cube_cores=64, l1_bytes=140000)):
                            expected = both(problem, device, True)
                            assert plan_input(problem, device) == expected[0]
                            assert plan_weight(problem, device, True) == expected[1]
                            assert all(
                                -(2**63) <= field < 2**63 for tiling in expected for field in tiling
                            )
                            for tiling in expected:
                                if tiling.blocks:
                                    last = tiling.blocks - 1
                                    assert block_range(tiling, last) == model.block_range(
                                        tiling, last
                                    )


@pytest.mark.parametrize("device", [A2, TRAIN])
@pytest.mark.parametrize("element_bytes", [2, 4])
def test_planners_never_return_an_empty_core(device, element_bytes):
    for batch in range(1, 70):
        problem = ConvTbcProblem(300, batch, 40, 100, 3, 1, element_bytes)
        for tiling in both(problem, device, True):
            assert 0 < tiling.block_dim <= device.cube_cores

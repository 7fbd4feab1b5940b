"""Estimates beside the bound: the numbers of specification page ``estimate``."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import npu_sim
from npu_sim.operators.timelines import timeline
from npu_sim.timelines.model import (
    READS_AND_WRITES,
    WRITES_ONLY,
    Calibration,
    Ceiling,
    LaunchEstimate,
    estimate_of_call,
)
from npu_sim.timelines.vector_pipe import halving, row_conflicts, source_conflict, strided_conflict
from tests.timelines.calls import CALLS


def times_of(operator, soc, release, calibration=None, **arguments):
    profile = npu_sim.load_profile("atlas_a2", soc, release)
    return timeline(npu_sim.plan(operator, product=profile, **arguments), profile, calibration)


def gradient(rows, columns, dtype, soc="Ascend910B3", release="8.3"):
    like = f"{rows}x{columns}:{dtype}"
    (launch,) = times_of(
        "rms_norm_grad",
        soc,
        release,
        dy=like,
        x=like,
        rstd=f"{rows}:fp32",
        gamma=f"{columns}:{dtype}",
    ).launches
    return launch.estimate


def forward(rows, columns, dtype, release, soc="Ascend910B3"):
    (launch,) = times_of(
        "rms_norm", soc, release, x=f"{rows}x{columns}:{dtype}", gamma=f"{columns}:{dtype}"
    ).launches
    return launch.estimate


@pytest.mark.parametrize(
    ("rows", "columns", "cycles", "startup_share"),
    [(4096, 1024, 66209, 0.57), (32768, 128, 85523, 0.32), (65536, 128, 170580, 0.31)],
)
def test_the_gradient_takes_the_cycles_of_the_compared_lines(rows, columns, cycles, startup_share):
    estimate = gradient(rows, columns, "bf16")
    assert estimate.vector_cycles == pytest.approx(cycles, rel=1e-5)
    assert estimate.startup_share == pytest.approx(startup_share, abs=0.005)
    assert estimate.evidence == "published rates, compared with one device"


@pytest.mark.parametrize(
    ("rows", "columns", "cycles", "startup_share"),
    [("4096x1", 1024, 26180, 0.21), ("4096x8", 128, 29531, 0.12), ("4096x16", 128, 58514, 0.12)],
)
def test_the_forward_takes_the_cycles_of_the_compared_lines(rows, columns, cycles, startup_share):
    estimate = forward(rows, columns, "bf16", "8.3")
    assert estimate.vector_cycles == pytest.approx(cycles, rel=2e-5)
    assert estimate.startup_share == pytest.approx(startup_share, abs=0.005)
    assert estimate.low_us == pytest.approx(0.9 * estimate.vector_us)
    assert estimate.high_us == pytest.approx(1.1 * estimate.vector_us)


@pytest.mark.parametrize(
    ("rows", "columns", "cycles"),
    [("4096x1", 1024, 25940.5), ("4096x8", 128, 28027.9), ("4096x16", 128, 54544.1)],
)
def test_the_forward_of_later_releases_spreads_gamma_once(rows, columns, cycles):
    estimate = forward(rows, columns, "bf16", "9.1")
    assert estimate.vector_cycles == pytest.approx(cycles, rel=1e-5)
    assert estimate.evidence == "from published rates; not validated on a device"


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "soc", "cycles"),
    [
        (4096, 8192, "bf16", "Ascend910B2", 297297.8),
        (1000, 200, "fp32", "Ascend910B2", 2344.7),
        (4096, 4096, "fp32", "Ascend910B3", 131937.4),
    ],
)
def test_other_paths_of_the_gradient(rows, columns, dtype, soc, cycles):
    estimate = gradient(rows, columns, dtype, soc)
    assert estimate.vector_cycles == pytest.approx(cycles, rel=2e-5)
    assert estimate.evidence == "from published rates; not validated on a device"
    assert estimate.high_us == pytest.approx(1.25 * estimate.vector_us)


@pytest.mark.parametrize("rows", [1, 4, 32])
def test_few_rows_are_mostly_start_up_and_may_take_less(rows):
    estimate = forward(f"{rows}x1", 1024, "fp16", "9.0", "Ascend910B2")
    assert estimate.vector_cycles == pytest.approx(1547, abs=0.5)
    assert estimate.startup_share > 0.6
    assert (estimate.low_us, estimate.high_us) == pytest.approx(
        (0.85 * estimate.vector_us, 1.1 * estimate.vector_us)
    )


def test_narrowing_is_named_where_it_counts():
    (single_row,) = times_of(
        "rms_norm", "Ascend910B3", "9.1", x="512x13000:bf16", gamma="13000:fp32"
    ).launches
    assert "least sure" in single_row.estimate.note
    assert forward("4096x8", 128, "bf16", "8.3").note == ""


VOCABULARY = {"grad": "4096x1024:bf16", "indices": "4096:int64", "num_weights": 151936}


def test_a_launch_that_streams_has_a_range_without_a_profile():
    times = times_of("embedding_dense_backward", "Ascend910B3", "8.3", **VOCABULARY)
    clearing = next(launch.estimate for launch in times.launches if launch.kernel == "MemSet")
    assert (clearing.of, clearing.us, clearing.evidence) == ("launch", None, "two public devices")
    assert (clearing.low_us, clearing.high_us) == pytest.approx(
        (622329856 / 1.8e6, 622329856 / 0.794e6)
    )
    assert times.estimate_us is None


def test_a_calibration_gives_streaming_launches_a_time():
    ceilings = {
        READS_AND_WRITES: Ceiling(tb_per_s=0.614, shapes=7),
        WRITES_ONLY: Ceiling(tb_per_s=0.794, shapes=1),
    }
    measured = Calibration(
        source="mine.csv",
        soc="Ascend910B3",
        release="8.3",
        vector_cores=40,
        clock_mhz=1650,
        ceilings=ceilings,
    )
    times = times_of("embedding_dense_backward", "Ascend910B3", "8.3", measured, **VOCABULARY)
    estimates = {
        number: launch.estimate.us
        for number, launch in enumerate(times.launches)
        if launch.estimate
    }
    assert estimates == pytest.approx({3: 784, 5: 1520}, abs=0.5)
    assert {launch.estimate.evidence for launch in times.launches if launch.estimate} == {"profile"}
    assert (times.estimate_us, times.estimate_without) == (
        None,
        ("Cast", "Cast", "Sort", "EmbeddingDenseGradV2"),
    )


def test_a_calibration_changes_the_clock_of_estimates_and_no_bound():
    call = {"x": "4096x1024:bf16", "gamma": "1024:bf16"}
    measured = Calibration(
        source="mine.csv",
        soc="Ascend910B3",
        release="8.3",
        vector_cores=40,
        clock_mhz=900,
        vector_shapes=3,
        vector_factor=1.1,
    )
    plain, calibrated = (
        times_of("rms_norm", "Ascend910B3", "8.3", one, **call) for one in (None, measured)
    )
    assert calibrated.launches[0].estimate.vector_us == pytest.approx(
        2.2 * plain.launches[0].estimate.vector_us
    )
    assert calibrated.launches[0].estimate.evidence == "profile"
    assert calibrated.bound_us == plain.bound_us


@pytest.mark.parametrize(
    ("columns", "dtype", "shapes", "evidence", "band"),
    [
        (1024, "bf16", 0, "from published rates; not validated on a device", 0.25),
        (1024, "bf16", 3, "profile", 0.1),
        (1000, "bf16", 3, "profile", 0.25),
        (1024, "fp32", 3, "profile", 0.25),
    ],
)
def test_a_profile_whose_shapes_agree_stands_for_its_device(columns, dtype, shapes, evidence, band):
    measured = Calibration(
        source="mine.csv",
        soc="Ascend910B2",
        release="9.1",
        vector_cores=48,
        clock_mhz=1800,
        vector_shapes=shapes,
    )
    call = {"x": f"4096x{columns}:{dtype}", "gamma": f"{columns}:{dtype}"}
    estimate = times_of("rms_norm", "Ascend910B2", "9.1", measured, **call).launches[0].estimate
    assert estimate.evidence == evidence
    assert estimate.high_us == pytest.approx((1 + band) * estimate.vector_us)


@pytest.mark.parametrize("name", CALLS)
def test_every_launch_has_an_estimate_with_range_and_evidence_or_says_why_not(name):
    operator, product, arguments = CALLS[name]
    profile = npu_sim.load_profile(product)
    for launch in timeline(npu_sim.plan(operator, product=profile, **arguments), profile).launches:
        assert (launch.estimate is None) == bool(launch.estimate_missing)
        if launch.estimate is not None:
            assert 0 < launch.estimate.low_us < launch.estimate.high_us
            assert launch.estimate.evidence
            assert launch.estimate.of == "launch" or profile.npu_arch == 2201


@pytest.mark.parametrize(
    ("apart", "conflict"),
    [(0, 2), (32, 1.875), (128, 1.5), (256, 1), (384, 1.5), (480, 1.875), (512, 2), (4096, 2)],
)
def test_two_sources_conflict_by_their_distance_in_bank_groups(apart, conflict):
    assert source_conflict(1024, 1024 + apart) == source_conflict(1024 + apart, 1024) == conflict


@pytest.mark.parametrize(
    ("stride", "blocks", "conflict"),
    [(16, 8, 8), (8, 8, 4), (1, 8, 1), (2, 8, 1), (4, 8, 2), (16, 3, 3), (8, 1, 1)],
)
def test_a_strided_destination_takes_its_blocks_over_the_groups_they_hit(stride, blocks, conflict):
    assert strided_conflict(stride, blocks) == conflict


@given(st.integers(1, 300), st.integers(0, 64), st.integers(0, 64))
def test_conflicts_of_rows_are_those_of_every_row(rows, row_blocks, start):
    counted = row_conflicts(rows, (32 * start, 32 * row_blocks), (0, 256))
    every = sum(source_conflict(32 * (start + row * row_blocks), 256 * row) for row in range(rows))
    assert sum(conflict * count for conflict, count in counted) == pytest.approx(every)
    assert sum(count for _, count in counted) == rows


@given(st.integers(1, 5000))
def test_halving_adds_every_column_once(columns):
    added = sum(issue.repeats for issue in halving(columns) if issue.kind == "add")
    assert 64 * added >= max(columns - 64, 0)
    assert halving(columns)[-1].kind == "sum of a repeat"


def test_conflicts_name_what_lies_in_the_same_bank_groups():
    estimate = gradient(4096, 1024, "bf16")
    conflicts = {conflict.between: conflict for conflict in estimate.conflicts}
    assert conflicts["dy and x"].factor == pytest.approx(2)
    assert estimate.conflicts[0].cycles == max(conflict.cycles for conflict in estimate.conflicts)
    assert sum(conflict.cycles for conflict in estimate.conflicts) == pytest.approx(
        estimate.conflict_share * estimate.slowest_cycles, rel=0.01
    )


def test_the_forward_s_product_of_x_with_itself_is_two_cycles_a_repeat():
    conflicts = {
        conflict.between: conflict for conflict in forward("4096x8", 128, "bf16", "8.3").conflicts
    }
    assert conflicts["x_fp32 and x_fp32"].factor == pytest.approx(2)


def test_a_call_of_streaming_launches_alone_has_an_estimate():
    launch = times_of("embedding_dense_backward", "Ascend910B3", "8.3", **VOCABULARY).launches[3]
    streaming = launch.model_copy(
        update={
            "estimate": LaunchEstimate(us=784.0, low_us=666.0, high_us=901.0, evidence="profile")
        }
    )
    assert estimate_of_call([streaming, streaming]) == (1568.0, ())
    assert estimate_of_call([streaming, launch]) == (None, ("MemSet",))
    assert estimate_of_call([]) == (None, ())


def loss(shape, **attributes):
    (launch,) = times_of(
        "cross_entropy_loss", "Ascend910B1", "9.1", input=shape, **attributes
    ).launches
    return launch.estimate


def test_cross_entropy_loss_takes_the_instructions_of_its_page():
    """512 rows of 1000 columns on 48 cores: 11 on 32 of them, 10 on the others."""
    sums = 3 * 32.00 + 7 * (15 + 1 + 1)  # 15 repeats, 40 columns, and the 16 results
    maximum = sums + 23.23 + 1
    adds, exp, ln = 22.09 + 16, 28.04 + 2 * 16, 28.04 + 2
    row = maximum + adds + exp + sums + ln + adds
    core_end = 23.23 + 1 + 22.09 + 1  # times the weights, times -1
    cycles = (32 * 11 + 16 * 10) / 48 * row + core_end
    found = loss("512x1000:fp32", reduction="none")
    assert found.vector_cycles == pytest.approx(cycles)
    assert found.evidence == "from published rates; not validated on a device"
    assert found.note == ""


def test_an_estimate_says_that_the_start_up_of_sums_of_blocks_is_a_model():
    assert "sums of blocks" in loss("96x8192:fp32").note
    assert "sums of blocks" not in loss("96x4096:fp32").note


def test_a_kernel_without_estimate_says_why_in_the_text():
    call = {"x1": "64x4096:bf16", "gamma": "4096:bf16", "product": "ascend_950"}
    text = " ".join(str(npu_sim.timeline("add_rms_norm", **call)).split())
    assert "AddRmsNorm: none" in text
    assert "not published for architecture 3510" in text

"""Device profiles compared with plans: device, release, calls, and the bound of every launch."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import npu_sim
from npu_sim.cores import default_release, release_names
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.loading import load_operator
from npu_sim.show import document_of
from npu_sim.show.forms.layout import render
from npu_sim.tools.profiles import measured_calls, measured_profile
from npu_sim.tools.profiles.measured_calls import measured_casts, possible_calls
from npu_sim.tools.profiles.measured_profile import MeasuredProfile
from npu_sim.tools.profiles.reader import MeasuredLaunch
from npu_sim.tools.profiles.view import measured_profile_view, measured_trace
from tests.measured import EMBEDDING, GRAD, OTHER, Row, write_csv, write_database

ROWS = (OTHER, *EMBEDDING, GRAD, GRAD, *EMBEDDING)


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> MeasuredProfile:
    return npu_sim.read_profile(
        write_csv(tmp_path_factory.mktemp("profile") / "kernel_details.csv", ROWS)
    )


def test_known_kernels_and_the_launches_of_their_calls_are_modelled(answer: MeasuredProfile):
    assert (len(answer.launches), answer.modelled) == (len(ROWS), len(ROWS) - 1)
    assert list(answer.not_modelled) == ["MatMulV2"]


def test_the_soc_is_identified_by_cores_and_clock(answer: MeasuredProfile):
    assert answer.device is not None
    assert answer.device.profile.chip.vector_cores == 40
    assert answer.device.clock_mhz == pytest.approx(1800)


def test_the_release_is_identified_by_the_launches_of_a_call(answer: MeasuredProfile):
    assert answer.release == "8.3"
    assert answer.release_found_by == "12 launches form complete calls of release 8.3"


def test_equal_launches_are_one_group_with_time_cores_and_bound(answer: MeasuredProfile):
    group = next(
        entry.as_dict() for entry in answer.groups if entry.launches[0].kernel == "RmsNormGrad"
    )
    assert (
        group["count"],
        group["median_us"],
        group["measured_block_dim"],
        group["planned_block_dim"],
    ) == (2, 95.0, 40, 40)
    assert 0 < group["bound_us"] <= group["median_us"]
    assert (
        group["tiling_key"]
        == npu_sim.plan(
            "rms_norm_grad", dy="4096x1x1024:bf16", gamma="1024:bf16", soc="Ascend910B3"
        ).tiling_key
    )


def test_a_call_shows_the_share_of_every_launch(answer: MeasuredProfile):
    (call,) = (entry.as_dict() for entry in answer.calls)
    assert [launch["kernel"] for launch in call["launches"]] == [row.kernel for row in EMBEDDING]
    assert [launch["share"] for launch in call["launches"]] == pytest.approx(
        [row.duration_us / 2563 for row in EMBEDDING]
    )
    assert (call["count"], call["arguments"]["num_weights"]) == (2, 151936)
    assert call["arguments"]["grad"] == "4096x1024:bf16"
    assert call["arguments"]["indices"] == "4096:int64"


@pytest.mark.long
def test_a_database_gives_the_same_answer(answer: MeasuredProfile, tmp_path: Path):
    other = npu_sim.read_profile(write_database(tmp_path / "profile.db", ROWS), soc="Ascend910B3")
    keys = ("rows", "modelled", "release", "calls")
    assert {name: other.as_dict()[name] for name in keys} == {
        name: answer.as_dict()[name] for name in keys
    }


def test_without_core_counts_the_soc_is_required(tmp_path: Path):
    path = write_csv(tmp_path / "few.csv", [GRAD], without=["Block Dim"])
    with pytest.raises(npu_sim.UsageError, match="does not state on how many cores"):
        npu_sim.read_profile(path)
    assert npu_sim.read_profile(path, soc="Ascend910B3").modelled == 1


def test_a_launch_that_matches_no_call_has_a_reason(tmp_path: Path):
    row = GRAD._replace(inputs="4096,1024;4096,1024;4096;512", outputs="4096,1024;512")
    (group,) = npu_sim.read_profile(write_csv(tmp_path / "odd.csv", [row])).groups
    assert group.refusal is not None
    assert group.as_dict()["planned_block_dim"] is None


def test_the_trace_has_a_measured_and_a_bound_lane(answer: MeasuredProfile):
    events = [event for event in measured_trace(answer)["traceEvents"] if event["ph"] == "X"]
    measured, bounds = ([event for event in events if event["tid"] == lane] for lane in (1, 2))
    assert [event["dur"] for event in measured] == [row.duration_us for row in ROWS]
    assert len(bounds) == len(ROWS) - 1
    times = {event["ts"]: event["dur"] for event in measured}
    assert all(event["dur"] <= times[event["ts"]] for event in bounds)


@pytest.mark.parametrize(
    ("vector_us", "off"), [(37.0, False), (60.0, True), (20.0, True), (0.0, False)]
)
def test_a_launch_with_a_counter_outside_the_band_is_flagged(
    tmp_path: Path, vector_us: float, off: bool
):
    row = GRAD._replace(vector_us=vector_us)
    (group,) = npu_sim.read_profile(
        write_csv(tmp_path / "one.csv", [row]), soc="Ascend910B3", release="8.3"
    ).groups
    data = group.as_dict()
    assert data["off_by_more_than_the_band"] is off
    assert data["estimate"]["vector_us"] == pytest.approx(66209 / 1800, rel=1e-4)
    assert data["estimated_as_measured_us"] == (vector_us or None)
    answer = npu_sim.read_profile(tmp_path / "one.csv", soc="Ascend910B3", release="8.3")
    text = render(measured_profile_view(answer, "all"), 200)
    assert ("outside the estimate" in text) is off


PERMUTE_GRAD = Row(
    "MoeTokenPermuteGrad", 500.0, 40, "32768,4096;32768", "DT_BF16;INT32", "4096,4096", "DT_BF16"
)


@pytest.mark.parametrize("without", [(), ("Output Shapes", "Output Data Types")])
def test_an_argument_that_follows_from_missing_columns_is_unknown(
    tmp_path: Path, without: tuple[str, ...]
):
    path = write_csv(tmp_path / "permute.csv", [PERMUTE_GRAD], without=without)
    answer = npu_sim.read_profile(path, soc="Ascend910B3")
    (group,) = answer.groups
    said = "num_topk unknown: output shapes are not in the file"
    text = render(measured_profile_view(answer, "all"), 200)
    assert (said in " ".join(text.split())) is bool(without)
    assert (group.as_dict()["unknown"] == said, bool(group.possible_calls)) == (
        bool(without),
        not without,
    )
    assert group.refusal is None


def test_a_bound_stands_beside_the_fastest_launch_and_its_assumptions(tmp_path: Path):
    unpermute = Row(
        "MoeTokenUnpermute",
        200.0,
        40,
        "32768,4096;32768;4096,8",
        "DT_BF16;INT32;DT_BF16",
        "4096,4096",
        "DT_BF16",
    )
    rows = [unpermute, unpermute._replace(duration_us=150.0), unpermute._replace(duration_us=220.0)]
    answer = npu_sim.read_profile(write_csv(tmp_path / "moe.csv", rows), soc="Ascend910B3")
    (group,) = (group.as_dict() for group in answer.groups)
    assert group["bound_over_measured"] == pytest.approx(group["bound_us"] / 200)
    assert group["bound_over_fastest"] == pytest.approx(group["bound_us"] / 150)
    assert group["assumptions"] == ["no token is dropped", "no probs is 0"]
    (other,) = group["otherwise"]
    assert other["assumption"] == "every probs is 0"
    assert 0 < other["bound_us"] < group["bound_us"]
    text = " ".join(render(measured_profile_view(answer, "all"), 200).split())
    assert "of the fastest" in text
    assert "no probs is 0" in text
    assert "if every probs is 0" in text


@pytest.mark.parametrize(
    ("clock", "rated", "others"),
    [
        (1805, 1800, ("Ascend910_9372",)),
        (1510, 1500, ("Ascend910B4-1", "Ascend910_9362", "Ascend910_9363")),
        (1900, 1800, ()),
    ],
)
def test_no_soc_fits_equally_well_when_all_are_rated_too_low(
    clock: int, rated: int, others: tuple[str, ...]
):
    launch = MeasuredLaunch(1, "Mul", "Mul", 1.0, block_dim=40, counters=(clock * 40.0, 1.0))
    device = measured_calls.find_device([launch], None)
    assert (device.profile.chip.cube_clock_mhz, device.others) == (rated, others)


def rated_at(clock: int) -> npu_sim.Profile:
    """An Ascend910B1 whose cores are rated at this clock in MHz."""
    profile = npu_sim.load_profile("atlas_a2", "Ascend910B1")
    clocks = {"vector_clock_mhz": clock, "cube_clock_mhz": clock}
    chip = profile.chip.model_copy(update=clocks)
    socs = {**profile.product.socs, profile.soc: chip}
    return profile.model_copy(update={"product": profile.product.model_copy(update={"socs": socs})})


def test_of_two_clocks_the_nearer_is_chosen_not_the_lower(monkeypatch: pytest.MonkeyPatch):
    slower, exact = rated_at(1795), rated_at(1800)
    monkeypatch.setattr(measured_calls, "shipped_products", lambda: ["one"])
    monkeypatch.setattr(measured_calls, "all_socs", lambda _: [slower, exact])
    launch = MeasuredLaunch(1, "Mul", "Mul", 1.0, block_dim=48, counters=(1800 * 48.0, 1.0))
    assert measured_calls.find_device([launch], None).profile is exact


def test_a_launch_with_one_expert_a_token_has_a_call():
    rows, indices = TensorSpec((512, 1024), "bfloat16"), TensorSpec((512,), "int32")
    launch = MeasuredLaunch(
        2, "MoeTokenPermuteGrad", "", 10.0, inputs=(rows, indices), outputs=(rows,)
    )
    calls, refusal = possible_calls(
        load_operator("moe_token_permute_grad"), launch, npu_sim.load_profile("atlas_a2"), None
    )
    assert refusal is None
    assert {call.arguments["num_topk"] for call in calls} == {1}


@pytest.mark.parametrize(
    ("casts", "dtypes"),
    [
        ([], {"float32"}),
        ([("bfloat16", 8192)], {"float32", "bfloat16"}),
        ([("bfloat16", 8193)], {"float32"}),
        ([None], {"float32", "float16", "bfloat16"}),
    ],
    ids=["no cast", "a cast", "a cast of another size", "a cast without tensors"],
)
def test_calls_are_tried_with_the_dtypes_that_casts_of_the_profile_convert(casts, dtypes):
    made = [
        MeasuredLaunch(1, "Cast", "", 1.0)
        if cast is None
        else MeasuredLaunch(
            1,
            "Cast",
            "",
            1.0,
            inputs=(TensorSpec((cast[1],), cast[0]),),
            outputs=(TensorSpec((cast[1],), "float32"),),
        )
        for cast in casts
    ]
    grad, indices = TensorSpec((16, 512), "float32"), TensorSpec((16,), "int32")
    launch = MeasuredLaunch(
        2,
        "EmbeddingDenseGradV2",
        "",
        10.0,
        inputs=(grad, indices, indices),
        outputs=(TensorSpec((90, 512), "float32"),),
    )
    operator, profile = load_operator("embedding_dense_backward"), npu_sim.load_profile("atlas_a2")
    calls, _ = possible_calls(operator, launch, profile, measured_casts(made))
    assert {TensorSpec.parse(call.plan.arguments["grad"]).dtype for call in calls} == dtypes


FASTER = Row("SwiGlu", 3.0, 40, "4096,6144", "DT_BF16", "4096,3072", "DT_BF16")


def test_a_launch_that_is_faster_than_any_can_be_is_named_with_the_possible_reasons(tmp_path):
    slower = FASTER._replace(duration_us=60.0)
    path = write_csv(tmp_path / "kernel_details.csv", [FASTER, slower, slower])
    answer = npu_sim.read_profile(path, soc="Ascend910B3")
    assert answer.faster_than_bound == 1
    assert answer.as_dict()["faster_than_bound"] == 1
    assert [group.faster_than_bound for group in answer.groups] == [1]
    head, *lines = " ".join(str(answer).split()).split("faster than the bound ")
    assert "1" in head.split("; ")[1]
    (line,) = lines[1:] if lines[0].startswith("SoC") else lines
    assert line.startswith("SwiGlu 3.00 us against 26.8 us")
    for reason in ("the SoC is another one", "other times or shapes", "the bound is wrong"):
        assert reason in line
    assert document_of(answer).tone == "bad"


def test_a_profile_within_its_bounds_says_nothing_of_them(tmp_path):
    path = write_csv(tmp_path / "kernel_details.csv", [FASTER._replace(duration_us=60.0)])
    answer = npu_sim.read_profile(path, soc="Ascend910B3")
    assert answer.faster_than_bound == 0
    assert "faster than the bound" not in str(answer)
    assert document_of(answer).tone == "good"


def test_a_profile_of_many_shapes_reports_its_progress(tmp_path):
    rows = [
        FASTER._replace(inputs=f"{size},6144", outputs=f"{size},3072", duration_us=300.0)
        for size in range(8, 16)
    ]
    reported = []
    path = write_csv(tmp_path / "kernel_details.csv", rows)
    npu_sim.read_profile(path, progress=lambda *stage: reported.append(stage))
    assert {stage for stage, _ in reported} == {"finding calls", "bounds and estimates"}
    assert all(0 <= fraction < 1 for _, fraction in reported)
    assert len(reported) >= 16


def test_releases_with_the_same_rules_for_the_kernels_of_a_file_are_planned_once(
    tmp_path, monkeypatch
):
    path = write_csv(tmp_path / "kernel_details.csv", [FASTER._replace(duration_us=60.0)])
    planned = []
    find = measured_profile.possible_calls
    monkeypatch.setattr(
        measured_profile,
        "possible_calls",
        lambda operator, launch, profile, casts: (
            planned.append(profile.release) or find(operator, launch, profile, casts)
        ),
    )
    answer = npu_sim.read_profile(path, soc="Ascend910B3")
    switches = {
        tuple(answer.device.profile.with_release(name).release_switches("swi_glu").items())
        for name in release_names()
    }
    assert len(planned) == len(switches) < len(release_names())
    assert answer.release == default_release()


def without_times(folder: Path, name: str) -> Path:
    """Write a profile of five launches, the second and third of which have no time."""
    rows = (GRAD, GRAD, GRAD, OTHER, OTHER)
    if name.endswith(".csv"):
        path = write_csv(folder / name, rows)
        head, *lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        lines[1:3] = [line.replace(",95.0,", ",N/A,") for line in lines[1:3]]
        path.write_text("".join([head, *lines]), encoding="utf-8")
    else:
        path = write_database(folder / name, rows)
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("DELETE FROM TASK WHERE globalTaskId IN (1, 2)")
    return path


@pytest.mark.parametrize("name", ["kernel_details.csv", "profile.db"])
def test_launches_without_a_time_are_counted_and_left_out(tmp_path: Path, name: str):
    path = without_times(tmp_path, name)
    answer = npu_sim.read_profile(path, soc="Ascend910B3")
    assert (len(answer.launches), answer.untimed, answer.as_dict()["untimed"]) == (3, 2, 2)
    (group,) = answer.groups
    assert (group.times, answer.faster_than_bound) == ([95.0], 0)
    assert "left out 2 launches without a recorded time" in " ".join(str(answer).split())
    comparison = npu_sim.compare_profiles(path, path)
    assert (comparison.untimed_before, comparison.untimed) == (2, 2)
    assert "left out before 2 launches" in " ".join(str(comparison).split())


def test_a_profile_without_times_is_refused(tmp_path: Path):
    path = write_database(tmp_path / "profile.db", ROWS)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM TASK")
    with pytest.raises(npu_sim.UsageError, match="no launch of a kernel has a time"):
        npu_sim.read_profile(path)

"""Effects of a release on plans and results; tests/tiling compares planners with golden data."""

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.cores import release_names
from npu_sim.plans.answers import Evidence
from npu_sim.status import AclnnError
from npu_sim.studies.determinism import study_determinism
from tests.reference import embedding_dense_backward as reference
from tests.studies import calls

A2_CORES = 48
EMBEDDING, NORM, NORM_GRAD = "embedding_dense_backward", "rms_norm", "rms_norm_grad"
CONV, CROSS_ENTROPY, PERMUTE_GRAD = (
    "conv_tbc_backward",
    "cross_entropy_loss_grad",
    "moe_token_permute_grad",
)
A5, ROTATION = "ascend_950", "rotary_position_embedding_grad"
ROTATED = dict.fromkeys(("cos", "sin"), "1x100x1x128:bf16") | {"dy": "2x100x40x128:bf16"}
WARNED = {
    "small_dim_offset_wraps": (
        EMBEDDING,
        {"grad": "64x512:fp32", "indices": "64:int32", "num_weights": 8388609},
        {"8.3", "8.5", "9.0"},
    ),
    "dgamma_merge_overrun": (
        NORM_GRAD,
        {"dy": "48x512:bf16", "gamma": "512:bf16", "deterministic": True},
        {"8.5", "9.0"},
    ),
    "element_offset_wraps, key 0": (
        NORM,
        {"x": "1048576x4097:fp32", "gamma": "4097:fp32"},
        {"8.3", "8.5", "9.0"},
    ),
    "element_offset_wraps, key 1": (
        NORM,
        {"x": "1048576x20000:fp32", "gamma": "20000:fp32"},
        set(),
    ),
    "element_offset_wraps, key 2": (
        NORM,
        {"x": "8388608x513:fp32", "gamma": "513:fp32"},
        {"8.3", "8.5", "9.0", "9.1"},
    ),
    "dcos_dsin_overwritten": (
        ROTATION,
        {**ROTATED, "x": "2x100x40x128:bf16", "mode": 1},
        {"8.3", "8.5", "9.0", "9.1", "9.1.1"},
    ),
    "release_inferred": (ROTATION, {**ROTATED, "x": "2x100x40x128:bf16", "mode": 1}, {"9.2"}),
    "scatter_reuses_row_buffer": (
        "moe_token_permute",
        {"tokens": "832x2048:bf16", "indices": "832x6:int32", "product": A5},
        {"9.1", "9.1.1"},
    ),
    "last_column_left_out_of_mean": (
        NORM_GRAD,
        {"dy": "64x8193:bf16", "gamma": "8193:bf16", "product": A5},
        {"9.1", "9.1.1"},
    ),
    "dgamma_is_nan": (
        NORM_GRAD,
        {"dy": "0x64:bf16", "gamma": "64:bf16", "product": A5},
        {"9.1", "9.1.1"},
    ),
    "host_divides_by_zero": (
        EMBEDDING,
        {"grad": "64x512:fp32", "indices": "64:int32", "num_weights": 0, "product": A5},
        {"9.1", "9.1.1"},
    ),
    "deterministic_planner_unpublished": (
        CONV,
        {"input": "12x3x64:fp16", "weight": "3x64x32:fp16", "deterministic": True},
        {"8.3", "8.5", "9.0"},
    ),
    "matrix_shape_unknown": (
        CONV,
        {"input": "5x2x64:fp16", "weight": "5x64x32:fp16", "product": "atlas_train"},
        {"8.3"},
    ),
    "release_assumed": (
        PERMUTE_GRAD,
        {"permuted_output_grad": "8x64:fp32", "sorted_indices": "8:int32", "num_topk": 2},
        {"8.3"},
    ),
}


def codes(plan):
    return {caveat.code for caveat in plan.caveats}


@pytest.mark.parametrize("name", WARNED)
def test_a_plan_warns_at_the_releases_that_are_concerned(name):
    operator, call, releases = WARNED[name]
    takes = [
        one
        for one in release_names()
        if (name, one) != ("matrix_shape_unknown", "8.5")  # refused there, see below
        and not (call.get("product") == A5 and one in ("8.3", "8.5", "9.0"))
    ]
    plans = {release: npu_sim.plan(operator, release=release, **call) for release in takes}
    assert {
        release for release, plan in plans.items() if name.partition(",")[0] in codes(plan)
    } == releases


@pytest.mark.parametrize(
    ("operator", "call"),
    [
        (EMBEDDING, {"grad": "64x512:fp32", "indices": "64:int32", "num_weights": 8388608}),
        (EMBEDDING, {"grad": "64x513:fp32", "indices": "64:int32", "num_weights": 8388609}),
        (NORM_GRAD, {"dy": "6x512:bf16", "gamma": "512:bf16", "deterministic": True}),
        (NORM_GRAD, {"dy": "48x512:bf16", "gamma": "512:bf16"}),
        (NORM_GRAD, {"dy": "48x6081:bf16", "gamma": "6081:bf16", "deterministic": True}),
        (
            NORM_GRAD,
            {
                "dy": "8x512:fp16",
                "gamma": "512:fp16",
                "deterministic": True,
                "product": "atlas_inference",
            },
        ),
        (NORM, {"x": "1048576x4096:fp32", "gamma": "4096:fp32"}),
    ],
)
def test_a_call_that_is_not_concerned_is_not_warned_of(operator, call):
    concerned = {"small_dim_offset_wraps", "dgamma_merge_overrun", "element_offset_wraps"}
    for release in release_names():
        assert not codes(npu_sim.plan(operator, release=release, **call)) & concerned


def test_what_the_merge_returns_beyond_its_queue_is_a_model():
    call = {"dy": "48x512:bf16", "gamma": "512:bf16", "deterministic": True}
    evidence = [
        npu_sim.plan(NORM_GRAD, release=release, **call).evidence for release in release_names()
    ]
    assert evidence == [Evidence.EXACT, *2 * [Evidence.MODEL], *3 * [Evidence.EXACT]]


def test_who_merges_dgamma_changes_the_words_and_no_bit():
    call = calls.rms_norm(100, 130, deterministic=True)
    ran = {release: npu_sim.run(NORM_GRAD, release=release, **call) for release in release_names()}
    said = {release: "core 0 adds" in one.plan.order[0].reason for release, one in ran.items()}
    assert said == {one: one == "8.3" for one in release_names()}
    assert len({one.outputs["dgamma"].tobytes() for one in ran.values()}) == 1


def test_a_plan_says_what_it_rests_on_at_a_release_without_a_published_source():
    call = {"permuted_output_grad": "8x64:fp32", "sorted_indices": "8:int32", "num_topk": 2}
    plans = {
        release: npu_sim.plan(PERMUTE_GRAD, release=release, **call) for release in release_names()
    }
    assert [plan.evidence for plan in plans.values()] == [Evidence.MODEL, *5 * [Evidence.EXACT]]
    assert "16 MiB is taken" in plans["8.3"].caveats[-1].message
    assert {plan.workspace.total_bytes for plan in plans.values()} == {16777216}
    nothing = npu_sim.plan(
        PERMUTE_GRAD,
        permuted_output_grad="0x64:fp32",
        sorted_indices="0:int32",
        num_topk=2,
        release="8.3",
    )
    assert not nothing.caveats


@pytest.mark.parametrize(
    ("release", "kernel", "deterministic", "key"),
    [
        ("8.3", "fp32", False, 0),
        ("8.3", "fp32", True, 10),
        ("8.5", "16-bit", False, 0),
        ("8.5", "16-bit", True, 0),
    ],
)
def test_8_3_always_casts_16_bit_gradients(release, kernel, deterministic, key):
    call = {"grad": "4096x1024:bf16", "indices": "4096:int32", "num_weights": 151936}
    plan = npu_sim.plan(EMBEDDING, release=release, deterministic=deterministic, **call)
    decisions = {one.name: one for one in plan.decisions}
    assert plan.tiling_key == key
    assert decisions["cast to fp32"].outcome is (kernel == "fp32")
    assert decisions["deterministic kernel"].values["kernel sees"] == kernel


def test_the_counters_of_8_3_take_twice_the_workspace():
    call = {
        "grad": "600x600:fp32",
        "indices": "600:int32",
        "num_weights": 1001,
        "scale_grad_by_freq": True,
    }
    sizes = {
        release: {
            part.name: part.bytes
            for part in npu_sim.plan(EMBEDDING, release=release, **call).workspace.parts
        }["frequency counters"]
        for release in release_names()
    }
    assert sizes == {"8.3": 8 * 1004, **dict.fromkeys(release_names()[1:], 4 * 1008)}


@pytest.mark.parametrize(("release", "granule"), [("8.3", 8), ("8.5", 16), ("9.1", 16)])
def test_rows_in_the_unified_buffer_follow_the_release(release, granule):
    plan = npu_sim.plan(
        EMBEDDING, grad="600x601:fp32", indices="600:int32", num_weights=1000, release=release
    )
    rows = {one.name: one.bytes for one in plan.memories[0].allocations}
    assert rows["gradient row"] == 4 * -(-601 // granule) * granule


@pytest.mark.parametrize("release", release_names())
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("deterministic", [False, True])
def test_embedding_results_are_those_of_the_reference_at_every_release(
    release, dtype, deterministic
):
    rng = np.random.default_rng(5)
    grad, indices = (
        rng.standard_normal((2000, 520)).astype(dtype),
        rng.integers(0, 6, 2000, dtype=np.int32),
    )
    ran = npu_sim.run(
        EMBEDDING,
        grad=grad,
        indices=indices,
        num_weights=7,
        deterministic=deterministic,
        release=release,
    )
    flush_rows = reference.SORTED_FLUSH_ROWS.get(release, reference.SORTED_FLUSH_ROWS["9.1"])
    path = "deterministic" if deterministic else "sorted"
    case = reference.Case(path, reference.even_split(2000, A2_CORES), flush_rows=flush_rows)
    expected, mask = reference.backward(grad, indices, 7, case)
    assert ran.outputs["grad_weight"].tobytes() == expected.tobytes()
    assert np.array_equal(ran.order_dependent["grad_weight"].mask, mask)
    assert f"chunks of {flush_rows} rows" in ran.plan.path or deterministic


def test_the_determinism_study_adds_the_chunks_of_its_release():
    """A chunk is told by its first six rows of grad and how many more there are."""
    call, longest = calls.embedding(2000, 520, 6), {}
    for release in release_names():
        (output,) = study_determinism(EMBEDDING, random_orders=2, release=release, **call).outputs
        said = [step.contribution for step in output.worst.steps_to_lowest]
        longest[release] = max(
            int(one.split(" and ")[1].split()[0]) for one in said if "more" in one
        )
    assert longest == {"8.3": 4, **dict.fromkeys(release_names()[1:], 5)}


@pytest.mark.parametrize(
    ("release", "warns"), [("8.3", True), ("8.5", True), ("9.0", False), ("9.1", False)]
)
def test_a_weight_read_out_of_bounds_is_told_when_it_happens(release, warns):
    call = calls.cross_entropy(30, 20)
    weight = np.ones(20, np.float32)
    ignored = {**call, "target": np.where(np.arange(30) % 3 == 0, -100, call["target"])}

    def codes_of(**call):
        return {
            caveat.code for caveat in npu_sim.run(CROSS_ENTROPY, release=release, **call).caveats
        }

    assert ("weight_read_out_of_bounds" in codes_of(**ignored, weight=weight)) is warns
    assert codes_of(**ignored) == {"negative_label_masked"}
    assert codes_of(**call, weight=weight) == set()
    assert codes_of(**call | {"target": np.zeros(30, np.int64)}, weight=weight, ignore_index=0) == {
        "all_labels_ignored"
    }


def test_the_training_series_takes_a_single_output_step_from_9_0_on():
    call = {"input": "5x2x64:fp16", "weight": "5x64x32:fp16", "product": "atlas_train"}
    with pytest.raises(
        AclnnError, match=r"pad 0 and K = T = 5: refused on .* at release 8.5"
    ) as refused:
        npu_sim.plan(CONV, release="8.5", **call)
    assert (refused.value.status, refused.value.argument) == (161001, "weight")
    assert npu_sim.plan(CONV, release="8.5", **{**call, "product": "atlas_a2"}).path.startswith(
        "batched matrix products"
    )
    assert npu_sim.plan(CONV, release="9.0", **call).kernel

"""Effects of another release on a call: fields of the plan and bits of the result."""

import pytest

import npu_sim
from npu_sim.cores import all_socs, default_release, load_profile, release_names
from npu_sim.operators import plan
from npu_sim.questions.diff import Compared, changed_bits, merged, plan_changes, upgrades

SORTED = {"grad": "4096x1024:fp32", "indices": "4096:int32", "num_weights": 32000}


def planned(release: str, **changes: object) -> npu_sim.Plan:
    return plan("embedding_dense_backward", release=release, **{**SORTED, **changes})


def test_a_plan_does_not_differ_from_itself():
    assert plan_changes(planned("9.1"), planned("9.1")) == ()


def test_a_change_names_the_fact_before_and_after():
    changes = {
        change.fact: change
        for change in plan_changes(planned("9.1"), planned("9.1", deterministic=True))
    }
    assert changes["tiling_key"].before == "0"
    assert changes["tiling_key"].after == "10"


def test_a_call_that_is_refused_after_an_upgrade_has_a_reason():
    refusal = npu_sim.AclnnError(npu_sim.Status(161002), "x", "x = 1: too small", "x >= 2")
    (outcome, *_) = plan_changes(planned("9.1"), refusal)
    assert (outcome.before, outcome.after) == ("runs", "refused 161002: x = 1: too small")


def test_more_rows_per_flush_change_bits_of_the_atomic_path_only():
    atomic = changed_bits(planned("8.3"), planned("8.5"))
    fixed = changed_bits(planned("8.3", deterministic=True), planned("8.5", deterministic=True))
    assert len(atomic) == 1
    assert fixed == ()


@pytest.mark.parametrize(
    ("dtype", "rows", "changed"), [("bf16", 60000, 2), ("bf16", 600, 1), ("fp32", 60000, 1)]
)
def test_16_bit_gradients_that_are_no_longer_cast_change_bits(dtype, rows, changed):
    call = {"grad": f"{rows}x1024:{dtype}", "indices": f"{rows}:int32"}
    assert len(changed_bits(planned("8.3", **call), planned("8.5", **call))) == changed


def test_releases_without_a_change_are_omitted():
    profiles = [load_profile("atlas_a2", release=release) for release in release_names()]
    steps = upgrades([(profile, planned(profile.release)) for profile in profiles])
    assert ("8.3", "8.5") in {(step.before, step.after) for step in steps}
    assert all(step.changes or step.bits for step in steps)


def test_compare_joins_releases_with_equal_plans():
    comparison = npu_sim.diff(
        "moe_token_permute_grad", product="atlas_a2", soc="Ascend910B1", release="all", **MOE
    )
    assert sorted(release for row in comparison.rows for release in row.releases) == sorted(
        release_names()
    )
    assert len(comparison.rows) < len(release_names())


MOE = {"permuted_output_grad": "64x64:bf16", "sorted_indices": "64:int32", "num_topk": 4}


def test_compare_uses_the_default_release():
    comparison = npu_sim.diff("embedding_dense_backward", product="atlas_a2", **SORTED)
    assert {row.releases for row in comparison.rows} == {(default_release(),)}
    assert comparison.upgrades == ()


@pytest.mark.parametrize("release", ["8.2", "8.3,8.4"])
def test_an_unknown_release_is_refused(release: str):
    with pytest.raises(npu_sim.UsageError, match=r"no such release|older than every release"):
        npu_sim.diff("embedding_dense_backward", release=release, **SORTED)


@pytest.mark.parametrize(("second", "rows"), [("at most 8", 1), ("at most 9", 2)])
def test_refusals_are_one_row_only_with_the_same_message(second, rows):
    soc_rows = [
        Compared(
            profile=profile,
            socs=(profile.soc,),
            releases=(profile.release,),
            plan=None,
            refusal=npu_sim.AclnnError(npu_sim.Status(161002), "dim", message),
        )
        for profile, message in zip(all_socs("atlas_a2")[:2], ("at most 8", second), strict=True)
    ]
    found = merged(soc_rows, "socs")
    assert [row.refusal.message for row in found] == ["at most 8", "at most 9"][:rows]
    assert sum((row.socs for row in found), ()) == ("Ascend910B1", "Ascend910B2")


def test_a_call_that_is_modelled_at_no_release_changes_nothing():
    call = {"input": "16x2x8:fp16", "weight": "1x8x8:fp16", "bias": "8:fp16", "pad": 0}
    comparison = npu_sim.diff("conv_tbc_backward", product="ascend_950", release="all", **call)
    assert {row.outcome.outcome for row in comparison.rows} == {"not_modelled"}
    assert comparison.upgrades == ()


A5 = "ascend_950"
CHANGED = {
    "offsets of merged rows on A2": (
        "rms_norm",
        {"x": "8388608x513:fp32", "gamma": "513:fp32", "product": "atlas_a2"},
        {("9.1", "9.1.1"): ("begin at 2^32 elements",)},
    ),
    "those rows on 950": (
        "rms_norm",
        {"x": "8388608x513:fp32", "gamma": "513:fp32", "product": A5},
        {},
    ),
    "one fused step of dx": (
        "rms_norm_grad",
        {"dy": "64x4096:bf16", "gamma": "4096:bf16", "product": A5},
        {("9.1.1", "9.2"): ("last bits of dx",)},
    ),
    "the last column of 2^k + 1": (
        "rms_norm_grad",
        {"dy": "64x8193:bf16", "gamma": "8193:bf16", "product": A5},
        {("9.1.1", "9.2"): ("last bits of dx", "dx of rows of 2^k + 1 columns")},
    ),
    "dx on A2": (
        "rms_norm_grad",
        {"dy": "64x8193:bf16", "gamma": "8193:bf16", "product": "atlas_a2"},
        {},
    ),
    "sums of the rotation's gradient": (
        "rotary_position_embedding_grad",
        {
            "dy": "2x100x40x128:bf16",
            "x": "2x100x40x128:bf16",
            "cos": "1x100x1x128:bf16",
            "sin": "1x100x1x128:bf16",
            "mode": 1,
            "product": "atlas_a2",
        },
        {("9.1.1", "9.2"): ("elements of dcos and dsin",)},
    ),
    "scattered rows": (
        "moe_token_permute",
        {"tokens": "832x2048:bf16", "indices": "832x6:int32", "product": A5},
        {("9.1.1", "9.2"): ("rows of permuted_tokens",)},
    ),
    "no weights": (
        "embedding_dense_backward",
        {"grad": "64x512:fp32", "indices": "64:int32", "num_weights": 0, "product": A5},
        {("9.1.1", "9.2"): ()},
    ),
}


@pytest.mark.parametrize("name", CHANGED)
def test_an_upgrade_from_9_1_on_says_which_bits_it_changes(name):
    operator, call, expected = CHANGED[name]
    comparison = npu_sim.diff(operator, release="9.1,9.1.1,9.2", **call)
    steps = {(step.before, step.after): step.bits for step in comparison.upgrades}
    assert steps.keys() == expected.keys()
    for step, parts in expected.items():
        assert len(steps[step]) == len(parts)
        assert all(part in bits for part, bits in zip(parts, steps[step], strict=True))


@pytest.mark.parametrize("name", [name for name, (*_, steps) in CHANGED.items() if any(steps)])
def test_what_9_2_changes_is_inferred_and_its_plan_a_model(name):
    operator, call, steps = CHANGED[name]
    inferred = {
        release: npu_sim.plan(operator, release=release, **call) for release in ("9.1.1", "9.2")
    }
    codes = [{one.code for one in plan.caveats} for plan in inferred.values()]
    changes_at_9_2 = ("9.1.1", "9.2") in steps
    assert ["release_inferred" in one for one in codes] == [False, changes_at_9_2]
    assert (inferred["9.2"].evidence == "model") is changes_at_9_2


def test_a_product_that_begins_at_a_release_is_an_upgrade_of_its_outcome():
    comparison = npu_sim.diff(
        "rms_norm", x="8x512:fp32", gamma="512:fp32", product="ascend_350", release="all"
    )
    (step,) = comparison.upgrades
    (change,) = step.changes
    assert (step.before, step.after, change.fact, change.after) == (
        "9.1.1",
        "9.2",
        "outcome",
        "runs",
    )

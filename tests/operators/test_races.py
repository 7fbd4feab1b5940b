"""Outputs that a known race can overwrite: plan, run, study and verify agree on them."""

import numpy as np
import pytest

import npu_sim
from npu_sim.numbers.formats import numpy_dtype
from tests.cases import every

ROTATION = "rotary_position_embedding_grad"
SUMS = "dcos_dsin_overwritten"
FORMS = {
    "BSND": ((2, 100, 40), (1, 100, 1)),
    "BNSD": ((2, 40, 100), (1, 1, 100)),
    "SBND": ((100, 2, 40), (100, 1, 1)),
}
"""The first three axes of dy and cos of every layout of interleave, with 100 positions."""
KEYS = [
    (mode, dtype, form, columns, with_x)
    for mode in (0, 1)
    for dtype in ("float32", "float16", "bfloat16")
    for form in FORMS
    for columns in (8, 128)
    for with_x in (False, True)
]


def rotation(mode, dtype, form, columns, with_x):
    """Arguments of a gradient of the rotation; 128 columns do not fit as whole positions."""
    random, (dy, cos) = np.random.default_rng(0), FORMS[form]
    shapes = {"dy": dy, "cos": cos, "sin": cos, **({"x": dy} if with_x else {})}
    return {
        **{
            name: random.standard_normal((*axes, columns)).astype(numpy_dtype(dtype))
            for name, axes in shapes.items()
        },
        "mode": mode,
    }


def races(plan):
    return {order.output: order.race for order in plan.order if order.state == "race"}


@pytest.mark.parametrize("key", KEYS)
def test_plan_run_study_and_verify_agree_on_every_key(key):
    call = rotation(*key)
    plan = npu_sim.plan(ROTATION, **call)
    expected = dict.fromkeys(("dcos", "dsin"), SUMS) if plan.tiling_key in (21100, 21110) else {}
    assert races(plan) == expected
    assert (SUMS in {one.code for one in plan.caveats}) == bool(expected)
    result = npu_sim.run(ROTATION, **call)
    assert {
        name: mask.race for name, mask in result.order_dependent.items() if mask.count
    } == expected
    study = npu_sim.study.determinism(ROTATION, **call)
    assert {one.output: one.race for one in study.outputs if one.order_dependent} == expected
    assert all((one.moved > 0) == (one.output in expected) for one in study.outputs)
    for name in ("dcos", "dsin") if call.get("x") is not None else ():
        verdict = verified(call, result.outputs[name], name)
        assert (verdict.status, verdict.race) == ("equal", expected.get(name, ""))
        overwritten = overwritten_row(result.outputs[name])
        verdict = verified(call, overwritten, name)
        assert verdict.status == ("reachable" if name in expected else "unreachable")


@pytest.mark.parametrize("key", [key for key in KEYS if key[-1] and key[-2] == 128])
def test_the_forward_rotation_has_no_race(key):
    call = rotation(*key)
    forward = {name: call[name] for name in ("x", "cos", "sin", "mode")}
    assert races(npu_sim.plan("rotary_position_embedding", **forward)) == {}
    (study,) = npu_sim.study.determinism("rotary_position_embedding", **forward).outputs
    assert (study.order_dependent, study.race) == (0, "")


def verified(call, output, name):
    device = {"soc": "Ascend910B1", "release": "9.1", "explain": False}
    answer = npu_sim.verify(ROTATION, **call, **device, **{name: output})
    return answer.outputs[name]


def overwritten_row(output, row=0, column=3):
    """The output with the next position's values in a row from a column on."""
    changed = output.copy()
    rows = changed.reshape(-1, output.shape[-1])
    rows[row, column:] = rows[row + 1, column:]
    return changed


def test_both_keys_are_met():
    keys = {npu_sim.plan(ROTATION, **rotation(*key)).tiling_key for key in KEYS}
    assert {21100, 21110, 21120} < keys


def test_verify_names_the_race_and_refuses_other_values():
    call = rotation(1, "bfloat16", "BSND", 128, True)
    dcos = npu_sim.run(ROTATION, **call).outputs["dcos"]
    verdict = verified(call, overwritten_row(dcos), "dcos")
    assert np.count_nonzero(verdict.overwritten) == 125
    assert SUMS in verdict.reason((0, 0, 0, 5))
    assert "the next position of core 0" in verdict.reason((0, 0, 0, 5))
    assert verified(call, overwritten_row(dcos, 2), "dcos").status == "unreachable", (
        "last of a core"
    )
    other = dcos.copy()
    other[0, 0, 0, 5] = 77.0
    verdict = verified(call, other, "dcos")
    assert verdict.status_of((0, 0, 0, 5)) == "unreachable"
    assert SUMS in verdict.reason((0, 0, 0, 5))


def test_one_position_a_core_leaves_nothing_to_overwrite():
    call = rotation(1, "bfloat16", "BSND", 128, True)
    short = {name: call[name][:, :40] for name in ("dy", "x", "cos", "sin")}
    plan = npu_sim.plan(ROTATION, **short, mode=1)
    assert (plan.tiling_key, races(plan)) == (21110, {})


def test_rows_scattered_on_ascend_950_can_hold_the_row_of_two_rounds_later():
    random = np.random.default_rng(0)
    call = {
        "tokens": random.standard_normal((4096, 1024), np.float32).astype(numpy_dtype("bfloat16")),
        "indices": random.integers(0, 8, (4096, 2)).astype(np.int32),
        "product": "ascend_950",
        "release": "9.1",
    }
    code = "scatter_reuses_row_buffer"
    plan = npu_sim.plan("moe_token_permute", **call)
    assert races(plan) == {"permuted_tokens": code}
    result = npu_sim.run("moe_token_permute", **call)
    assert result.order_dependent["permuted_tokens"].race == code
    rows, moves = result.outputs["permuted_tokens"], plan.tiling["gatherOutComputeParamsOp"]
    at_once, of_core = moves["perLoopCols"], moves["perCoreRows"]
    assert of_core > 2 * at_once
    device = {**call, "soc": plan.soc, "explain": False}
    for row, later, status in (
        (1, 1 + 2 * at_once, "reachable"),
        (1, 1 + at_once, "unreachable"),
        (of_core - 1, of_core - 1 + 2 * at_once, "unreachable"),
    ):
        measured = rows.copy()
        measured[row, 512:] = rows[later, 512:]
        answer = npu_sim.verify("moe_token_permute", **device, permuted_tokens=measured)
        assert answer.status == status
    (permuted, places) = npu_sim.study.determinism("moe_token_permute", **call).outputs
    assert (permuted.race, places.race) == (code, "")
    few = {**call, "tokens": call["tokens"][:64], "indices": call["indices"][:64]}
    assert races(npu_sim.plan("moe_token_permute", **few)) == {}


ROUTED = "moe_token_permute"
BUFFER = "scatter_reuses_row_buffer"
SORTED_KEYS = {11001, 11002, 10000000, 11000000}
SIZES = ((64, 128, 2), (832, 2048, 6), (2048, 1024, 4), (4096, 16, 2), (300, 20000, 1))
"""Tokens, columns and experts of a token: one core sorts or several, rows scattered or gathered."""
ROUTED_KEYS = [
    (dtype, indices, sizes, release)
    for dtype in ("float32", "bfloat16", "int8")
    for indices in ("int32", "int64")
    for sizes in SIZES
    for release in ("9.1", "9.2")
]


def routed(dtype, indices, sizes, release):
    """Arguments of a permutation on Ascend 950."""
    random, (tokens, columns, experts) = np.random.default_rng(0), sizes
    values = random.integers(-100, 100, (tokens, columns))
    return {
        "tokens": values.astype(numpy_dtype(dtype)),
        "indices": random.integers(0, 8, (tokens, experts)).astype(indices),
        "product": "ascend_950",
        "release": release,
    }


@pytest.mark.parametrize(("dtype", "indices", "sizes", "release"), every(7, ROUTED_KEYS))
def test_plan_run_study_and_verify_agree_on_every_key_of_the_permutation(
    dtype, indices, sizes, release
):
    call = routed(dtype, indices, sizes, release)
    plan = npu_sim.plan(ROUTED, **call)
    codes = {one.code for one in plan.caveats}
    expected = {"permuted_tokens": BUFFER} if BUFFER in codes else {}
    assert races(plan) == expected
    assert not expected or (call["release"], plan.tiling_key) in {("9.1", 11001), ("9.1", 11002)}
    result = npu_sim.run(ROUTED, **call)
    masks = result.order_dependent
    assert {name: mask.race for name, mask in masks.items() if mask.count} == expected
    study = npu_sim.study.determinism(ROUTED, **call)
    assert {one.output: one.race for one in study.outputs if one.order_dependent} == expected
    rows = result.outputs["permuted_tokens"]
    other = int(np.flatnonzero((rows != rows[1]).any(axis=1) & (np.arange(len(rows)) > 1))[0])
    buffered = plan.tiling["gatherOutComputeParamsOp"]["perLoopCols"]
    is_open = codes & {"sort_beyond_local_memory", "release_inferred"}
    impossible = "undecided" if is_open else "unreachable"
    cases = [(rows, "equal"), (with_row(rows, 1, other), impossible)]
    if expected:
        cases.append((with_row(rows, 1, 1 + 2 * buffered), "reachable"))
    for written, status in cases:
        answer = npu_sim.verify(
            ROUTED, **call, soc=plan.soc, explain=False, permuted_tokens=written
        )
        assert answer.status == status


def with_row(rows, row, later):
    """The rows, the second half of one replaced by that of another."""
    changed = rows.copy()
    changed[row, rows.shape[1] // 2 :] = rows[later, rows.shape[1] // 2 :]
    return changed


def test_every_sorting_key_of_the_permutation_is_met_and_two_of_them_race():
    plans = [npu_sim.plan(ROUTED, **routed(*key)) for key in ROUTED_KEYS if key[-1] == "9.1"]
    assert {plan.tiling_key for plan in plans} == SORTED_KEYS
    assert {plan.tiling_key for plan in plans if races(plan)} == {11001, 11002}


def test_the_key_that_sorts_nothing_has_no_race():
    call = {
        "tokens": np.zeros((64, 0), np.int8),
        "indices": np.zeros((64, 2), np.int32),
        "product": "ascend_950",
        "release": "9.1",
    }
    plan, result = npu_sim.plan(ROUTED, **call), npu_sim.run(ROUTED, **call)
    assert (plan.tiling_key, races(plan)) == (3000000, {})
    assert not any(mask.count for mask in result.order_dependent.values())
    study = npu_sim.study.determinism(ROUTED, **call)
    assert not any(one.order_dependent or one.race for one in study.outputs)
    places = result.outputs["sorted_indices"]
    answer = npu_sim.verify(ROUTED, **call, soc=plan.soc, explain=False, sorted_indices=places)
    assert answer.status == "equal"


def test_rows_that_several_cores_write_have_a_determinism_study():
    random = np.random.default_rng(0)
    study = npu_sim.study.determinism(
        "moe_token_unpermute_grad",
        permuted_tokens=random.standard_normal((128, 32), np.float32),
        unpermuted_tokens_grad=random.standard_normal((64, 32), np.float32),
        sorted_indices=(random.permutation(128) // 2).astype(np.int32),
        probs=random.random((64, 2), np.float32),
    )
    (rows, probs) = study.outputs
    assert (rows.moved > 0, rows.race, probs.moved) == (True, "", 0)

"""Verdicts on results of the simulator itself, changed in known ways."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import npu_sim
from npu_sim import registry
from npu_sim.numbers.formats import numpy_dtype
from npu_sim.plans.model import Caveat
from tests.cases import every
from tests.studies import calls
from tests.studies.test_determinism import NON_DETERMINISTIC

OWN_OPERATOR = (
    Path(__file__).parents[2] / "examples" / "own_operator" / "scale_rows" / "__init__.py"
)
BFLOAT16 = numpy_dtype("bfloat16")
FIXED = {"deterministic": False, "release": "9.1"}
TIMED = {
    **NON_DETERMINISTIC,
    "bf16": ("embedding_dense_backward", "grad_weight", calls.embedding(800, 40, 30, "bf16")),
    "dgamma, bf16": ("rms_norm_grad", "dgamma", calls.rms_norm(100, 200, "bf16")),
}


def devices(call):
    """The call with a SoC, so that one combination is tried."""
    product = call.get("product")
    return {**call, **FIXED, "soc": "Ascend910A" if product == "atlas_train" else "Ascend910B3"}


def verified(operator, call, **outputs):
    return npu_sim.verify(operator, **call, **outputs)


@pytest.mark.parametrize("path", every(4, TIMED))
def test_random_orders_are_reachable(path):
    operator, output, call = TIMED[path]
    call = devices(call)
    measured = npu_sim.run(operator, core_order="random", seed=0, **call).outputs[output]
    verdict = verified(operator, call, **{output: measured}).outputs[output]
    assert verdict.status in ("equal", "reachable"), verdict.reason(verdict.worst[0])


@pytest.mark.long
@pytest.mark.parametrize("path", TIMED)
def test_hundreds_of_random_orders_are_never_unreachable(path):
    operator, output, call = TIMED[path]
    call = devices(call)
    for seed in range(-(-300 // len(TIMED))):
        measured = npu_sim.run(operator, core_order="random", seed=seed, **call).outputs[output]
        answer = verified(operator, call, explain=False, budget=1 << 10, **{output: measured})
        assert answer.status != "unreachable"


@pytest.mark.long
def test_at_most_ten_contributions_are_decided_in_hundreds_of_random_orders():
    random = np.random.default_rng(0)
    indices = random.permutation(np.repeat(np.arange(40), random.integers(1, 11, 40)))
    grad = random.standard_normal((indices.size, 4)).astype(np.float32)
    call = {"grad": grad, "indices": indices.astype(np.int32), "num_weights": 40, **devices({})}
    for seed in range(300):
        result = npu_sim.run("embedding_dense_backward", core_order="random", seed=seed, **call)
        answer = verified("embedding_dense_backward", call, **result.outputs)
        assert answer.status in ("equal", "reachable")


@pytest.mark.parametrize("order", ["sequential", "reverse", "round_robin"])
@pytest.mark.parametrize("path", TIMED)
def test_named_orders_are_equal(path, order):
    operator, output, call = TIMED[path]
    call = devices(call)
    measured = npu_sim.run(operator, core_order=order, **call).outputs[output]
    verdict = verified(operator, call, **{output: measured}).outputs[output]
    assert verdict.status == "equal"
    assert np.array_equal(
        npu_sim.run(operator, core_order=verdict.order, **call).outputs[output], measured
    )


@pytest.mark.parametrize("path", every(len(TIMED), TIMED))
def test_a_witness_gives_the_measured_bits(path):
    operator, output, call = TIMED[path]
    call = devices(call)
    result = npu_sim.run(operator, core_order="random", seed=5, **call)
    verdict = verified(operator, call, **{output: result.outputs[output]}).outputs[output]
    places = np.argwhere(verdict.order_dependent)[:3]
    assert len(places)
    for place in places:
        steps = verdict.witness(place)
        total = np.float32(0)
        for step in steps:
            total = np.float32(total + np.float32(step.value))
            assert total == step.sum_after
        if not call.get("scale_grad_by_freq"):
            assert total.astype(verdict.given.dtype) == verdict.given[tuple(place)]
        assert "order" in verdict.reason(place)


def test_one_flipped_bit_of_an_element_with_one_order_is_unreachable():
    call = devices(calls.embedding(800, 40, 3000))
    result = npu_sim.run("embedding_dense_backward", **call)
    fixed = np.flatnonzero(~result.order_dependent["grad_weight"].mask)
    measured = result.outputs["grad_weight"].copy()
    row = int(fixed[np.abs(measured[fixed]).sum(axis=1).argmax()])
    measured.view(np.int32)[row, 7] ^= 1
    verdict = verified("embedding_dense_backward", call, grad_weight=measured)
    output = verdict.outputs["grad_weight"]
    assert verdict.status == output.status == output.status_of((row, 7)) == "unreachable"
    assert output.counts["unreachable"] == 1
    assert output.worst[0] == (row, 7)
    assert "1 ulp" in output.reason((row, 7))
    assert output.witness((row, 7)) == ()


def test_a_row_added_twice_or_missing_is_explained():
    call = devices(calls.embedding(300, 16, 40))
    grad, indices = call["grad"], call["indices"].reshape(-1)
    twice = {**call, "grad": np.insert(grad, 8, grad[7], axis=0)}
    twice["indices"] = np.insert(indices, 8, indices[7])
    missing = {**call, "grad": np.delete(grad, 7, axis=0), "indices": np.delete(indices, 7)}
    for changed, name in ((twice, "row 7 added twice"), (missing, "row 7 missing")):
        measured = npu_sim.run("embedding_dense_backward", **changed).outputs["grad_weight"]
        output = verified("embedding_dense_backward", call, grad_weight=measured).outputs[
            "grad_weight"
        ]
        assert output.status == "unreachable"
        assert name in [one.alternative for one in output.explanations]


def test_dgamma_with_a_row_missing_is_explained():
    call = devices(calls.rms_norm(60, 64))
    without = {name: np.delete(call[name], 11, axis=0) for name in ("dy", "x", "rstd")}
    measured = npu_sim.run("rms_norm_grad", **{**call, **without}).outputs["dgamma"]
    output = verified("rms_norm_grad", call, dgamma=measured).outputs["dgamma"]
    assert output.status == "unreachable"
    assert "row 11 missing" in [one.alternative for one in output.explanations]


def test_fp32_kept_where_bf16_is_rounded_is_explained():
    call = devices(calls.embedding(300, 16, 40, "bf16"))
    wide = {**call, "grad": call["grad"].astype(np.float32)}
    measured = npu_sim.run("embedding_dense_backward", **wide).outputs["grad_weight"]
    output = verified("embedding_dense_backward", call, grad_weight=measured).outputs["grad_weight"]
    assert output.status == "unreachable"
    assert "not rounded" in output.explanations[0].alternative
    assert output.explanations[0].whole


def test_a_16_bit_output_may_be_given_in_fp32():
    call = devices(calls.embedding(300, 16, 40, "bf16"))
    measured = npu_sim.run("embedding_dense_backward", **call).outputs["grad_weight"]
    wide = measured.astype(np.float32)
    assert verified("embedding_dense_backward", call, grad_weight=wide).status == "equal"


def test_rounded_inputs_and_ignored_attributes_are_explained():
    call = devices(calls.embedding(300, 16, 40))
    rounded = {**call, "grad": call["grad"].astype(BFLOAT16).astype(np.float32)}
    measured = npu_sim.run("embedding_dense_backward", **rounded).outputs["grad_weight"]
    output = verified("embedding_dense_backward", call, grad_weight=measured).outputs["grad_weight"]
    assert "inputs rounded to bfloat16 before" in [one.alternative for one in output.explanations]
    measured = npu_sim.run("embedding_dense_backward", **call).outputs["grad_weight"]
    padded = {**call, "padding_idx": int(call["indices"].reshape(-1)[0])}
    output = verified("embedding_dense_backward", padded, grad_weight=measured).outputs[
        "grad_weight"
    ]
    assert output.explanations[0].alternative == "padding_idx ignored"


def test_other_device_is_explained_and_found_when_left_open():
    call = {**calls.rms_norm(130, 200), "deterministic": True}
    measured = npu_sim.run("rms_norm_grad", soc="Ascend910B4", **call).outputs["dgamma"]
    there = npu_sim.verify(
        "rms_norm_grad", soc="Ascend910B1", release="9.1", dgamma=measured, **call
    )
    assert there.status == "unreachable"
    names = [one.alternative for one in there.outputs["dgamma"].explanations]
    assert any(name.startswith("SoC") and "Ascend910B4" in name for name in names)
    anywhere = npu_sim.verify("rms_norm_grad", release="9.1", dgamma=measured, **call)
    assert anywhere.status == "equal"
    assert {soc for one in anywhere.possible for soc in one.socs} >= {"Ascend910B4"}
    assert "Ascend910B1" not in {soc for one in anywhere.possible for soc in one.socs}


def test_a_device_is_chosen_after_the_search_of_its_timings():
    """On 40 cores, rows 0 to 3 are of one core, whose sum loses the 1; dx is wrong everywhere."""
    call = calls.rms_norm(130, 64)
    dy, ones = np.zeros_like(call["dy"]), {name: np.ones_like(call[name]) for name in ("x", "rstd")}
    dy[[0, 3, 4]] = np.array([[1], [2.0**24], [-(2.0**24)]])
    call = {**call, **ones, "dy": dy, "deterministic": False, "release": "9.1"}
    measured = npu_sim.run("rms_norm_grad", soc="Ascend910B4", **call).outputs
    measured["dx"][0, 0] += 1
    answer = npu_sim.verify("rms_norm_grad", explain=False, **measured, **call)
    counts = {name: output.counts["unreachable"] for name, output in answer.outputs.items()}
    assert counts == {"dx": 1, "dgamma": 0}
    assert answer.soc in ("Ascend910B3", "Ascend910B4")  # of 40 cores each


def test_another_release_is_explained():
    """Release 8.3 adds up rows of grad in other chunks than later ones."""
    random = np.random.default_rng(0)
    call = {
        "grad": random.standard_normal((2400, 600)).astype(np.float32),
        "indices": np.arange(2400, dtype=np.int32) // 25,
        "num_weights": 96,
        "soc": "Ascend910B1",
        "deterministic": False,
    }
    measured = npu_sim.run("embedding_dense_backward", release="8.3", **call)
    answer = npu_sim.verify(
        "embedding_dense_backward",
        release="9.1",
        grad_weight=measured.outputs["grad_weight"],
        **call,
    )
    assert answer.status == "unreachable"
    best = answer.outputs["grad_weight"].explanations[0]
    assert (best.alternative, best.whole) == ("release 8.3", True)


def test_a_soc_that_is_named_as_the_product_is_the_only_one():
    call = {**calls.embedding(30, 4, 5), **FIXED, "product": "910B1"}
    measured = npu_sim.run("embedding_dense_backward", **call).outputs["grad_weight"]
    answer = npu_sim.verify("embedding_dense_backward", grad_weight=measured, **call)
    assert [one.socs for one in answer.combinations] == [("Ascend910B1",)]


@pytest.fixture
def scale_rows():
    """The name of the example of an operator of one's own, registered while a test runs."""
    npu_sim.register_file(OWN_OPERATOR)
    yield "scale_rows"
    registry._registered.pop("scale_rows")


def test_an_operator_of_ones_own_is_equal_or_unreachable(scale_rows):
    x = calls.rms_norm(6, 40)["x"]
    call = {"x": x, "scale": np.arange(1, 7, dtype=np.float32), **devices({})}
    outputs = npu_sim.run(scale_rows, **call).outputs
    assert verified(scale_rows, call, **outputs).status == "equal"
    wrong = outputs["total"].copy()
    wrong.view(np.int32)[3] ^= 1
    answer = verified(scale_rows, call, total=wrong)
    assert answer.outputs["total"].status_of(3) == "unreachable"


@pytest.mark.parametrize(
    ("output", "total", "y"),
    [("*", "undecided", "undecided"), ("total", "undecided", "unreachable")],
)
def test_outputs_that_a_caveat_names_as_not_modelled_are_undecided(
    scale_rows, monkeypatch, output, total, y
):
    entry, operator = registry._registered[scale_rows]

    def describe(case):
        warned = Caveat(code="of_its_own", message="may differ", not_modelled=output)
        return replace(operator.describe(case), caveats=(warned,))

    changed = entry, replace(operator, describe=describe)
    monkeypatch.setitem(registry._registered, scale_rows, changed)
    x = calls.rms_norm(6, 40)["x"]
    call = {"x": x, "scale": np.arange(1, 7, dtype=np.float32), **devices({})}
    wrong = dict(npu_sim.run(scale_rows, **call).outputs)
    for name in wrong:
        wrong[name] = wrong[name].copy()
        wrong[name].view(np.int32).reshape(-1)[3] ^= 1
    outputs = verified(scale_rows, call, **wrong).outputs
    assert {name: outputs[name].status for name in wrong} == {"total": total, "y": y}
    assert "may differ" in outputs["total"].reason(3)


def test_values_near_the_published_bound_of_exp_are_undecided():
    call = {
        "grad_loss": np.float32(1),
        "log_prob": np.log(np.full((3, 4), 0.25, np.float32)),
        "target": np.array([0, 1, 2]),
        **devices({}),
    }
    right = npu_sim.run("cross_entropy_loss_grad", **call).outputs["x_grad"]
    for steps, status in ((0, "equal"), (1, "undecided"), (64, "unreachable")):
        measured = right.copy()
        measured.view(np.int32)[2, 3] += steps
        answer = verified("cross_entropy_loss_grad", call, x_grad=measured)
        assert answer.status == status
        if status == "undecided":
            assert "exp" in answer.outputs["x_grad"].reason((2, 3))


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_sums_of_the_cube_unit_are_undecided_within_their_bound(dtype):
    call = devices(calls.conv(6, 2, 8, 4, 2, 1))
    call = {
        name: value.astype(numpy_dtype({"fp16": "float16", "fp32": "float32"}[dtype]))
        if isinstance(value, np.ndarray)
        else value
        for name, value in call.items()
    }
    result = npu_sim.run("conv_tbc_backward", **call)
    for name, right in result.outputs.items():
        wrong = right.copy()
        wrong.reshape(-1)[0] = wrong.reshape(-1)[0] * 1.5 + 1
        assert verified("conv_tbc_backward", call, **{name: right}).status == "equal"
        assert (
            verified("conv_tbc_backward", call, explain=False, **{name: wrong}).status
            == "unreachable"
        )
    near = result.outputs["grad_input"].copy()
    near.view(f"i{near.itemsize}").reshape(-1)[5] += 1
    expected = "undecided" if dtype == "fp32" else "unreachable"
    answer = verified("conv_tbc_backward", call, explain=False, grad_input=near)
    assert answer.status in ("undecided", expected)


def unpermute_call():
    """Two cores write row 1; no index names row 3."""
    random = np.random.default_rng(0)
    indices = np.arange(64, dtype=np.int32)
    indices[40], indices[3] = 1, 0
    return {
        "permuted_tokens": random.standard_normal((64, 32)).astype(np.float32),
        "unpermuted_tokens_grad": random.standard_normal((32, 32)).astype(np.float32),
        "sorted_indices": indices,
        "probs": random.standard_normal((32, 2)).astype(np.float32),
        **devices({}),
    }


def test_every_last_write_of_a_core_is_reachable():
    call = unpermute_call()
    first, last = (
        npu_sim.run("moe_token_unpermute_grad", core_order=order, **call).outputs[
            "permuted_tokens_grad"
        ]
        for order in ("sequential", "reverse")
    )
    assert (first[1] != last[1]).all()
    mixed = first.copy()
    mixed[1, :16] = last[1, :16]
    mixed[3] = np.nan
    output = verified("moe_token_unpermute_grad", call, permuted_tokens_grad=mixed).outputs[
        "permuted_tokens_grad"
    ]
    assert output.status == "undecided"
    assert {output.status_of((1, column)) for column in range(32)} == {"reachable"}
    assert "previous content of the memory" in output.reason((3, 0))
    mixed[1, 2] += 1
    output = verified("moe_token_unpermute_grad", call, permuted_tokens_grad=mixed).outputs[
        "permuted_tokens_grad"
    ]
    assert output.status_of((1, 2)) == "unreachable"


FIXED_ORDERS = {
    "rms_norm": calls.rms_norm_forward(7, 96, "bf16"),
    "moe_token_permute": calls.permutation(12, 2, 32, "bf16"),
    "moe_token_permute_grad": calls.moe(12, 2, 32, "fp16"),
    "moe_token_unpermute": calls.unpermute(12, 2, 32),
}


@pytest.mark.parametrize("operator", FIXED_ORDERS)
def test_operators_with_fixed_orders(operator):
    call = devices(FIXED_ORDERS[operator])
    outputs = npu_sim.run(operator, **call).outputs
    assert verified(operator, call, **outputs).status == "equal"
    for name, right in outputs.items():
        wrong = right.copy()
        wrong.view(f"i{wrong.itemsize}").reshape(-1)[0] ^= 16
        answer = verified(operator, call, explain=False, **{name: wrong})
        assert answer.outputs[name].counts["unreachable"] == 1


def test_usage_errors_name_the_argument():
    call = devices(calls.embedding(30, 4, 5))
    with pytest.raises(npu_sim.UsageError, match="no output is given"):
        npu_sim.verify("embedding_dense_backward", **call)
    with pytest.raises(npu_sim.UsageError, match="shape"):
        verified("embedding_dense_backward", call, grad_weight=np.zeros((5, 3), np.float32))
    with pytest.raises(npu_sim.UsageError, match="budget"):
        verified(
            "embedding_dense_backward", call, grad_weight=np.zeros((5, 4), np.float32), budget=0
        )
    answer = verified("embedding_dense_backward", call, grad_weight=np.zeros((5, 4), np.float32))
    with pytest.raises(npu_sim.UsageError, match="index"):
        answer.outputs["grad_weight"].status_of((5, 0))
    assert json.loads(json.dumps(answer.as_dict()))["status"] == "unreachable"

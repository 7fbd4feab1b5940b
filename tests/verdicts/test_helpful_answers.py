"""What ``verify`` says around its verdicts: bounds, patterns, explanations, widths, two results."""

import json
import warnings

import numpy as np
import pytest

import npu_sim
from npu_sim.numbers.formats import numpy_dtype
from npu_sim.verdicts.answers import VERDICTS
from tests.cases import every
from tests.studies import calls
from tests.verdicts.test_verify import devices, unpermute_call, verified

BFLOAT16 = numpy_dtype("bfloat16")
EMBEDDING = "embedding_dense_backward"


def measured(operator, call, output, **more):
    return npu_sim.run(operator, core_order="random", seed=3, **call, **more).outputs[output]


def told(verdict):
    return [one.alternative for one in verdict.explanations]


@pytest.fixture
def embedding():
    """A call, and its gradient in a random order."""
    call = devices(calls.embedding(300, 16, 40))
    return call, measured(EMBEDDING, call, "grad_weight")


def weight_verdict(call, values, **more):
    return verified(EMBEDDING, {**call, **more}, grad_weight=values).outputs["grad_weight"]


@pytest.mark.parametrize(
    ("operator", "output", "call", "rule"),
    [
        ("conv_tbc_backward", "grad_input", calls.conv(6, 2, 8, 4, 2, 1), "cube unit"),
        ("cross_entropy_loss_grad", "x_grad", calls.cross_entropy(9, 8, reduction="sum"), "exp"),
    ],
)
def test_a_value_beyond_the_bound_of_a_rule_is_told_with_the_bound(operator, output, call, rule):
    call = devices(call)
    wrong = npu_sim.run(operator, **call).outputs[output].copy()
    wrong.reshape(-1)[0] = wrong.reshape(-1)[0] * 1.5 + 1
    answer = verified(operator, call, explain=False, **{output: wrong})
    reason = answer.outputs[output].reason((0,) * wrong.ndim)
    assert "is beyond the bound" in reason
    assert rule in reason
    assert "one legal order" not in str(answer)
    assert "1 beyond it" in str(answer)


def test_an_open_product_tries_all_that_have_the_operator(embedding):
    call = {name: embedding[0][name] for name in ("grad", "indices", "num_weights")}
    values = measured(EMBEDDING, call, "grad_weight", product="ascend_950")
    answer = npu_sim.verify(EMBEDDING, grad_weight=values, **call)
    assert answer.product == "ascend_950"
    assert "Ascend 950" in str(answer).splitlines()[0]
    tried = {one.product for one in answer.combinations}
    assert tried >= {"atlas_a2", "atlas_a3", "ascend_950", "atlas_train"}
    named = npu_sim.verify(EMBEDDING, product="atlas_a2", grad_weight=values, **call)
    assert named.status == "unreachable"
    assert any("Ascend950" in text for text in told(named.outputs["grad_weight"]))


def test_bf16_data_stored_as_fp32_is_recognised():
    call = devices(calls.rms_norm_forward(20, 64, "bf16"))
    wide = {**call, "x": call["x"].astype(np.float32), "gamma": call["gamma"].astype(np.float32)}
    y = measured("rms_norm", call, "y").astype(np.float32)
    verdict = verified("rms_norm", wide, y=y).outputs["y"]
    assert "FILE.npy:bf16" in told(verdict)[0]
    assert verdict.explanations[0].whole
    assert verdict.patterns == ("all are values of bfloat16; not the computed ones",)


def test_an_alternative_that_makes_others_impossible_is_not_an_explanation():
    """One flipped bit; another SoC gives it by chance, and cannot give a part of the others."""
    call = {**calls.rms_norm(130, 200), **devices({}), "deterministic": True, "soc": "Ascend910B1"}
    other = npu_sim.run("rms_norm_grad", **{**call, "soc": "Ascend910B4"}).outputs["dgamma"]
    right = npu_sim.run("rms_norm_grad", **call).outputs["dgamma"].copy()
    place = int(np.flatnonzero(right != other)[0])
    right[place] = other[place]
    verdict = verified("rms_norm_grad", call, dgamma=right).outputs["dgamma"]
    assert verdict.counts["unreachable"] == 1
    assert not any(text.startswith("SoC") for text in told(verdict))


def test_an_alternative_is_listed_with_what_it_makes_impossible(embedding):
    call, values = embedding
    half = values / np.float32(8)
    half[:8] = values[:8]
    verdict = weight_verdict(call, half)
    found = next(one for one in verdict.explanations if "divided by 8" in one.alternative)
    assert not found.whole
    assert 0 < found.impossible < found.explained
    assert found.as_dict()["impossible"] == found.impossible
    assert "others are not" in str(verdict)


def test_the_last_of_several_writes_is_a_witness():
    call = unpermute_call()
    output = "permuted_tokens_grad"
    values = npu_sim.run("moe_token_unpermute_grad", core_order="reverse", **call).outputs[output]
    mixed = npu_sim.run("moe_token_unpermute_grad", **call).outputs[output].copy()
    mixed[1, :16] = values[1, :16]
    verdict = verified("moe_token_unpermute_grad", call, **{output: mixed}).outputs[output]
    for column in (0, 20):
        steps = verdict.witness((1, column))
        assert len(steps) == 2
        assert steps[0].core != steps[1].core
        assert steps[-1].sum_after == mixed[1, column]
        assert "expert" in steps[-1].contribution


def test_the_width_of_the_reachable_set_stands_beside_the_verdict():
    """The contributions 1, 2^24, -2^24 and 1 of four cores: 0, 1 and 2 are reachable."""
    call = devices(
        {
            "grad": np.array([[1], [2.0**24], [-(2.0**24)], [1]], np.float32).repeat(8, axis=1),
            "indices": np.zeros(4, np.int32),
            "num_weights": 1,
        }
    )
    values = np.array([[2, 0, 1, 2, 0, 1, 2, 0]], np.float32)
    verdict = weight_verdict(call, values)
    widths = verdict.as_dict()["reachable_sets"]
    assert {one["values"] for one in widths} == {3}
    assert "3 values are reachable" in verdict.reason((0, 0))
    assert "3 to 3 values an element" in str(verdict)


def with_rows(values):
    values[[4, 9]] = 7
    return values


def with_column(values):
    values[:, 5] += 100
    return values


def with_an_exception(values):
    values += np.float32(3)
    values[7, 2] = 1000
    return values


def with_bit(values):
    values.view(np.int32)[:, 3] ^= 1 << 21
    return values


PATTERNS = {
    "rows": (with_rows, "all in 2 of 130 rows: 4, 9; 128 of their 128 elements"),
    "columns": (with_column, "all in 1 of 64 columns: 5; 130 of their 130 elements"),
    "bit": (with_bit, "one bit differs from the computed value: bit 21"),
    "ratio": (lambda values: values * np.float32(0.2), "all are 1/5 times the computed values"),
    "offset": (lambda values: values + np.float32(3), "all are +3 beside the computed values"),
    "exception": (with_an_exception, "8319 of 8320 are +3 beside the computed values"),
    "value": (np.zeros_like, "all have one value: 0.0"),
    "format": (
        lambda values: (values * 1.01).astype(BFLOAT16).astype(np.float32),
        "all are values of bfloat16; not the computed ones",
    ),
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_impossible_elements_have_in_common_is_told(pattern):
    change, expected = PATTERNS[pattern]
    call = devices(calls.rms_norm(130, 64))
    dx = change(npu_sim.run("rms_norm_grad", **call).outputs["dx"].copy())
    verdict = verified("rms_norm_grad", call, explain=False, dx=dx).outputs["dx"]
    assert expected in verdict.patterns
    assert verdict.as_dict()["patterns"] == list(verdict.patterns)


def test_rows_of_a_core_are_told():
    call = devices(calls.rms_norm(480, 64))
    plan = npu_sim.plan("rms_norm_grad", **call)
    first, stop = next(iter(plan.cores[3].ranges.values()))
    dx = npu_sim.run("rms_norm_grad", **call).outputs["dx"].copy()
    dx[first:stop] *= 1.5
    verdict = verified("rms_norm_grad", call, explain=False, dx=dx).outputs["dx"]
    assert f"all in rows of 1 of {len(plan.cores)} cores: 3" in verdict.patterns


def test_random_errors_have_no_pattern(embedding):
    call, values = embedding
    noise = np.random.default_rng(0).standard_normal(values.shape).astype(np.float32)
    verdict = weight_verdict(call, values * (1 + noise / 100))
    assert verdict.patterns == ()
    assert verdict.explanations == ()
    assert "make sure that the inputs" in verdict.next_steps[-1]


def halves(call):
    for part in (slice(0, 150), slice(150, None)):
        half = {**call, "grad": call["grad"][part], "indices": call["indices"][part]}
        yield measured(EMBEDDING, half, "grad_weight")


RESULTS = {
    "result divided by 8": lambda call, right: right / np.float32(8),
    "result divided by 7": lambda call, right: right / np.float32(7),
    "result multiplied by 3": lambda call, right: right * np.float32(3),
    "the results of both halves of the batch, added (micro-batches)": lambda call, right: sum(
        halves(call)
    ),
    "result rounded to bfloat16 and stored as fp32": lambda call, right: right.astype(
        BFLOAT16
    ).astype(np.float32),
}


@pytest.mark.parametrize("expected", every(3, RESULTS))
def test_what_happened_to_a_result_is_explained(embedding, expected):
    call, right = embedding
    assert told(weight_verdict(call, RESULTS[expected](call, right)))[0] == expected


@pytest.mark.parametrize("held", [1.0, 0.25])
def test_memory_that_was_not_cleared_is_explained(held):
    """Eight rows a weight are added one by one to what the memory held."""
    random = np.random.default_rng(0)
    call = devices(
        {
            "grad": random.standard_normal((320, 16)).astype(np.float32),
            "indices": random.permutation(np.repeat(np.arange(40), 8)).astype(np.int32),
            "num_weights": 40,
        }
    )
    values = np.full((40, 16), held, np.float32)
    for row in random.permutation(320):
        values[call["indices"][row]] += call["grad"][row]
    found = weight_verdict(call, values).explanations[0]
    assert found.alternative == f"added to {held:g} in memory that was not cleared"
    assert found.explained > 0.9 * found.of


def test_memory_that_held_the_result_of_an_equal_call_is_explained():
    call = devices(calls.embedding(40, 16, 40))
    call["indices"] = np.random.default_rng(1).permutation(40).astype(np.int32)
    right = measured(EMBEDDING, call, "grad_weight")
    texts = told(weight_verdict(call, right + right))
    assert "added to the result of an equal call: memory was not cleared" in texts


def test_one_rounded_input_is_explained():
    call = devices(calls.rms_norm(60, 64))
    rounded = call["rstd"].astype(BFLOAT16).astype(np.float32)
    dx = measured("rms_norm_grad", {**call, "rstd": rounded}, "dx")
    verdict = verified("rms_norm_grad", call, dx=dx).outputs["dx"]
    assert told(verdict)[0] == "rstd rounded to bfloat16 before"


def test_an_optional_tensor_and_another_epsilon_are_explained():
    call = devices(calls.unpermute(48, 1, 32, probs="fp32"))
    without = {name: call[name] for name in call if name != "probs"}
    output = "unpermuted_tokens"
    tokens = measured("moe_token_unpermute", without, output)
    verdict = verified("moe_token_unpermute", call, **{output: tokens}).outputs[output]
    assert told(verdict)[0] == "probs ignored"
    call = devices(calls.rms_norm_forward(20, 64, epsilon=1e-6))
    y = measured("rms_norm", {**call, "epsilon": 1e-5}, "y")
    verdict = verified("rms_norm", call, y=y).outputs["y"]
    assert told(verdict)[0] == "epsilon 1e-05 instead of 1e-06"


def test_the_budget_of_the_whole_call_leaves_elements_undecided_in_words():
    random = np.random.default_rng(0)
    call = devices(
        {
            "grad": random.standard_normal((360, 20)).astype(np.float32),
            "indices": random.permutation(np.repeat(np.arange(20), 18)).astype(np.int32),
            "num_weights": 20,
        }
    )
    values = measured(EMBEDDING, call, "grad_weight") * np.float32(1 + 2**-21)
    answers = [
        verified(
            *(EMBEDDING, call),
            explain=False,
            budget=1 << 14,
            total_budget=total,
            grad_weight=values,
        )
        for total in (1, 1 << 21)
    ]
    few, more = (answer.outputs["grad_weight"] for answer in answers)
    assert few.cut_short.sum() > more.cut_short.sum() > 0
    place = tuple(np.argwhere(few.cut_short)[0])
    assert "budget of the whole call" in few.reason(place)
    assert "raise total_budget" in few.next_steps[0]
    decided = ~few.cut_short & ~more.cut_short
    assert np.array_equal(few.elements[decided], more.elements[decided])


@pytest.mark.parametrize("budgets", [{"budget": 3}, {"budget": 100}, {"total_budget": 1}])
def test_no_reason_contradicts_its_verdict_at_a_small_budget(budgets):
    call = devices(calls.embedding(400, 16, 40))
    values = measured(EMBEDDING, call, "grad_weight") * np.float32(1 + 2**-21)
    verdict = weight_verdict(call, values, explain=False, **budgets)
    proved = np.argwhere(verdict.elements == VERDICTS.index("unreachable"))
    assert len(proved)
    reasons = [verdict.reason(place) for place in proved[:12]]
    assert not any("no proof" in reason for reason in reasons)


def test_two_results_are_compared_by_row(embedding):
    call, first = embedding
    second = measured(EMBEDDING, {**call}, "grad_weight").copy()
    other = npu_sim.run(EMBEDDING, core_order="random", seed=9, **call).outputs["grad_weight"]
    answer = verified(EMBEDDING, call, grad_weight=first, against=other)
    difference = answer.against["grad_weight"]
    assert difference.proved
    assert "timing explains it" in str(answer)
    assert difference.differing.sum() == (first != other).sum() > 0
    second[7, 3] += 1
    answer = verified(EMBEDDING, call, grad_weight=first, against={"grad_weight": second})
    (row,) = answer.against["grad_weight"].rows
    assert row["index"] == [7]
    assert (row["elements"], row["second"]) == (1, "unreachable")
    assert row["largest_difference"] == pytest.approx(1, rel=1e-5)
    assert answer.status == "unreachable"
    assert answer.outputs["grad_weight"].status != "unreachable"
    assert json.loads(json.dumps(answer.as_dict()))["against"]["grad_weight"]["rows"] == 1
    same = verified(EMBEDDING, call, grad_weight=first, against=first)
    assert same.against["grad_weight"].rows == ()


def test_second_results_of_other_outputs_are_refused():
    call = devices(calls.rms_norm(20, 64))
    outputs = npu_sim.run("rms_norm_grad", **call).outputs
    with pytest.raises(npu_sim.UsageError, match="against"):
        verified("rms_norm_grad", call, against=outputs["dx"], **outputs)
    with pytest.raises(npu_sim.UsageError, match="against"):
        verified("rms_norm_grad", call, dx=outputs["dx"], against={"dgamma": outputs["dgamma"]})
    with pytest.raises(npu_sim.UsageError, match="shape"):
        verified("rms_norm_grad", call, dx=outputs["dx"], against=np.zeros(3, np.float32))


@pytest.mark.parametrize("budget", [1 << 31, 1 << 60, "5", 0, None, 1.5])
@pytest.mark.parametrize("name", ["budget", "total_budget"])
def test_odd_budgets_are_usage_errors(embedding, name, budget):
    call, right = embedding
    if (name, budget) in (("total_budget", 1 << 31), ("total_budget", 1 << 60)):
        assert verified(EMBEDDING, call, grad_weight=right, total_budget=budget)
        return
    with pytest.raises(npu_sim.UsageError, match=name):
        verified(EMBEDDING, call, grad_weight=right, **{name: budget})


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 3e38])
def test_no_measured_value_gives_a_warning_of_numpy(embedding, number):
    call, right = embedding
    values = right.copy()
    values[::2] = number
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = verified(EMBEDDING, call, grad_weight=values, against=right)
        str(answer), answer.as_dict()
    assert answer.status == "unreachable"


def test_an_empty_output_is_compared_with_another():
    x = np.ones((4, 0), np.float32)
    y = npu_sim.run("swi_glu", x=x).outputs["y"]
    answer = npu_sim.verify("swi_glu", x=x, y=y, against=y)
    assert answer.as_dict()["against"]["y"]["rows"] == 0
    assert "y" in str(answer)


@pytest.mark.parametrize("operator", ["embedding_dense_backward", "rotary_position_embedding"])
def test_nan_has_no_distance(operator):
    random = np.random.default_rng(0)
    if operator == "rotary_position_embedding":
        call = {name: random.standard_normal((2, 8, 1, 16), np.float32) for name in ("x", "cos")}
        call["sin"] = call["cos"]
    else:
        call = {
            "grad": random.standard_normal((200, 8), np.float32),
            "indices": random.integers(0, 4, 200).astype(np.int32),
            "num_weights": 4,
        }
    ((name, output),) = npu_sim.run(operator, **call).outputs.items()
    output[(0,) * output.ndim] = np.nan
    answer = npu_sim.verify(operator, **call, **{name: output}, soc="910B3", release="9.1")
    found = answer.outputs[name]
    assert found.status_of((0,) * output.ndim) == "unreachable"
    assert "ulp apart" not in found.reason((0,) * output.ndim)


@pytest.mark.parametrize("product", ["atlas_a2", "ascend_950"])
def test_rstd_that_is_left_out_is_computed_as_the_forward_operator_does(product):
    random = np.random.default_rng(0)
    dy, x = random.standard_normal((2, 9, 64), np.float32)
    gamma = random.standard_normal(64, np.float32)
    call = {"x": x, "gamma": gamma, "product": product}
    rstd = npu_sim.run("rms_norm", **call).outputs["rstd"]
    outputs = npu_sim.run("rms_norm_grad", **call, dy=dy, rstd=rstd).outputs
    answer = npu_sim.verify("rms_norm_grad", **call, dy=dy, dx=outputs["dx"])
    assert (answer.status, answer.completed) == ("equal", ("rstd",))
    assert "rstd, which was left out" in str(answer)
    with pytest.raises(npu_sim.UsageError, match="dy is missing"):
        npu_sim.verify("rms_norm_grad", **call, dx=outputs["dx"])

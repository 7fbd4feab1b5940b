"""Every verdict against the evidence of every step, over all operators and products.

``unreachable`` needs that every step between the inputs and the element is exact, or that the value
lies outside what the documented accuracy of a step allows; ``undecided`` needs a step that is a
model.
"""

import numpy as np
import pytest

import npu_sim
from npu_sim.cores import load_profile
from npu_sim.framework.operator import OPEN_RULES
from npu_sim.kernels.shared.elementwise import narrow_array
from npu_sim.numbers.formats import numpy_dtype
from npu_sim.operators.shared.study import study_call
from npu_sim.status import NO_PLAN
from tests.cases import every
from tests.reference import apply_adam_w_v2 as reference_adam
from tests.reference import cross_entropy_loss as reference_loss
from tests.reference import swi_glu as reference_swi_glu

PRODUCTS = ("atlas_a2", "ascend_950", "atlas_inference", "atlas_train")
NORM = {"x": "6x300:{0}", "gamma": "300:{0}"}
TOKENS = {"permuted_tokens": "80x72:{0}", "sorted_indices": "80:int32"}
CALLS = [
    ("rms_norm", NORM),
    ("rms_norm", {"x": "3x9000:{0}", "gamma": "9000:{0}"}),
    *(
        (
            "add_rms_norm",
            {**dict.fromkeys(("x1", "x2"), f"{rows}x{columns}:{{0}}"), "gamma": f"{columns}:{{0}}"},
        )
        for rows, columns in ((6, 300), (60, 300), (60, 4096), (3, 16400))
    ),
    ("rms_norm_grad", {"dy": "6x300:{0}", "x": "6x300:{0}", "gamma": "300:{0}", "rstd": "6:fp32"}),
    ("swi_glu", {"x": "20x144:{0}"}),
    ("swi_glu_grad", {"x": "20x144:{0}", "y_grad": "20x72:{0}"}),
    *(
        (
            "cross_entropy_loss",
            {
                "input": f"20x{columns}:{{0}}",
                "target": "20:int64",
                "weight": f"{columns}:fp32",
                "reduction": reduction,
                "ignore_index": 5,
                "label_smoothing": smoothing,
            },
        )
        for reduction, smoothing, columns in (
            ("none", 0.0, 130),
            ("mean", 0.1, 130),
            ("sum", 0.0, 2100),
        )
    ),
    *(
        (
            "cross_entropy_loss_grad",
            {
                "log_prob": "20x130:{0}",
                "target": "20:int64",
                "grad_loss": "20:{0}" if reduction == "none" else "1:{0}",
                "weight": "130:fp32",
                "reduction": reduction,
                "ignore_index": 5,
            },
        )
        for reduction in ("none", "mean", "sum")
    ),
    *(
        (
            "embedding_dense_backward",
            {
                "grad": "200x40:{0}",
                "indices": "200:int32",
                "num_weights": 60,
                "scale_grad_by_freq": scale,
            },
        )
        for scale in (False, True)
    ),
    ("moe_token_permute", {"tokens": "40x72:{0}", "indices": "40x2:int32"}),
    (
        "moe_token_permute_grad",
        {"permuted_output_grad": "80x72:{0}", "sorted_indices": "80:int32", "num_topk": 2},
    ),
    ("moe_token_unpermute", {**TOKENS, "probs": "40x2:{0}"}),
    (
        "moe_token_unpermute_grad",
        {**TOKENS, "unpermuted_tokens_grad": "40x72:{0}", "probs": "40x2:{0}"},
    ),
    *(
        (
            "apply_adam_w_v2",
            {
                **dict.fromkeys(("var", "m", "v", "grad"), "40x72:{0}"),
                "step": "1:fp32",
                **({"max_grad_norm": "40x72:{0}", "amsgrad": True} if amsgrad else {}),
            },
        )
        for amsgrad in (False, True)
    ),
    *(
        (
            "rotary_position_embedding",
            {"x": "2x9x4x64:{0}", "cos": "1x9x1x64:{0}", "sin": "1x9x1x64:{0}", "mode": mode},
        )
        for mode in (0, 1)
    ),
    *(
        (
            "rotary_position_embedding_grad",
            {
                **dict.fromkeys(("dy", "x"), "2x9x4x64:{0}"),
                **dict.fromkeys(("cos", "sin"), "1x9x1x64:{0}"),
                "mode": mode,
            },
        )
        for mode in (0, 1)
    ),
    (
        "conv_tbc_backward",
        {
            "grad_output": "12x2x8:{0}",
            "input": "10x2x16:{0}",
            "weight": "3x16x8:{0}",
            "bias": "8:{0}",
            "pad": 2,
            "cube_math_type": 0,
        },
    ),
]
MODEL_STEPS = {
    ("rms_norm", "y"), ("rms_norm", "rstd"), ("add_rms_norm", "y"), ("add_rms_norm", "rstd"),
    ("swi_glu", "y"), ("swi_glu_grad", "x_grad"),
    ("cross_entropy_loss", "loss"), ("cross_entropy_loss", "log_prob"),
    ("cross_entropy_loss_grad", "x_grad"), ("apply_adam_w_v2", "var_out"),
    ("conv_tbc_backward", "grad_input"), ("conv_tbc_backward", "grad_weight"),
    ("conv_tbc_backward", "grad_bias"), ("embedding_dense_backward", "grad_weight"),
}  # fmt: skip
"""Outputs that a root, quotient, exp, ln or an order that is not published enters somewhere."""


def filled(call, dtype):
    return {
        name: value.format(dtype) if isinstance(value, str) else value
        for name, value in call.items()
    }


def accepted(operator, call, dtype, product):
    """Whether the product has the call, and npu_sim models it."""
    try:
        npu_sim.plan(operator, **filled(call, dtype), product=product)
    except NO_PLAN:
        return False
    return True


CASES = [
    (operator, call, dtype, product)
    for operator, call in CALLS
    for dtype in ("fp32", "fp16", "bf16")
    for product in PRODUCTS
    if accepted(operator, call, dtype, product)
]


def made(operator, call, dtype, product):
    """The call with drawn data, and its result."""
    described = study_call(operator, {**filled(call, dtype), "product": load_profile(product)})
    return described, described.run()


def verdicts(described, **outputs):
    answer = npu_sim.verify(
        described.operator.name,
        product=described.profile,
        deterministic=False,
        explain=False,
        budget=1 << 8,
        **described.tensors,
        **described.attributes,
        **outputs,
    )
    return answer.outputs


def nudged(array, up=True):
    """The array with every element one unit in the last place away."""
    if array.dtype.kind in "iu":
        return array + (1 if up else -1)
    return np.nextafter(array, np.array(np.inf if up else -np.inf, array.dtype))


@pytest.mark.parametrize(("operator", "call", "dtype", "product"), every(3, CASES))
def test_a_verdict_follows_the_evidence_of_every_step(operator, call, dtype, product):
    described, result = made(operator, call, dtype, product)
    for name, output in result.outputs.items():
        same = verdicts(described, **{name: output})[name]
        assert same.status == "equal", "computed values"
        for up in (True, False):
            (verdict,) = verdicts(described, **{name: nudged(output, up)}).values()
            changed = ~same_bits(verdict.given, output)
            fixed = ~verdict.order_dependent & changed
            inside, is_open = verdict.allowed_by_a_rule, verdict.within_a_rule
            codes = verdict.elements
            assert (codes[fixed & inside] == 2).all(), "undecided within the bound of a model"
            assert (codes[fixed & ~inside] == 3).all(), "unreachable beyond it, and without one"
            assert not is_open.any() or (operator, name) in MODEL_STEPS
        assert bounds_hold(described, result, name)


def same_bits(one, other):
    return one.view(f"u{one.itemsize}") == other.view(f"u{other.itemsize}")


def bounds_hold(described, result, name):
    """Whether every bound of the output contains its computed values."""
    has_rules = described.operator.has_hook(OPEN_RULES)
    found = described.operator.hook(OPEN_RULES)(described, result) if has_rules else ()
    values = result.outputs[name].astype(np.float64)
    return all(
        (
            (rule.lowest > rule.highest)
            | ((values >= rule.lowest) & (values <= rule.highest))
            | np.isnan(values)
        ).all()
        for rule in found
        if rule.output == name
    )


# Devices whose root, quotient, exp or power is one unit in the last place off


def shifted(values, seed=0):
    """Values with one unit in the last place more, or less, or as they are."""
    random = np.random.default_rng(seed)
    ends = np.array([-np.inf, np.inf], np.float32)
    towards = random.choice(ends, np.shape(values))
    return np.where(random.random(np.shape(values)) < 0.8, np.nextafter(values, towards), values)


def narrowed(values, dtype):
    return values.astype(np.float32) if dtype == "fp32" else narrow_array(values, FULL[dtype])


FULL = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
DEVICES = [
    (dtype, product) for dtype in ("fp32", "fp16", "bf16") for product in ("atlas_a2", "ascend_950")
]


def verified_on(product, operator, arguments, **outputs):
    """The verdicts; none is ``equal``, so that the shifts are seen."""
    answer = npu_sim.verify(
        operator, product=load_profile(product), explain=False, deterministic=False,
        **arguments, **outputs,
    )  # fmt: skip
    return answer.outputs


def assert_undecided(found, dtype):
    """Nothing is impossible; a unit of fp32 shows in fp32, and rarely in 16 bits."""
    assert found.counts["unreachable"] == 0
    assert found.status == "undecided" or dtype != "fp32"


@pytest.mark.parametrize(("dtype", "product"), DEVICES)
def test_a_root_off_by_a_unit_is_no_proof(dtype, product):
    described, result = made("rms_norm", NORM, dtype, product)
    x, gamma = (described.tensors[name].astype(np.float32) for name in ("x", "gamma"))
    for units in (1, 2):
        rstd = result.outputs["rstd"]
        for _ in range(units):
            rstd = np.nextafter(rstd, np.float32(np.inf))
        y = narrowed((x * rstd) * gamma, dtype)
        found = verified_on(product, "rms_norm", described.tensors, y=y, rstd=rstd)
        assert found["rstd"].status == "undecided"
        assert_undecided(found["y"], dtype)
        assert "root and quotient" in found["rstd"].reason((0, 0))
    y = narrowed((x * rstd * np.float32(1 + 2.0**-6)) * gamma, dtype)
    assert verified_on(product, "rms_norm", described.tensors, y=y)["y"].status == "unreachable"


@pytest.mark.parametrize(("dtype", "product"), DEVICES)
def test_exp_and_quotient_off_by_a_unit_are_no_proof(dtype, product, monkeypatch):
    exp, divide = reference_swi_glu.exp, reference_swi_glu.divide
    monkeypatch.setattr(reference_swi_glu, "exp", lambda x: shifted(exp(x), 1))
    monkeypatch.setattr(reference_swi_glu, "divide", lambda *given: shifted(divide(*given), 2))
    random, flushes = np.random.default_rng(0), product == "ascend_950"
    a, b, g = (narrowed(random.standard_normal((20, 72), np.float32), dtype) for _ in range(3))
    wide = [part.astype(np.float32) for part in (a, b, g)]
    x, kind = np.concatenate((a, b), axis=1), {"is_fp32": dtype == "fp32", "flushes": flushes}
    y = narrowed(reference_swi_glu.forward(*wide[:2], **kind), dtype)
    found = verified_on(product, "swi_glu", {"x": x}, y=y)["y"]
    assert_undecided(found, dtype)
    both = np.concatenate(reference_swi_glu.gradient(*wide, **kind), axis=1)
    arguments = {"x": x, "y_grad": g}
    found = verified_on(product, "swi_glu_grad", arguments, x_grad=narrowed(both, dtype))["x_grad"]
    assert_undecided(found, dtype)


@pytest.mark.parametrize(("dtype", "product"), DEVICES)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_exp_of_a_loss_off_by_a_unit_is_no_proof(dtype, product, reduction):
    random = np.random.default_rng(3)
    log_prob = narrowed(np.log(random.random((20, 130), np.float32)), dtype)
    target, ignored = random.integers(0, 130, 20), 5
    target[3] = ignored
    grad_loss = narrowed(random.random(20 if reduction == "none" else 1, np.float32), dtype)
    mask = (target != ignored).astype(np.float32)
    nll = np.broadcast_to(grad_loss.astype(np.float32), 20)
    if reduction == "mean":
        quotient = nll / np.float32(mask.sum())
        nll = shifted(quotient, 4) if product == "ascend_950" else quotient
    nll = nll * mask
    x_grad = shifted(np.exp(log_prob.astype(np.float64)).astype(np.float32)) * nll[:, None]
    x_grad[np.arange(20), target] -= nll
    arguments = {
        "log_prob": log_prob,
        "target": target,
        "grad_loss": grad_loss,
        "reduction": reduction,
        "ignore_index": ignored,
    }
    measured = narrowed(x_grad, dtype)
    found = verified_on(product, "cross_entropy_loss_grad", arguments, x_grad=measured)["x_grad"]
    assert_undecided(found, dtype)
    assert found.status_of((3, 0)) == "equal", "ignored"
    measured[3, 0] = 1
    found = verified_on(product, "cross_entropy_loss_grad", arguments, x_grad=measured)["x_grad"]
    assert found.status_of((3, 0)) == "unreachable", "no exp enters an ignored row"


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("offset", [0, 300])
def test_exp_and_ln_of_log_prob_off_by_a_unit_are_no_proof(
    dtype, reduction, smoothing, offset, monkeypatch
):
    exp, ln = reference_loss.exp, reference_loss.ln
    monkeypatch.setattr(reference_loss, "exp", lambda x: shifted(exp(x), 1))
    monkeypatch.setattr(reference_loss, "ln", lambda x: np.nextafter(ln(x), np.float32(np.inf)))
    random = np.random.default_rng(2)
    x = narrowed(random.standard_normal((20, 130), np.float32) + np.float32(offset), dtype)
    weight = random.uniform(0.5, 2, 130).astype(np.float32)
    target = random.integers(0, 130, 20)
    ignored = target[3] = 5
    loss, log_prob = reference_loss.loss_and_log_prob(
        x, target, weight, reduction, ignored, smoothing, 48, 48000
    )
    arguments = {
        "input": x,
        "target": target,
        "weight": weight,
        "reduction": reduction,
        "ignore_index": ignored,
        "label_smoothing": smoothing,
    }
    operator = "cross_entropy_loss"
    found = verified_on("atlas_a2", operator, arguments, loss=loss, log_prob=log_prob)
    assert_undecided(found["log_prob"], dtype)
    assert found["loss"].counts["unreachable"] == 0
    loss[-1] *= 1.05
    log_prob[7, 3] -= 1
    found = verified_on("atlas_a2", operator, arguments, loss=loss, log_prob=log_prob)
    assert found["log_prob"].status_of((7, 3)) == "unreachable"
    assert found["loss"].status_of((loss.size - 1,)) == "unreachable"


def test_a_reciprocal_off_by_a_unit_is_no_proof_on_ascend_950():
    random = np.random.default_rng(5)
    grad = random.standard_normal((300, 40), np.float32)
    indices = random.integers(0, 60, 300).astype(np.int32)
    arguments = {"grad": grad, "indices": indices, "num_weights": 60, "padding_idx": 3}
    plain = {**arguments, "product": load_profile("ascend_950")}
    sums = npu_sim.run("embedding_dense_backward", **plain).outputs["grad_weight"]
    counts = np.bincount(indices, minlength=60).clip(1).astype(np.float32)
    scaled = sums * shifted(np.float32(1) / counts)[:, None]
    arguments["scale_grad_by_freq"] = True
    operator = "embedding_dense_backward"
    (found,) = verified_on("ascend_950", operator, arguments, grad_weight=scaled).values()
    assert (found.status, found.counts["unreachable"]) == ("undecided", 0)
    scaled[3, 7] = 1e-9
    (found,) = verified_on("ascend_950", operator, arguments, grad_weight=scaled).values()
    assert found.status_of((3, 7)) == "unreachable", "the padding row is cleared"


@pytest.mark.parametrize(("dtype", "product"), DEVICES)
@pytest.mark.parametrize("amsgrad", [False, True])
def test_power_root_and_quotient_of_a_step_off_by_a_unit_are_no_proof(
    dtype, product, amsgrad, monkeypatch
):
    power, random = reference_adam.power, np.random.default_rng(6)
    monkeypatch.setattr(reference_adam, "power", lambda x, y: np.nextafter(power(x, y), 1))
    names = ("var", "m", "v", "grad") + (("max_grad_norm",) if amsgrad else ())
    state = {
        name: narrowed(random.standard_normal((40, 72), np.float32) * 0.1, dtype) for name in names
    }
    for name in {"v", "max_grad_norm"} & state.keys():
        state[name] = np.abs(state[name])
    state["m"][0], state["grad"][0] = 0, 0
    scalars = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.1, "eps": 1e-8}
    scalars["maximize"] = False
    wide = {name: array.astype(np.float32) for name, array in state.items()}
    step = reference_adam.step_950 if product == "ascend_950" else reference_adam.step
    (new, *_) = step(
        *(wide[name] for name in ("var", "m", "v", "grad")), 7, wide.get("max_grad_norm"), **scalars
    )
    half_away = dtype == "bf16" and product == "atlas_a2"
    var = away_from_zero(new) if half_away else narrowed(new, dtype)
    arguments = {**state, **scalars, "amsgrad": amsgrad, "step": np.array([6], np.float32)}
    (found,) = verified_on(product, "apply_adam_w_v2", arguments, var_out=var).values()
    assert found.counts["unreachable"] == 0
    assert (found.elements[0] == 0).all(), "without gradient and moment no root enters"
    var[0, 0] = nudged(var)[0, 0]
    (found,) = verified_on(product, "apply_adam_w_v2", arguments, var_out=var).values()
    assert found.status_of((0, 0)) == "unreachable"


def away_from_zero(values):
    bits = values.view(np.uint32) + np.uint32(0x8000)
    return (bits >> np.uint32(16)).astype(np.uint16).view(numpy_dtype("bfloat16"))


@pytest.mark.parametrize("product", ["atlas_a2", "ascend_950"])
def test_truncated_variables_are_impossible_where_no_root_enters(product):
    var = np.random.default_rng(0).standard_normal(1000, np.float32)
    var = narrow_array(var, "bfloat16")
    zeros = np.zeros_like(var)
    new = var.astype(np.float32) * (np.float32(1) - np.float32(1e-3) * np.float32(0.1))
    truncated = (new.view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(var.dtype)
    arguments = {
        "var": var,
        "m": zeros,
        "v": zeros,
        "grad": zeros,
        "step": np.array([0], np.float32),
        "weight_decay": 0.1,
    }
    (found,) = verified_on(product, "apply_adam_w_v2", arguments, var_out=truncated).values()
    wrong = truncated.view(np.uint16) != found.expected.view(np.uint16)
    assert 400 < np.count_nonzero(wrong) == found.counts["unreachable"]
    assert found.counts["undecided"] == 0


@pytest.mark.parametrize("moment", ["m", "v"])
def test_beta_1_keeps_a_moment_of_minus_zero_on_ascend_950(moment):
    zeros = np.zeros(8, np.float32)
    state = {**dict.fromkeys(("var", "m", "v", "grad"), zeros), moment: -zeros}
    betas = {"beta1": 1.0, "beta2": 1.0}
    for product, is_negative in (("ascend_950", True), ("atlas_a2", False)):
        result = npu_sim.run(
            "apply_adam_w_v2", **state, **betas, step=np.array([3.0]).astype("f4"), product=product
        )
        assert np.signbit(result.outputs[f"{moment}_out"]).all() == is_negative


GRADIENT = {"dy": "6x300:fp32", "x": "6x300:fp32", "gamma": "300:fp32", "rstd": "6:fp32"}


@pytest.mark.parametrize(
    ("product", "release", "status"),
    [
        ("ascend_950", "9.1.1", "unreachable"),
        ("ascend_950", "9.2", "undecided"),
        ("ascend_350", "9.2", "undecided"),
        ("ascend_350", None, "undecided"),
        ("ascend_950", None, "unreachable"),
        (None, None, "unreachable"),
    ],
)
def test_what_a_product_or_release_has_by_inference_proves_nothing(product, release, status):
    made_at = "9.1.1" if status == "unreachable" else "9.2"
    place = {"product": product or "ascend_950", "release": made_at}
    described = study_call("rms_norm_grad", {**GRADIENT, **place})
    dx = described.run().outputs["dx"]
    dx[0, 0] += 1
    answer = npu_sim.verify(
        "rms_norm_grad",
        product=product,
        release=release,
        explain=False,
        **described.tensors,
        **described.attributes,
        dx=dx,
    )
    assert answer.status == status
    if status == "undecided":
        reason = answer.outputs["dx"].reason((0, 0))
        assert "inferred" in reason

"""RotaryPositionEmbedding and its gradient: contract, warnings, launches, and studies."""

import re

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.numbers.formats import TensorSpec
from npu_sim.status import AclnnError, NotModelledError
from npu_sim.studies.precision import study_precision

FORWARD, GRADIENT = "rotary_position_embedding", "rotary_position_embedding_grad"


def call(operator, x, cos, /, **changed):
    """Return the plan of a call of either operator."""
    first = "x" if operator == FORWARD else "dy"
    return npu_sim.plan(operator, **{first: x, "cos": cos, "sin": cos, **changed})


def status(operator, x, cos, /, **changed):
    with pytest.raises(AclnnError) as refused:
        call(operator, x, cos, **changed)
    return int(refused.value.status), refused.value


@pytest.mark.parametrize("operator", [FORWARD, GRADIENT])
@pytest.mark.parametrize(
    ("kind", "cos_kind", "message"),
    [("fp64", "fp64", "is float64, which .* not support"), ("bf16", "fp32", "cos is float32, ")],
)
def test_a_dtype_that_no_call_has_is_named_alone(operator, kind, cos_kind, message):
    _, refused = status(operator, f"2x8x4x64:{kind}", f"1x8x1x64:{cos_kind}")
    assert re.search(message, refused.message)
    assert "bfloat16" in refused.hint


def codes(operator, x, cos, /, **changed):
    return {one.code for one in call(operator, x, cos, **changed).caveats}


@pytest.mark.parametrize(
    ("x", "cos", "changed", "argument"),
    [
        ("2x8x4x64:bf16", "1x8x1x64:bf16", {"mode": 2}, "mode"),
        ("2x8x4x64:bf16", "1x7x1x64:bf16", {}, "cos"),
        ("2x8x4x64:bf16", "8x1x64:bf16", {}, "cos"),
        ("2x8x4x896:bf16", "1x8x1x896:bf16", {}, "cos"),
        ("2x8x4x63:bf16", "1x8x1x63:bf16", {}, "x"),
        ("2x8x4x64:bf16", "1x8x1x32:bf16", {}, "cos"),
        ("2x8x4x64:bf16", "1x8x1x64:bf16", {"sin": "1x1x1x64:bf16"}, "sin"),
        ("2x8x4x64:bf16", "1x8x1x64:fp16", {}, "cos"),
        ("2x8x4x64:bf16", "1x8x4x64:bf16", {}, "cos"),
        ("2x8x4x64:bf16", "1x1x1x64:bf16", {}, "cos"),
        ("4x33x16x64:bf16", "1x1x16x64:bf16", {}, "cos"),
        ("1001x8x4x64:bf16", "1x8x1x64:bf16", {}, "cos"),
        ("2x8x4x64:bf16", "1x8x4x64:bf16", {"mode": 1}, "cos"),
        ("8x64:bf16", "8x64:bf16", {}, "cos"),
        ("64:bf16", "64:bf16", {}, "cos"),
        ("scalar:bf16", "scalar:bf16", {}, "cos"),
        ("2x8x4x64:bf16", "1x8x1x64:bf16", {"out": "2x8x64x4:bf16"}, "out"),
        ("40x8x30x64:bf16", "1x8x1x64:bf16", {"mode": 1}, "cos"),
    ],
)
def test_refusals_have_the_number_of_the_release(x, cos, changed, argument):
    for release, number in (("8.5", 561002), ("9.0", 561103), ("9.1", 561103)):
        found, error = status(FORWARD, x, cos, release=release, **changed)
        assert (found, error.argument) == (number, argument)


@pytest.mark.parametrize(
    ("dy", "cos", "changed", "expected"),
    [
        ("2x8x4x64:bf16", "1x8x1x64:bf16", {"mode": 2}, 561002),
        ("2x8x4x64:bf16", "1x8x1x64:fp16", {}, 161002),
        ("2x8x4x64:bf16", "1x1x1x64:bf16", {}, 561002),
        ("9x4x8x64:bf16", "9x1x8x64:bf16", {}, 561002),
        ("40x8x30x64:bf16", "1x8x1x64:bf16", {"mode": 1}, 561002),
        ("2x8x4x64:bf16", "1x8x1x64:bf16", {"x": "2x8x5x64:bf16"}, 561002),
        ("40x8x30x64:bf16", "1x8x1x64:bf16", {"x": "40x8x30x64:bf16"}, 561002),
        ("8x64:bf16", "8x64:bf16", {}, 561002),
        ("scalar:bf16", "scalar:bf16", {}, 561002),
        ("0x8x4x64:bf16", "1x8x1x64:bf16", {}, 561002),
        ("2x8x4x0:bf16", "1x8x1x64:bf16", {}, 561002),
    ],
)
def test_refusals_of_the_gradient(dy, cos, changed, expected):
    assert status(GRADIENT, dy, cos, **changed)[0] == expected


def test_the_refusal_of_bnsd_names_what_runs():
    _, error = status(FORWARD, "4x33x16x64:bf16", "1x1x16x64:bf16")
    assert "B * N is large or D is not aligned" in str(error)
    assert "S of at least 17" in str(error)
    call(FORWARD, "4x33x17x64:bf16", "1x1x17x64:bf16")
    call(FORWARD, "4x33x16x64:bf16", "4x1x16x64:bf16")
    call(FORWARD, "1x33x16x64:bf16", "1x1x16x64:bf16")
    call(FORWARD, "4x16x33x64:bf16", "1x16x1x64:bf16")
    _, error = status(FORWARD, "2x2x280x72:bf16", "1x1x280x72:bf16", soc="Ascend910B4")
    assert "S of at least 281" in str(error)
    call(FORWARD, "2x2x281x72:bf16", "1x1x281x72:bf16", soc="Ascend910B4")


def test_limits_find_the_smallest_length():
    limits = npu_sim.limits(
        FORWARD,
        vary="x0",
        product="atlas_a2",
        x="4x32x16x64:bf16",
        cos="1x1x16x64:bf16",
        sin="1x1x16x64:bf16",
    )
    (row, *_) = limits.as_dict()["rows"]
    assert row["documented"]["largest"] == 4
    assert "S of at least 20" in row["documented"]["above"]["hint"]


@pytest.mark.parametrize(
    ("operator", "x", "cos", "changed", "code"),
    [
        (FORWARD, "2x8x4x64:bf16", "1x8x1x64:bf16", {"mode": 3, "limits": "hardware"},
         "mode_computed_as_half"),
        (FORWARD, "2x2x281x72:bf16", "1x1x281x72:bf16", {"soc": "Ascend910B4"},
         "refused_on_more_cores"),
        (FORWARD, "9x4x8x64:bf16", "9x1x8x64:bf16", {}, "backward_refused"),
        (FORWARD, "1x1x9x64:bf16", "1x1x1x64:bf16", {}, "undocumented_broadcast"),
        (FORWARD, "2x4000000x9x64:bf16", "1x4000000x1x64:bf16", {"mode": 1},
         "source_stride_wraps"),
        (GRADIENT, "57x5x66:fp32", "57x1x66:fp32", {"release": "9.0"}, "tnd_flag_stays_set"),
        (GRADIENT, "2x8x4x64:bf16", "1x8x1x64:bf16", {}, "dcos_dsin_unwritten"),
        (GRADIENT, "2x8x4x64:bf16", "1x8x1x64:bf16", {"mode": 1, "x": "2x8x4x64:bf16"},
         "sum_order_differs"),
        (GRADIENT, "2000x8x4x64:bf16", "1x8x1x64:bf16", {"limits": "hardware"},
         "documented_bn_exceeded"),
        (GRADIENT, "100x40x700x1x128:bf16".replace("x1x", "x"), "100x1x1x128:bf16",
         {"limits": "hardware"}, "stride_wraps"),
        (GRADIENT, "4x4000000x9x64:bf16", "1x4000000x1x64:bf16", {"mode": 1},
         "element_offset_wraps"),
    ],
)  # fmt: skip
def test_warnings(operator, x, cos, changed, code):
    assert code in codes(operator, x, cos, **changed)


def test_the_state_that_a_3d_gradient_leaves_behind_names_the_mended_software():
    plan = call(GRADIENT, "57x5x66:fp32", "57x1x66:fp32", release="9.0")
    (warning,) = (one for one in plan.caveats if one.code == "tnd_flag_stays_set")
    assert (warning.since, warning.until) == ("8.5", "release 9.1 of 17 July 2026")
    assert "tnd_flag_stays_set" not in codes(GRADIENT, "57x5x66:fp32", "57x1x66:fp32")


def test_plain_calls_have_no_warnings():
    assert codes(FORWARD, "4096x1x16x128:bf16", "4096x1x1x128:bf16") == set()
    dy = "2x8x4x64:bf16"
    assert codes(GRADIENT, dy, "1x8x1x64:bf16", x=dy) == set()
    assert codes(GRADIENT, "57x5x66:fp32", "57x1x66:fp32", x="57x5x66:fp32") == set()


def test_workspace_of_the_releases():
    x, cos = TensorSpec((2, 8, 4, 64), "bfloat16", False), "1x8x1x64:bf16"
    sizes = {}
    for release in ("8.5", "9.1"):
        for given in ("2x8x4x64:bf16", x):
            plan = call(FORWARD, given, cos, release=release)
            sizes[release, given is x] = plan.workspace.total_bytes
            kernels = [launch.kernel for launch in plan.launches]
            assert kernels == ["Contiguous"] * (given is x) + ["RotaryPositionEmbedding"]
    copied = (2 * 8 * 4 * 64 * 2 + 32 + 511) // 512 * 512
    assert sizes == {
        ("8.5", False): 16777216,
        ("8.5", True): 16777216 + copied,
        ("9.1", False): 16777728,
        ("9.1", True): 16777728 + copied,
    }


@pytest.mark.parametrize(
    ("operator", "cos"), [(FORWARD, "1x1x1x64:bf16"), (GRADIENT, "1x0x1x64:bf16")]
)
def test_empty_calls_launch_nothing(operator, cos):
    plan = call(operator, "2x0x4x64:bf16", cos)
    assert (plan.block_dim, plan.workspace.total_bytes, len(plan.launches)) == (0, 0, 0)


def test_a_strided_output_is_refused():
    out = TensorSpec((2, 8, 4, 64), "bfloat16", False)
    found, error = status(FORWARD, "2x8x4x64:bf16", "1x8x1x64:bf16", out=out)
    assert (found, error.argument) == (161002, "out")
    assert "result_not_written" in str(error)


def test_three_axes_are_planned_as_four():
    three = call(FORWARD, "57x5x66:fp32", "57x1x66:fp32")
    four = call(FORWARD, "1x57x5x66:fp32", "1x57x1x66:fp32")
    assert three.tiling == four.tiling
    assert npu_sim.explain(FORWARD, x="57x5x66:fp32", cos="57x1x66:fp32", sin="57x1x66:fp32")


@pytest.mark.parametrize("mode", [0, 1])
def test_the_gradient_is_that_of_the_formula(mode):
    random = np.random.default_rng(0)
    x, dy = random.standard_normal((2, 3, 5, 4, 8), np.float32)
    cos, sin = random.standard_normal((2, 1, 5, 1, 8), np.float32)
    found = npu_sim.run(GRADIENT, dy=dy, cos=cos, sin=sin, x=x, mode=mode).outputs
    turns = {"cos": cos, "sin": sin, "mode": mode}
    step, formula = 1e-2, lambda **given: npu_sim.run(FORWARD, **{"x": x, **turns, **given})
    for name, given, tensor in (("dx", "x", x), ("dcos", "cos", cos), ("dsin", "sin", sin)):
        direction = random.standard_normal(tensor.shape, np.float32)
        high, low = (
            formula(**{given: tensor + side * direction}).outputs["y"].astype(np.float64)
            for side in (step, -step)
        )
        slope = ((high - low) / (2 * step) * dy).sum()
        assert np.isclose((found[name] * direction).sum(), slope, rtol=1e-3, atol=1e-3)


def test_fusing_changes_elements_in_16_bits():
    random = np.random.default_rng(3)
    x = random.standard_normal((1, 64, 4, 64), np.float32)
    cos, sin = random.standard_normal((2, 1, 64, 1, 64), np.float32)
    study = study_precision(FORWARD, x=x, cos=cos, sin=sin)
    by_variant = {one.variant: one for one in study.outputs}
    cause = next(one for one in by_variant["bfloat16, fused"].causes if one.name == "fused_differs")
    assert 0.1 < float(cause.note.split()[0]) / 100 < 0.9
    unfused = by_variant["bfloat16, products rounded before the sum"]
    assert unfused.max_ulp > by_variant["bfloat16, fused"].max_ulp


def test_verify_names_what_was_not_fused():
    random = np.random.default_rng(4)
    x = random.standard_normal((1, 64, 4, 64)).astype(ml_dtypes.bfloat16)
    cos, sin = random.standard_normal((2, 1, 64, 1, 64)).astype(ml_dtypes.bfloat16)
    call = {"x": x, "cos": cos, "sin": sin}
    fused = npu_sim.run(FORWARD, **call).outputs["y"]
    assert npu_sim.verify(FORWARD, **call, y=fused).outputs["y"].status == "equal"
    low, high = np.split(x, 2, axis=-1)
    found = npu_sim.verify(FORWARD, **call, y=x * cos + np.concatenate((-high, low), -1) * sin)
    verdict = found.outputs["y"]
    assert verdict.status == "unreachable"
    assert [one.alternative for one in verdict.explanations] == ["products rounded before the sum"]


@pytest.mark.parametrize(("release", "error"), [("8.5", AclnnError), ("9.1", NotModelledError)])
def test_the_inference_series_is_not_modelled(release, error):
    with pytest.raises(error):
        call(FORWARD, "2x8x4x64:fp16", "1x8x1x64:fp16", product="atlas_inference", release=release)


def test_the_document_limits_n_alone_of_three_axes_in_interleave():
    assert call(FORWARD, "1200x8x128:bf16", "1x8x128:bf16", mode=1).outcome == "runs"
    number, error = status(FORWARD, "12x1000x64:bf16", "1x1000x64:bf16", mode=1)
    assert number == 561103
    assert "documented limit" in str(error)
    assert status(FORWARD, "1x1200x8x128:bf16", "1x1x8x128:bf16", mode=1)[0] == 561103


def test_another_rank_of_cos_is_named_with_its_last_axis():
    with pytest.raises(npu_sim.AclnnError) as refused:
        npu_sim.plan("rotary_position_embedding", x="1x4096x16x80:bf16", cos="4096x40:bf16")
    assert refused.value.message == "cos 4096x40 does not fit x 1x4096x16x80"
    assert refused.value.hint.startswith("4 axes, the last 80")


@pytest.mark.parametrize(("operator", "runs"), [(FORWARD, True), (GRADIENT, False)])
@pytest.mark.parametrize("mode", [0, 1])
def test_an_odd_number_of_columns_is_refused_but_in_interleave_within_the_hardware(
    operator, runs, mode
):
    sizes = (operator, "2x8x4x63:bf16", "1x8x1x63:bf16")
    for limits in ("documented", "hardware"):
        if runs and (mode, limits) == (1, "hardware"):
            assert "last_column_without_partner" in codes(*sizes, mode=mode, limits=limits)
        else:
            assert "D = 63 is odd" in str(status(*sizes, mode=mode, limits=limits)[1])


def test_the_last_of_an_odd_number_of_columns_has_no_partner():
    rng = np.random.default_rng(0)
    x, cos, sin = (
        rng.standard_normal(shape, np.float32) for shape in ((2, 3, 4, 7), *2 * [(1, 3, 1, 7)])
    )
    inputs = {"x": x, "cos": cos, "sin": sin, "mode": 1, "limits": "hardware"}
    y = npu_sim.run(FORWARD, **inputs).outputs["y"]
    even = {name: inputs[name][..., :6] for name in ("x", "cos", "sin")}
    assert np.array_equal(y[..., :6], npu_sim.run(FORWARD, **even, mode=1).outputs["y"])
    assert np.array_equal(y[..., 6], (x * cos)[..., 6])
    other = y.copy()
    other[..., 6] += 1
    verdict = npu_sim.verify(FORWARD, **inputs, soc="Ascend910B1", y=other)
    assert verdict.status == "undecided"

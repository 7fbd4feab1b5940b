"""SwiGlu and SwiGluGrad: contract, shapes, warnings, studies and the record of torch_npu."""

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.shared.gated_halves.study import contradictions
from npu_sim.status import AclnnError, UsageError
from npu_sim.studies.precision import study_precision
from tests.cases import every

OPERATORS = ("swi_glu", "swi_glu_grad")
DIMS = [(-1, "4x6x3"), (2, "4x6x3"), (-2, "4x3x6"), (1, "4x3x6"), (-3, "2x6x6"), (0, "2x6x6")]
"""Values of dim for x 4x6x6, and the shape of a tensor halved along it."""


@pytest.mark.parametrize("seed", every(3, range(3)))
def test_rounding_silu_first_changes_as_many_elements_as_a_device_measured(seed):
    """A public measurement on a 910B2C: 2,592,593 of 9,437,184; fp32 in between is a CPU's."""
    columns = 3072
    x = np.random.default_rng(seed).standard_normal((columns, 2 * columns), np.float32)
    x = x.astype(ml_dtypes.bfloat16)
    a, b = x[:, :columns].astype(np.float32), x[:, columns:].astype(np.float32)
    silu = a / (1 + np.exp(-a))
    rounded_first = (silu.astype(x.dtype).astype(np.float32) * b).astype(x.dtype)
    result = npu_sim.swi_glu(x)
    assert np.count_nonzero(result != (silu * b).astype(x.dtype)) == 0
    assert 2_585_000 < np.count_nonzero(result != rounded_first) < 2_600_000


def call(operator, x, **changed):
    """Return the plan of a call of either operator with x."""
    return npu_sim.plan(operator, x=x, **changed)


def status(operator, x, **changed):
    with pytest.raises(AclnnError) as refused:
        call(operator, x, **changed)
    return int(refused.value.status), refused.value.argument


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(("dim", "half"), DIMS)
def test_shapes_follow_from_dim(operator, dim, half):
    x = np.random.default_rng(0).standard_normal((4, 6, 6), np.float32)
    shape = tuple(map(int, half.split("x")))
    y = npu_sim.swi_glu(x, dim)
    assert y.shape == shape
    a, b = np.split(x.astype(np.float64), 2, axis=dim)
    assert np.allclose(y, a / (1 + np.exp(-a)) * b, rtol=1e-6)
    if operator == "swi_glu_grad":
        given = call(operator, "4x6x6:fp32", dim=dim).arguments
        assert given["y_grad"] == f"{half}:fp32"
        assert npu_sim.swi_glu_grad(y, x, dim).shape == x.shape
        inferred = npu_sim.plan(operator, y_grad=f"{half}:fp32", dim=dim).arguments["x"]
        assert inferred == "4x6x6:fp32"


@pytest.mark.parametrize("dim", [-1, 0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_gradient_is_that_of_the_formula(dim, dtype):
    random = np.random.default_rng(1)
    x = random.standard_normal((6, 4, 8)).astype(dtype)
    half = [size // 2 if axis == dim % 3 else size for axis, size in enumerate(x.shape)]
    grad = random.standard_normal(half).astype(dtype)
    found = npu_sim.swi_glu_grad(grad, x, dim).astype(np.float64)
    a, b = np.split(x.astype(np.float64), 2, axis=dim)
    g, step = grad.astype(np.float64), 1e-6

    def y(a, b):
        return a / (1 + np.exp(-a)) * b

    slope_a = (y(a + step, b) - y(a - step, b)) / (2 * step)
    expected = np.concatenate((g * slope_a, g * y(a, np.ones_like(b))), axis=dim)
    tolerance = {2: 1e-2, 4: 1e-5}[np.dtype(dtype).itemsize]
    assert np.allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"x": "4x6:fp32", "dim": 2}, (161002, "dim")),
        ({"x": "4x6:fp32", "dim": -3}, (161002, "dim")),
        ({"x": "4x6:fp32", "dim": 2**32 - 1}, (161002, "dim")),
        ({"x": "4x5:fp32"}, (561002, "x")),
        ({"x": "4x5x2:fp32", "dim": 1}, (561002, "x")),
        ({"x": "1x1x1x1x1x1x1x1x2:fp32"}, (561002, "x")),
        ({"x": TensorSpec((), "float32")}, (561002, "x")),
        ({"x": "4x6:fp32", "out": "4x2:fp32"}, (561002, "out")),
        ({"x": "4x6:fp32", "out": "4x3:fp16"}, (161002, "out")),
        ({"x": "4x64:bf16", "product": "atlas_inference"}, (161002, None)),
        ({"x": "4x66:fp16", "product": "atlas_inference"}, (561002, "x")),
        ({"x": "0x64:fp16", "product": "atlas_inference"}, (561002, "x")),
        ({"x": "4x64:fp16", "product": "atlas_train"}, (161002, "product")),
    ],
    ids=str,
)
def test_refusals(operator, changed, expected):
    if operator == "swi_glu_grad" and "x" in changed:
        x = TensorSpec.parse(changed["x"]) if isinstance(changed["x"], str) else changed["x"]
        axis = changed.get("dim", -1)
        half = list(x.shape)
        if half and -len(half) <= axis < len(half):
            half[axis] //= 2
        changed = {**changed, "y_grad": TensorSpec(tuple(half), x.dtype)}
    found = status(operator, **changed)
    assert found[0] == expected[0]
    assert expected[1] in (None, found[1])


def test_an_odd_axis_with_an_even_product_is_named():
    with pytest.raises(AclnnError, match="odd_split_axis"):
        call("swi_glu", "4x5x2:fp32", dim=1)
    with pytest.raises(AclnnError) as refused:
        call("swi_glu", "4x5:fp32")
    assert "odd_split_axis" not in str(refused.value)


def test_empty_tensors():
    assert call("swi_glu", "0x4:fp32").launches == ()
    assert npu_sim.swi_glu(np.empty((3, 0), np.float32)).shape == (3, 0)
    assert status("swi_glu_grad", "0x4:fp32") == (561002, "x")
    for product in ("atlas_a2", "atlas_inference", "ascend_950"):
        plan = call("swi_glu_grad", "0x4:fp32", product=product, limits="hardware")
        assert (plan.launches, plan.workspace.total_bytes) == ((), 0)


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_strided_x_is_copied_first(operator):
    plan = call(operator, "64x64:fp32:strided")
    assert plan.launches[0].kernel == "Contiguous"
    assert plan.workspace.total_bytes == 16777216 + 64 * 64 * 4 + 512
    assert "strided_input" in {one.code for one in plan.caveats}
    refused = {"swi_glu": ("8.5", "atlas_inference"), "swi_glu_grad": ("8.5", "atlas_a2")}
    release, product = refused[operator]
    changed = {"release": release, "product": product}
    assert status(operator, "64x64:fp32:strided", **changed) == (561000, "x")
    assert call("swi_glu", "64x64:fp32:strided", release="8.3").launches
    assert status(operator, "64x64:fp32", out="64x64:fp32:strided")[0] in (161002, 561002)


def test_a_strided_output_is_refused():
    assert status("swi_glu", "64x64:fp32", out="64x32:fp32:strided") == (161002, "out")


@pytest.mark.parametrize(
    ("operator", "x", "soc"),
    [("swi_glu", "300x36606:fp16", "Ascend910B4"), ("swi_glu", "56x1052160:fp16", "Ascend910B4")],
)
def test_the_line_pitch_wraps_at_8_3(operator, x, soc):
    def codes(release):
        return {one.code for one in call(operator, x, soc=soc, release=release).caveats}

    assert "tail_pitch_wraps" in codes("8.3")
    assert "tail_pitch_wraps" not in codes("8.5")


def test_few_cores():
    plan = call("swi_glu", "8x1x6144:fp16")
    assert plan.block_dim == 6
    assert [one.code for one in plan.caveats] == ["few_cores"]
    assert call("swi_glu", "8x64:fp16").caveats == ()


def test_warnings_that_depend_on_the_data():
    x = np.zeros((2, 8), np.float32)
    x[0, :4] = [-100, -np.inf, np.inf, -1.2784645]

    def codes(operator, **changed):
        result = npu_sim.run(operator, x=x, **changed)
        return {one.code: one.message.split()[0] for one in result.caveats}

    grad = np.ones((2, 4), np.float32)
    assert codes("swi_glu") == {"exp_overflows": "1", "infinite_gate": "1"}
    found = codes("swi_glu_grad", y_grad=grad)
    assert found == {"exp_overflows": "1", "infinite_gate": "2", "cancels": "1"}
    x[0, 0] = -88
    assert "exp_overflows" not in codes("swi_glu")
    assert codes("swi_glu", product="ascend_950")["exp_overflows"] == "1"


def test_the_gradient_differs_between_products():
    random = np.random.default_rng(2)
    x, grad = random.standard_normal((64, 64), np.float32), random.standard_normal((64, 32))
    call = {"x": x, "y_grad": grad.astype(np.float32)}
    a2, later = (npu_sim.run("swi_glu_grad", product=p, **call) for p in ("atlas_a2", "ascend_950"))
    share = (a2.outputs["x_grad"] != later.outputs["x_grad"]).reshape(64, 2, 32).mean(axis=(0, 2))
    assert np.allclose(share, (0.59, 0.35), atol=0.05)
    assert "results_differ_between_products" in {one.code for one in later.plan.caveats}


def test_a_varied_call_keeps_its_axes():
    answer = npu_sim.explain("swi_glu", x="4x6x64:fp32", dim=1)
    assert answer
    limits = npu_sim.limits("swi_glu_grad", vary="row", x="4x6x64:fp32", dim=1, product="atlas_a2")
    assert limits
    with pytest.raises(UsageError, match="no axis of it"):
        npu_sim.limits("swi_glu_grad", vary="row", x="4x6x64:fp32", dim=0, product="atlas_a2")


@pytest.mark.parametrize(("dtype", "most_ulp"), [("bfloat16", 2), ("float16", 6)])
def test_fusing_changes_a_quarter_of_the_elements(dtype, most_ulp):
    x = np.random.default_rng(3).standard_normal((256, 512), np.float32)
    study = study_precision("swi_glu", x=x)
    by_variant = {one.variant: one for one in study.outputs}
    fused = by_variant[f"{dtype}, fused"]
    unfused = by_variant[f"{dtype}, silu rounded before the product"]
    assert fused.max_ulp < 0.51 < 0.9 < unfused.max_ulp
    cause = next(one for one in fused.causes if one.name == "fused_differs")
    assert 0.2 < float(cause.note.split()[0]) / 100 < 0.35
    assert 1 <= cause.max_ulp <= most_ulp
    assert cause.note.split(" differ")[0] in " ".join(str(study).split())
    assert "float32, silu rounded before the product" not in by_variant


def test_verify_names_what_was_not_fused():
    x = np.random.default_rng(4).standard_normal((32, 128), np.float32).astype(ml_dtypes.bfloat16)
    fused = npu_sim.run("swi_glu", x=x).outputs["y"]
    assert npu_sim.verify("swi_glu", x=x, y=fused).outputs["y"].status == "equal"
    a, b = (half.astype(np.float32) for half in np.split(x, 2, axis=-1))
    silu = (a / (1 + np.exp(-a))).astype(ml_dtypes.bfloat16).astype(np.float32)
    verdict = npu_sim.verify("swi_glu", x=x, y=(silu * b).astype(ml_dtypes.bfloat16))
    found = verdict.outputs["y"]
    assert found.status == "unreachable"
    assert [one.alternative for one in found.explanations] == ["silu rounded before the product"]


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_verify_allows_what_exp_may_do(operator, dtype):
    """A device whose exp is one unit in the last place larger is not called unreachable."""
    random = np.random.default_rng(5)
    x = random.standard_normal((64, 128)).astype(dtype)
    call = {"x": x}
    if operator == "swi_glu_grad":
        call["y_grad"] = random.standard_normal((64, 64)).astype(dtype)
    a, b = (half.astype(np.float32) for half in np.split(x, 2, axis=-1))
    exp = np.nextafter(np.exp(-a), np.float32(np.inf))
    s = np.float32(1) / (exp + np.float32(1))
    measured = s * a * b
    if operator == "swi_glu_grad":
        g = call["y_grad"].astype(np.float32)
        slope = s * (np.float32(1) - s) * a + s
        measured = np.concatenate((slope * b * g, s * a * g), axis=-1)
    name = "y" if operator == "swi_glu" else "x_grad"
    verdict = npu_sim.verify(operator, **{name: measured.astype(dtype)}, **call).outputs[name]
    assert verdict.counts["unreachable"] == 0
    assert verdict.counts["undecided"] > 0 or dtype is not np.float32


@pytest.mark.parametrize("operator", ["swi_glu", "swi_glu_grad", "rms_norm"])
def test_sizes_beyond_int64_are_refused_with_their_number(operator):
    rows, columns = 10**26, 10**50
    call = {
        "swi_glu": {"x": f"{rows}x8:fp32"},
        "swi_glu_grad": {"y_grad": f"{rows}:fp32"},
        "rms_norm": {"x": f"4x{columns}:fp32", "gamma": f"{columns}:fp32"},
    }[operator]
    with pytest.raises(npu_sim.UsageError, match="shapes of the product are int64"):
        npu_sim.plan(operator, **call)


def test_a_dumped_call_without_outputs_contradicts_nothing():
    assert not list(contradictions({}, 1.0))

from functools import partial

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.cores import load_profile
from npu_sim.framework.checking import checked_call
from npu_sim.framework.inference import arguments_of
from npu_sim.framework.target import Target
from npu_sim.operators.loading import load_operator
from npu_sim.operators.rms_norm_grad.plan import first_chunked_columns
from npu_sim.operators.shared.generate import generate
from npu_sim.status import AclnnError, UsageError
from tests.operators.refusals import blame_of, refusal_of

OPERATOR = "rms_norm_grad"
F = np.float32


def specs(shape="60x128", columns="128", rows="60", dtype="fp32", gamma_dtype=None, **changes):
    whole = f"{shape}:{dtype}"
    return {
        "dy": whole,
        "x": whole,
        "rstd": f"{rows}:fp32",
        "gamma": f"{columns}:{gamma_dtype or dtype}",
        **changes,
    }


def plan(product="atlas_a2", soc=None, deterministic=False, limits="documented", **call):
    return npu_sim.plan(
        OPERATOR,
        product=product,
        soc=soc,
        deterministic=deterministic,
        limits=limits,
        **specs(**call),
    )


def planned(rows, columns, dtype="bf16", **options):
    return plan(shape=f"{rows}x{columns}", columns=columns, rows=rows, dtype=dtype, **options)


refusal = partial(refusal_of, plan)


def data(rows=60, columns=128, dtype="fp32", gamma_dtype=None, seed=0):
    call = specs(f"{rows}x{columns}", str(columns), str(rows), dtype, gamma_dtype)
    return generate(OPERATOR, arguments_of(load_operator(OPERATOR), call), seed)


NINE = "1x1x1x1x1x1x1x60x128"


@pytest.mark.parametrize(
    ("status", "argument", "changes"),
    [
        *[(161001, name, {name: None}) for name in ("dy", "x", "rstd", "gamma")],
        (161001, "x", {"x": None, "product": "atlas_train"}),
        (161002, "product", {"product": "atlas_train"}),
        (161002, "product", {"product": "atlas_train", "dtype": "fp64"}),
        *[
            (161002, name, {name: specs()[name] + ":strided"})
            for name in ("dy", "x", "rstd", "gamma")
        ],
        (161002, "x", {"x": "60x128:fp64:strided"}),
        (161002, "dy", {"dtype": "fp64"}),
        (161002, "dy", {"dtype": "int32"}),
        (161002, "x", {"x": "60x128:fp16"}),
        (161002, "rstd", {"rstd": "60:fp16"}),
        (161002, "gamma", {"gamma": "128:fp16"}),
        (161002, "gamma", {"dtype": "fp16", "gamma_dtype": "bf16"}),
        (161002, "dx", {"dx": "60x128:fp16"}),
        (161002, "dgamma", {"dtype": "fp16", "dgamma": "128:fp16"}),
        (161002, "gamma", {"dtype": "fp16", "gamma_dtype": "fp32", "product": "atlas_inference"}),
        (161002, "dy", {"dtype": "bf16", "product": "atlas_inference"}),
        (161002, "dy", {"dtype": "fp64", "x": "1:fp64"}),
        (561002, "x", {"x": "60x128:fp32:FRACTAL_NZ"}),
        (561002, "x", {"shape": NINE}),
        (561002, "x", {"shape": "scalar"}),
        (561002, "gamma", {"columns": "scalar"}),
        (561002, "gamma", {"columns": "1x60x128"}),
        (561002, "x", {"x": "60x127:fp32"}),
        (561002, "dx", {"dx": "60x127:fp32"}),
        (561002, "dgamma", {"dgamma": "127:fp32"}),
        (561002, "gamma", {"columns": "127"}),
        (561002, "rstd", {"rows": "59"}),
        (561002, "rstd", {"rows": "60x2"}),
        (561002, "rstd", {"rows": "1x60"}),
        (561002, "rstd", {"rows": "60x1x1x1x1x1x1x1x1"}),
        (561002, "dy", {"shape": "0x128", "rows": "0"}),
        (561002, "dy", {"shape": "60x0", "columns": "0"}),
        (561002, "x", {"shape": "4294967296x1", "columns": "1", "rows": "4294967296"}),
        (561002, "gamma", {"shape": "1x4294967296", "columns": "4294967296", "rows": "1"}),
        *[
            (
                561002,
                "x",
                {"shape": "60x7", "columns": "7", "product": "atlas_inference", "limits": limits},
            )
            for limits in ("documented", "hardware")
        ],
        (
            561002,
            "x",
            {"shape": "60x15", "columns": "15", "dtype": "fp16", "product": "atlas_inference"},
        ),
        (561002, "x", {"shape": "60x8x4", "columns": "8x4", "product": "atlas_inference"}),
    ],
)
def test_the_first_failing_check_decides_the_status(status, argument, changes):
    assert blame_of(refusal(**changes)) == (status, argument)


@pytest.mark.parametrize(
    ("legal", "changes"),
    [
        ("4294967295", {"shape": "4294967296x1", "columns": "1", "rows": "4294967296"}),
        ("last axis of x >= 8", {"shape": "60x7", "columns": "7", "product": "atlas_inference"}),
        (
            "last axis of x >= 16",
            {"shape": "60x15", "columns": "15", "dtype": "fp16", "product": "atlas_inference"},
        ),
        ("gamma: 128", {"columns": "127"}),
        ("rstd: 60", {"rows": "59"}),
        ("x: 60x128", {"x": "60x127:fp32"}),
        ("gamma fp16", {"dtype": "fp16", "gamma_dtype": "bf16"}),
        ("contiguous copy of x", {"x": "60x128:fp32:strided"}),
        ("atlas_a2", {"product": "atlas_train"}),
    ],
)
def test_a_refusal_names_what_would_be_legal(legal, changes):
    assert legal in refusal(**changes).hint


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": "60x1x1"},
        {"shape": "3978x128", "rows": "3978x1x1"},
        {"shape": "128", "rows": "scalar"},
        {"shape": "2x3x4x128", "rows": "2x3x4"},
        {"shape": "2x3x4x128", "columns": "4x128", "rows": "2x3"},
        {"shape": "1x1x1x1x1x1x60x128", "rows": "1x1x1x1x1x1x60"},
        {"shape": "60x8", "columns": "8", "product": "atlas_inference"},
        {"shape": "60x16", "columns": "16", "dtype": "fp16", "product": "atlas_inference"},
        {"shape": "60x1", "columns": "1"},
        {"dx": "60x128:fp32", "dgamma": "128:fp32"},
        {"dtype": "fp16", "gamma_dtype": "fp32"},
        {"dtype": "bf16", "gamma_dtype": "fp32"},
        {"dtype": "fp16"},
        {"dtype": "bf16"},
        {"product": "atlas_a3", "dtype": "bf16"},
    ],
)
def test_legal_calls_are_planned(changes):
    assert plan(**changes).kernel == "RmsNormGrad"


def test_the_plan_of_the_user_guide():
    made = planned(4096, 8192)
    assert (made.path, made.tiling_key, made.path_reason) == (
        "split D",
        2,
        "col 8192 > 6080; split N up to 6080 columns",
    )
    assert (made.block_dim, made.cores_note) == (48, "86 rows each, the last one 54")
    assert made.per_core == "3 groups of rows (32, 32, 22), 2 pieces of 4096 columns"
    assert (made.memories[0].used_bytes, made.memories[0].capacity_bytes) == (131456, 196352)
    assert [(part.name, part.bytes) for part in made.workspace.parts] == [
        ("system", 16777216),
        ("synchronisation", 1536),
    ]
    dgamma, dx = made.order
    assert not dgamma.fixed
    assert "48 cores add atomically" in dgamma.reason
    assert "18351616 bytes" in dgamma.reason
    assert dx.fixed
    assert made.caveats == ()
    assert "every column" in str(made)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ((1, 8192), "one group of 1 row, 2 pieces of 4096 columns"),
        ((480, 6500), "one group of 10 rows, 2 pieces of columns (4096, 2404)"),
        (
            (12000, 20000),
            "8 groups of rows (32 each, the last one 26), "
            "5 pieces of columns (4096 each, the last one 3616)",
        ),
        ((4096, 4096), "86 batches of 1 row, 4096 columns wide"),
        ((96, 1), "one batch of 2 rows, 1 column wide"),
    ],
)
def test_the_share_of_a_core_in_words(call, text):
    assert planned(*call, dtype="fp32").per_core == text


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(10, 128), (700, 300000), (4096, 8192)])
def test_workspace_parts_add_up(rows, columns, deterministic):
    made = planned(rows, columns, dtype="fp16", soc="Ascend910B4", deterministic=deterministic)
    assert (
        sum(part.bytes for part in made.workspace.parts)
        == made.workspace.total_bytes
        == made.workspace.kernel_bytes
    )
    names = [part.name for part in made.workspace.parts]
    assert ("dgamma of every core" in names) == deterministic
    assert ("means of every row" in names) == (deterministic and columns == 300000)


def test_one_core_is_deterministic_by_itself():
    assert planned(1, 128).order[0].fixed
    assert planned(60, 128, deterministic=True).order[0].fixed
    assert not planned(60, 128).order[0].fixed


@pytest.mark.parametrize(
    ("rows", "columns", "options"),
    [
        (60, 500, {}),
        (60, 1000, {"deterministic": True}),
        (60, 9000, {}),
        (60, 640, {"product": "atlas_inference", "dtype": "fp16"}),
        (204, 340041, {"deterministic": True, "dtype": "fp32", "soc": "Ascend910B3"}),
        (204, 100000, {"deterministic": True, "dtype": "fp32", "soc": "Ascend910B3"}),
    ],
)
def test_every_flip_turns_its_decision_around(rows, columns, options):
    made = planned(rows, columns, **options)
    assert made.decisions
    for decision in made.decisions:
        assert decision.flips, decision.name
        for flip in decision.flips:
            changed = (
                {"deterministic": flip.value == "true"} if flip.argument == "deterministic" else {}
            )
            wide = flip.value if flip.argument == "col" else columns
            other = planned(rows, wide, **{**options, **changed})
            outcomes = {decision.name: decision.outcome for decision in other.decisions}
            assert outcomes[decision.name] is not decision.outcome
            if flip.argument == "col":
                step = 1 if flip.value < columns else -1
                nearer = planned(rows, flip.value + step, **options)
                assert {decision.name: decision.outcome for decision in nearer.decisions}[
                    decision.name
                ] is decision.outcome


def test_there_is_no_flip_where_chunks_never_come():
    declared = load_operator(OPERATOR)
    case = checked_call(
        declared, specs("8192x9000", "9000", "8192"), Target(load_profile("atlas_a2"), True)
    )
    assert first_chunked_columns(case) is None
    chunks = next(
        decision
        for decision in planned(8192, 9000, dtype="fp32", deterministic=True).decisions
        if decision.name == "chunks"
    )
    assert not chunks.outcome
    assert chunks.flips == ()


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "message"),
    [
        (6144, 200000, "bf16", "without chunks otherwise"),
        (8192, 262144, "bf16", "the decision is the same"),
    ],
)
def test_the_wrap_at_4_gib_is_told(rows, columns, dtype, message):
    (caveat,) = planned(rows, columns, dtype, deterministic=True).caveats
    assert caveat.code == "total_size_wraps"
    assert message in caveat.message
    assert str(2 * rows * columns * 2 + 4 * rows + columns * 2) in caveat.message
    assert planned(rows, columns, dtype).caveats == ()


def test_a_smaller_buffer_is_told_not_refused():
    profile = load_profile("atlas_a2")
    product = profile.product
    chip = product.socs["Ascend910B1"].model_copy(update={"ub_bytes": 98304})
    small = product.model_copy(update={"socs": {"Ascend910B1": chip}})
    half = profile.model_copy(update={"product": small, "soc": "Ascend910B1"})
    (caveat,) = planned(4096, 8192, product=half).caveats
    assert caveat.code == "buffers_exceed_unified_buffer"
    assert "131456" in caveat.message
    assert "98048" in caveat.message


def test_ascend_910_chips_take_multiples_of_64_if_a_profile_enables_them():
    train = load_profile("atlas_train")
    product = train.product.model_copy(update={"operators": (*train.product.operators, OPERATOR)})
    enabled = train.model_copy(update={"product": product})
    made = planned(60, 128, dtype="fp16", product=enabled)
    assert made.evidence == "model"
    with pytest.raises(AclnnError) as refused:
        planned(60, 130, dtype="fp16", product=enabled)
    assert int(refused.value.status) == 561002
    assert "128 or 192" in refused.value.hint


@pytest.mark.parametrize(
    ("given", "inferred"),
    [
        (
            {"dy": "4096x8192:bf16", "gamma": "8192:bf16"},
            {"x": "4096x8192:bf16", "rstd": "4096:fp32"},
        ),
        ({"x": "2x3x8:fp32", "gamma": "3x8:fp32"}, {"dy": "2x3x8:fp32", "rstd": "2:fp32"}),
        ({"dy": "8:fp32", "gamma": "8:fp32"}, {"x": "8:fp32", "rstd": "scalar:fp32"}),
        (
            {"dy": "2x8:fp32", "gamma": "8:fp32", "rstd": "2x1:fp32"},
            {"x": "2x8:fp32", "rstd": "2x1:fp32"},
        ),
    ],
)
def test_planning_infers_what_is_implied(given, inferred):
    assert {
        name: str(spec)
        for name, spec in arguments_of(load_operator(OPERATOR), given, infer=True).items()
        if spec is not None
    } == {**given, **inferred}


@pytest.mark.parametrize(
    ("given", "missing"), [({"dy": "2x8:fp32"}, "gamma"), ({"gamma": "8:fp32"}, "dy")]
)
def test_what_nothing_implies_is_missing(given, missing):
    with pytest.raises(UsageError, match=f"{missing} is missing"):
        arguments_of(load_operator(OPERATOR), given, infer=True)


def test_nothing_is_inferred_from_nonsense():
    with pytest.raises(UsageError) as refused:
        arguments_of(load_operator(OPERATOR), {"dy": "nonsense", "gamma": "8:fp32"}, infer=True)
    assert refused.value.argument == "dy"


def test_the_sample_of_the_product_document():
    values = np.arange(1, 33, dtype=F).reshape(2, 1, 16)
    rstd, gamma = np.array([1, 2], F), np.arange(1, 17, dtype=F)
    dx, dgamma = npu_sim.rms_norm_grad(values, values, rstd, gamma)
    assert dx.shape == (2, 1, 16)
    # Every number here is a whole one below 2^24 or has few digits, so that any order of additions
    # gives it.
    x = values.reshape(2, 16).astype(np.float64)
    xh = x * rstd[:, None]
    mean = (x * gamma * xh).mean(axis=1, keepdims=True)
    assert np.array_equal(dgamma, (x * xh).sum(axis=0))
    assert np.allclose(dx.reshape(2, 16), (x * gamma - xh * mean) * rstd[:, None], rtol=1e-6)


@pytest.mark.parametrize("shape", [(60, 128), (12, 5, 128), (60, 4, 32)])
def test_shapes_are_kept(shape):
    inputs = data()
    inputs = {
        name: array.reshape(shape) if name in ("dy", "x") else array
        for name, array in inputs.items()
    }
    inputs["gamma"] = inputs["gamma"].reshape(shape[-2:] if shape[-1] == 32 else shape[-1:])
    inputs["rstd"] = inputs["rstd"].reshape(shape[: -inputs["gamma"].ndim])
    dx, dgamma = npu_sim.rms_norm_grad(**inputs)
    assert dx.shape == shape
    assert dgamma.shape == inputs["gamma"].shape
    flat_dx, flat_dgamma = npu_sim.rms_norm_grad(**data())
    assert np.array_equal(dx.reshape(60, 128), flat_dx)
    assert np.array_equal(dgamma.reshape(-1), flat_dgamma)


@pytest.mark.parametrize(
    ("dtype", "gamma_dtype"), [("fp32", "fp32"), ("fp16", "fp16"), ("bf16", "fp32")]
)
def test_results_are_close_to_the_formula(dtype, gamma_dtype):
    inputs = data(200, 700, dtype, gamma_dtype)
    result = npu_sim.run(OPERATOR, **inputs)
    dy, x, rstd, gamma = (array.astype(np.float64) for array in inputs.values())
    xh = x * rstd[:, None]
    dx = (dy * gamma - xh * (dy * gamma * xh).mean(axis=1, keepdims=True)) * rstd[:, None]
    tolerance = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 2e-2}[dtype]
    assert np.allclose(result.outputs["dx"].astype(np.float64), dx, rtol=tolerance, atol=tolerance)
    assert np.allclose(result.outputs["dgamma"], (dy * xh).sum(axis=0), rtol=1e-4, atol=1e-4)
    assert result.outputs["dx"].dtype == inputs["x"].dtype
    assert result.outputs["dgamma"].dtype == np.float32


@pytest.mark.parametrize(
    ("options", "rows", "moving"),
    [
        ({}, 60, 128),
        ({"deterministic": True}, 60, 0),
        ({}, 1, 0),
        ({"core_order": "random", "seed": 3}, 60, 128),
    ],
)
def test_the_order_mask_is_known_beforehand(options, rows, moving):
    result = npu_sim.run(OPERATOR, **data(rows), **options)
    assert result.order_dependent["dgamma"].axis == "column"
    assert result.order_dependent["dgamma"].count == moving
    assert result.order_dependent["dx"].count == 0
    assert result.plan.order[0].fixed == (moving == 0)


def test_orders_change_dgamma_only():
    inputs = data(3000, 300)
    base_dx, base_dgamma = npu_sim.rms_norm_grad(**inputs)
    changed = 0
    for options in (
        {"core_order": "reverse"},
        {"core_order": "random", "seed": 1},
        {"core_order": "random", "seed": 2},
    ):
        dx, dgamma = npu_sim.rms_norm_grad(**inputs, **options)
        assert np.array_equal(dx, base_dx)
        changed += not np.array_equal(dgamma, base_dgamma)
    assert changed == 3
    again = npu_sim.rms_norm_grad(**inputs, core_order="random", seed=2)
    assert np.array_equal(again[1], dgamma)
    fixed = [
        npu_sim.rms_norm_grad(**inputs, deterministic=True, core_order=order)[1]
        for order in ("sequential", "random")
    ]
    assert np.array_equal(*fixed)


def test_outputs_are_written_where_the_caller_says():
    inputs = data(60, 128, "bf16")
    expected = npu_sim.rms_norm_grad(**inputs)
    dx, wide = np.zeros((60, 128), ml_dtypes.bfloat16), np.zeros((128, 2), F)
    written = npu_sim.rms_norm_grad(**inputs, out=(dx, wide[:, 0]))
    assert written[0] is dx
    assert np.shares_memory(written[1], wide)
    assert np.array_equal(dx, expected[0])
    assert np.array_equal(wide[:, 0], expected[1])
    assert not wide[:, 1].any()
    assert npu_sim.rms_norm_grad(**inputs, out=(None, wide[:, 1]))[0].shape == (60, 128)
    assert np.array_equal(wide[:, 1], expected[1])


@pytest.mark.parametrize(
    "out",
    [
        (np.zeros((60, 127), F), None),
        (np.zeros((60, 128), np.float16), None),
        (None, np.zeros(128, np.float16)),
        (None, None, None),
        "an input",
        "the same memory",
    ],
)
def test_unsuitable_outputs_are_refused_and_nothing_is_written(out):
    inputs = data()
    if out == "an input":
        out = (inputs["dy"], None)
    elif out == "the same memory":
        both = np.zeros(60 * 128, F)
        out = (both.reshape(60, 128), both[:128])
    before = [None if array is None else array.copy() for array in out]
    with pytest.raises(UsageError):
        npu_sim.rms_norm_grad(**inputs, out=out)
    for array, copy in zip(out, before, strict=True):
        assert array is None or np.array_equal(array, copy)


def test_a_strided_input_is_refused():
    inputs = data(60, 256)
    with pytest.raises(AclnnError) as refused:
        npu_sim.rms_norm_grad(
            **{
                **inputs,
                "x": inputs["x"][:, ::2],
                "dy": inputs["dy"][:, ::2],
                "gamma": inputs["gamma"][::2],
            }
        )
    assert int(refused.value.status) == 161002
    assert "contiguous copy" in refused.value.hint


def test_saturating_products_have_no_inf_and_no_nan_and_say_so():
    inputs = data(60, 128, "fp16")
    inputs["dy"][3, 4] = np.inf
    inputs["dy"][5, 6] = np.nan
    inputs["x"][7] = 60000
    result = npu_sim.run(OPERATOR, **inputs, product="atlas_inference")
    for array in result.outputs.values():
        assert np.isfinite(array).all()
    # inf times anything is inf, which becomes the largest number; where it meets itself it is nan,
    # which becomes 0.
    assert [abs(float(value)) for value in result.outputs["dx"][3]] == [
        0.0 if column == 4 else 65504.0 for column in range(128)
    ]
    assert not result.outputs["dx"][5].any()
    (caveat,) = result.caveats
    assert (caveat.code, caveat.argument) == ("inf_or_nan_input", "dy")
    assert "2 elements" in caveat.message
    assert npu_sim.run(OPERATOR, **data(60, 128, "fp16"), product="atlas_inference").caveats == ()
    result = npu_sim.run(OPERATOR, **inputs)
    assert np.isnan(result.outputs["dx"][5]).all()
    assert result.caveats == ()


def test_core_counts_change_the_last_bits_only():
    inputs = data(3000, 300)
    results = [npu_sim.rms_norm_grad(**inputs, soc=soc) for soc in ("Ascend910B1", "Ascend910B4")]
    assert np.array_equal(results[0][0], results[1][0])
    assert not np.array_equal(results[0][1], results[1][1])
    assert np.allclose(results[0][1], results[1][1], rtol=1e-4, atol=1e-3)


def test_generated_data_is_normalised_and_repeatable():
    inputs = data(50, 400, "bf16")
    assert np.allclose(
        1 / np.square(inputs["rstd"]), np.mean(np.square(inputs["x"].astype(F)), axis=1), rtol=1e-4
    )
    assert abs(float(inputs["gamma"].astype(F).mean()) - 1) < 0.05
    assert all(
        np.array_equal(array, again)
        for array, again in zip(inputs.values(), data(50, 400, "bf16").values(), strict=True)
    )
    assert not np.array_equal(inputs["x"], data(50, 400, "bf16", seed=1)["x"])

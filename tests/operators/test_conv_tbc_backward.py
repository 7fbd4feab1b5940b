"""ConvTbcBackward through the public API: contract, plan, workspace, precision of results."""

from functools import partial

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npu_sim
from npu_sim.cores import config_directory, load_profile
from npu_sim.framework.inference import arguments_of
from npu_sim.framework.operator import DATA
from npu_sim.kernels.shared.elementwise import round_to_hf32
from npu_sim.operators.conv_tbc_backward.declaration import OPERATOR as DECLARED
from npu_sim.plans.answers import Evidence
from npu_sim.status import UsageError
from npu_sim.tiling.conv_tbc_backward.grad_weight_deterministic import (
    ConvTbcProblem,
    published_planner_takes,
)
from tests.cases import every
from tests.operators.refusals import blame_of, refusal_of
from tests.reference import conv_tbc_backward as reference

OPERATOR = "conv_tbc_backward"
BF16 = ml_dtypes.bfloat16
GOOD = {
    "grad_output": "128x4x96:fp32",
    "input": "128x4x64:fp32",
    "weight": "3x64x96:fp32",
    "bias": "96:fp32",
    "pad": 1,
}


def with_dtype(dtype, **changes):
    return {
        name: value.split(":")[0] + f":{dtype}" if isinstance(value, str) else value
        for name, value in GOOD.items()
    } | changes


def call(time, batch, in_channels, out_channels, taps, pad, dtype="fp32", **changes):
    out_time = time + 2 * pad - taps + 1
    return {
        "grad_output": f"{out_time}x{batch}x{out_channels}:{dtype}",
        "input": f"{time}x{batch}x{in_channels}:{dtype}",
        "weight": f"{taps}x{in_channels}x{out_channels}:{dtype}",
        "bias": f"{out_channels}:{dtype}",
        "pad": pad,
        **changes,
    }


def plan(
    arguments=None,
    product="atlas_a2",
    soc=None,
    deterministic=False,
    limits="documented",
    **changes,
):
    given_arguments = {**(GOOD if arguments is None else arguments), **changes}
    return npu_sim.plan(
        OPERATOR,
        product=product,
        soc=soc,
        deterministic=deterministic,
        limits=limits,
        **given_arguments,
    )


refusal = partial(refusal_of, plan)


def tensors(time, batch, in_channels, out_channels, taps, pad, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    shapes = (
        (time + 2 * pad - taps + 1, batch, out_channels),
        (time, batch, in_channels),
        (taps, in_channels, out_channels),
        (out_channels,),
    )
    return [rng.standard_normal(shape, np.float32).astype(dtype) for shape in shapes]


def run(values, pad, math_type=0, **options):
    names = ("grad_output", "input", "weight", "bias")
    return npu_sim.run(
        OPERATOR,
        **dict(zip(names, values, strict=True)),
        pad=pad,
        cube_math_type=math_type,
        **options,
    )


@pytest.mark.parametrize(
    ("status", "argument", "changes"),
    [
        (161001, "grad_output", {"grad_output": None}),
        (161001, "input", {"input": None}),
        (161001, "weight", {"weight": None}),
        (161001, "bias", {"bias": None}),
        (161001, "bias", {"bias": None, "product": "atlas_inference"}),
        (161002, "product", {"product": "atlas_inference"}),
        (161002, "product", {"product": "atlas_inference", "input": "128x4x64:fp64"}),
        (161002, "input", {"input": "128x4x64:fp64"}),
        (161002, "grad_output", {"grad_output": "128x4x96:int32", "input": "128x4x64:fp64"}),
        (161002, "weight", {"weight": "3x64x96:fp16"}),
        (161002, "bias", {"bias": "96:bf16"}),
        (161002, "grad_input", {"grad_input": "128x4x64:fp16"}),
        (161002, "grad_weight", {"grad_weight": "3x64x96:fp16"}),
        (161002, "grad_bias", {"grad_bias": "96:fp16"}),
        (161002, "bias", {"bias": "96:fp32:NCL"}),
        (161002, "grad_bias", {"grad_bias": "96:fp32:NCL"}),
        (161002, "input", {"input": "128x4x64:fp32:FRACTAL_NZ"}),
        (161002, "weight", {"weight": "3x64x96:fp32:NCHW", "input": "128x64:fp32"}),
        (161002, "grad_output", {"grad_output": "0x4x96:fp32"}),
        (161002, "grad_output", {"grad_output": "0x96:fp32"}),
        (161002, "grad_output", {"grad_output": "128x96:fp32"}),
        (161002, "input", {"input": "128x64:fp32"}),
        (161002, "weight", {"weight": "64x96:fp32"}),
        (161002, "bias", {"bias": "1x96:fp32"}),
        (161002, "grad_bias", {"grad_bias": "1x96:fp32"}),
        (161002, "weight", {"weight": "3x63x96:fp32"}),
        (161002, "bias", {"bias": "95:fp32"}),
        (161002, "pad", {"pad": -1}),
        (161002, "pad", {"pad": 0, "weight": "130x64x96:fp32"}),
        (161002, "grad_output", {"pad": 2}),
        (161002, "grad_output", {"grad_output": "128x5x96:fp32"}),
        (161002, "grad_input", {"grad_input": "128x4x63:fp32"}),
        (161002, "grad_weight", {"grad_weight": "3x64x95:fp32"}),
        (161002, "cube_math_type", {"cube_math_type": 4}),
        (161002, "cube_math_type", {"cube_math_type": -1}),
    ],
)
def test_the_first_failing_check_decides_the_status(status, argument, changes):
    assert blame_of(refusal(**changes)) == (status, argument)


@pytest.mark.parametrize(
    ("profile", "dtype", "computed"),
    [
        ("atlas_train", "fp16", ["float16"] * 4),
        ("atlas_train", "fp32", [None, "float16", "float16", None]),
        ("atlas_train", "bf16", [None] * 4),
        ("atlas_a2", "fp16", ["float16"] * 4),
        ("atlas_a2", "fp32", ["float32", "hf32", "float16", "hf32"]),
        ("atlas_a2", "bf16", ["bfloat16", "bfloat16", "float16", "bfloat16"]),
        ("atlas_a3", "fp32", ["float32", "hf32", "float16", "hf32"]),
    ],
)
def test_cube_math_type_by_product_and_dtype(profile, dtype, computed):
    for math_type, expected in enumerate(computed):
        arguments = with_dtype(dtype, cube_math_type=math_type)
        if expected is None:
            assert int(refusal(arguments, product=profile).status) == 161002
        else:
            assert plan(arguments, product=profile).decisions[0].values["computed in"] == expected


@pytest.mark.parametrize(
    ("arguments", "argument", "limit"),
    [
        (call(600, 1, 1, 1, 256, 0), "weight", "255"),
        (call(8, 1, 1, 1, 3, 256), "pad", "255"),
        (call(2147483647, 1, 1, 1, 1, 0), "grad_output", "2147483646"),
        (call(1, 2147483647, 1, 1, 1, 0), "grad_output", "2147483646"),
    ],
)
def test_documented_ranges_hold_on_a2_only_and_can_be_lifted(arguments, argument, limit):
    refused = refusal(arguments)
    assert (int(refused.status), refused.argument) == (161002, argument)
    assert limit in refused.hint
    assert plan(arguments, limits="hardware").block_dim >= 1
    assert plan(arguments, product="atlas_train", cube_math_type=2).block_dim >= 1


def test_both_ends_of_the_documented_ranges_are_legal():
    assert plan(call(300, 1, 1, 1, 255, 255)).block_dim >= 1
    assert plan(call(2147483646, 1, 1, 1, 1, 0)).block_dim >= 1


@pytest.mark.parametrize(
    ("changes", "total"),
    [
        (call(5, 1, 2, 2, 1, 0, cube_math_type=1), 4608),
        (with_dtype("fp16"), 337920),
        ({**GOOD, "cube_math_type": 2}, 534528),
    ],
)
def test_worked_workspace_totals(changes, total):
    workspace = plan(changes).workspace
    assert workspace.total_bytes == total
    assert sum(part.bytes for part in workspace.parts) == total
    assert [part.name for part in workspace.unknown] == ["workspace of ReduceSum"]


def test_copies_of_strided_tensors_are_counted_twice():
    strided = {
        name: f"{value}:strided" if isinstance(value, str) else value
        for name, value in GOOD.items()
    }
    copies = [
        launch.outputs[0].name for launch in plan(strided).launches if launch.kernel == "Contiguous"
    ]
    entered = ("grad_output", "weight", "input", "bias")
    assert copies[:4] == [f"entry copy of {name}" for name in entered]
    assert copies[4:] == [f"contiguous {name}" for name in ("grad_output", "input", "weight")]
    sample = {
        name: f"{text}:strided" if isinstance(text, str) else text
        for name, text in call(5, 1, 2, 2, 1, 0).items()
    }
    # By hand: copies share the buckets of later tensors; three hold a Transpose's 1024 bytes, one
    # the weight in cube layout.
    assert plan(sample, cube_math_type=1).workspace.total_bytes == 3 * 1536 + 1024 + 512


def test_the_deterministic_planner_brings_its_own_workspace():
    planned = plan(deterministic=True)
    assert planned.tiling["route"] == "planner"
    tiling = planned.tiling["gradWeight"]
    slots = (
        4 * tiling["singleCoreM"] * tiling["singleCoreN"] * tiling["usedCoreNum"]
        if tiling["streamKType"]
        else 0
    )
    assert planned.workspace.kernel_bytes == 16777216 + slots
    assert [part.name for part in planned.workspace.unknown] == ["workspace of ReduceSum"]
    weight_memories = [memory for memory in planned.memories if memory.phase == "gradWeight"]
    assert {memory.evidence for memory in weight_memories} == {Evidence.EXACT}


@pytest.mark.parametrize("deterministic", [False, True])
def test_output_length_one_is_a_matrix_product_of_unknown_workspace(deterministic):
    planned = plan(call(7, 4, 64, 96, 7, 0), deterministic=deterministic)
    assert planned.tiling["route"] == "matmul"
    unknown = [part.name for part in planned.workspace.unknown]
    assert unknown == [
        "workspace of ReduceSum",
        "workspace of BatchMatMul of gradInput",
        "workspace of BatchMatMul of gradWeight",
    ]
    assert (
        plan(call(7, 4, 64, 96, 7, 0), product="atlas_train", cube_math_type=2).tiling["route"]
        == "model"
    )


@pytest.mark.parametrize(
    "arguments", [call(0, 2, 4, 3, 1, 2), call(6, 2, 0, 3, 3, 1), call(6, 2, 4, 3, 0, 0)]
)
def test_empty_input_or_weight_gives_a_constant_bias_gradient(arguments):
    planned = plan(arguments)
    assert (planned.block_dim, planned.workspace.total_bytes) == (0, 0)
    codes = [caveat.code for caveat in planned.caveats]
    assert codes == ["axis_beyond_documented", "grad_bias_constant"]
    values = [
        npu_sim.TensorSpec.parse(arguments[name])
        for name in ("grad_output", "input", "weight", "bias")
    ]
    arrays = [np.full(spec.shape, 3, np.float32) for spec in values]
    grad_input, grad_weight, grad_bias = npu_sim.conv_tbc_backward(*arrays, arguments["pad"])
    assert not grad_input.any()
    assert not grad_weight.any()
    np.testing.assert_array_equal(grad_bias, values[0].shape[0] * values[0].shape[1])


def made_up(tmp_path, **facts):
    text = (config_directory() / "atlas_a2.yaml").read_text(encoding="utf-8")
    for name, value in facts.items():
        before = next(line for line in text.splitlines() if line.strip().startswith(f"{name}:"))
        text = text.replace(before, f"{before.split(':')[0]}: {value}")
    path = tmp_path / "made_up.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_tile_that_does_not_fit_is_561103_with_buffer_bytes_and_nearest_k(tmp_path):
    profile = made_up(tmp_path, l1_bytes=20000)
    arguments = call(400, 2, 32, 32, 200, 3)
    refused = refusal(arguments, product=profile)
    assert int(refused.status) == 561103
    for fact in ("L1", "20000", "gradInput"):
        assert fact in refused.message
    largest = int(refused.hint.rsplit(" ", 1)[1])
    assert plan(call(400, 2, 32, 32, largest, 3), product=profile).block_dim > 0
    assert int(refusal(call(400, 2, 32, 32, largest + 1, 3), product=profile).status) == 561103
    assert "no K fits" in refusal(GOOD, product=made_up(tmp_path, l0c_bytes=512)).hint


def test_planner_defects_are_hardware_limit_warnings():
    codes = {
        caveat.code
        for caveat in plan(call(2146, 32, 80, 8, 7, 3, "bf16"), deterministic=True).caveats
    }
    assert "hardware_limit_l0b" in codes
    codes = {
        caveat.code
        for caveat in plan(call(5989, 2, 3, 1, 23, 0, "bf16"), deterministic=True).caveats
    }
    assert "hardware_limit_l1" in codes
    assert plan(deterministic=True).caveats == ()


def changed_by(flip, arguments, deterministic):
    time, batch, in_channels = (int(size) for size in arguments["input"].split(":")[0].split("x"))
    taps, _, out_channels = (int(size) for size in arguments["weight"].split(":")[0].split("x"))
    sizes = {
        "T": time,
        "B": batch,
        "Cin": in_channels,
        "Cout": out_channels,
        "K": taps,
        "pad": arguments["pad"],
    }
    sizes |= {flip.argument: flip.value} if flip.argument in sizes else {}
    changed = call(*sizes.values(), arguments["input"].split(":")[1])
    changed["cube_math_type"] = (
        flip.value if flip.argument == "cubeMathType" else arguments.get("cube_math_type", 0)
    )
    return changed, flip.value == "true" if flip.argument == "deterministic" else deterministic


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [
        GOOD,
        call(128, 4, 64, 96, 3, 0),
        call(7, 4, 64, 96, 7, 0),
        call(7, 1, 64, 1, 7, 0),
        call(8, 1, 4, 2, 4, 0),
        call(7, 4, 64, 96, 7, 1),
        call(128, 4, 64, 96, 3, 5),
        call(9000, 1, 16, 16, 3, 1),
        call(128, 4, 64, 96, 3, 1, cube_math_type=2),
        call(128, 4, 64, 96, 3, 1, "bf16", cube_math_type=2),
    ],
)
def test_every_flip_changes_the_outcome_of_its_decision(arguments, deterministic):
    for decision in plan(arguments, deterministic=deterministic).decisions:
        for flip in decision.flips:
            changed, switched = changed_by(flip, arguments, deterministic)
            # Only white-listed shapes have this decision.
            decisions = plan(changed, deterministic=switched).decisions
            outcomes = {other.name: other.outcome for other in decisions}
            outcome = outcomes.get(decision.name, False)
            assert outcome is not decision.outcome, f"{decision.name} does not flip at {flip}"


@settings(max_examples=60)
@given(
    time=st.integers(1, 3000),
    batch=st.integers(1, 70),
    in_channels=st.integers(1, 600),
    out_channels=st.integers(1, 600),
    taps=st.integers(1, 255),
    pad=st.integers(0, 255),
    math_type=st.integers(1, 2),
    product=st.sampled_from(["atlas_a2", "atlas_train", "atlas_a3"]),
    deterministic=st.booleans(),
)
def test_plans_of_any_legal_shape_are_consistent(
    time, batch, in_channels, out_channels, taps, pad, math_type, product, deterministic
):
    if time + 2 * pad - taps + 1 <= 0:
        return
    arguments = call(time, batch, in_channels, out_channels, taps, pad, cube_math_type=math_type)
    planned = plan(arguments, product=product, deterministic=deterministic)
    assert 1 <= planned.block_dim <= planned.cores_available
    assert sum(part.bytes for part in planned.workspace.parts) == planned.workspace.total_bytes
    warned = any(caveat.code.startswith("hardware_limit") for caveat in planned.caveats)
    assert warned or all(memory.free_bytes >= 0 for memory in planned.memories)
    fixed = {order.output: order.fixed for order in planned.order}
    assert fixed["grad_input"]
    assert fixed["grad_bias"] or (product == "atlas_train" and not deterministic)
    assert fixed["grad_weight"] or not deterministic


TOLERANCE = {
    "float16": (2.0**-9, 2.0**-9, 0.1),
    "bfloat16": (2.0**-6, 2.0**-6, 1),
    "float32": (2.0**-10, 2.0**-16, 0.01),
    "hf32": (2.0**-9, 2.0**-10, 0.1),
}
"""Relative and absolute tolerance, and largest error, of the mixed tolerance standard
(specification page ``precision``)."""


def assert_meets_the_standard(result, wanted, compute):
    relative, absolute, largest = TOLERANCE[compute]
    error = np.abs(result.astype(np.float64) - wanted)
    assert (error <= absolute + relative * np.abs(wanted)).mean() >= 0.99
    if error.size:
        assert (
            error <= np.maximum(largest, 32 * np.spacing(np.abs(wanted).astype(np.float32)))
        ).all()


SHAPES = [
    (40, 3, 37, 50, 3, 1),
    (1, 4, 17, 5, 1, 0),
    (64, 1, 33, 20, 5, 2),
    (300, 2, 9, 11, 255, 20),
    (6, 2, 5, 7, 3, 255),
    (12, 3, 18, 35, 12, 0),
    (2, 70, 16, 16, 2, 1),
]
COMPUTED = [
    (np.float32, 0, "float32"),
    (np.float32, 1, "hf32"),
    (np.float32, 2, "float16"),
    (np.float32, 3, "hf32"),
    (np.float16, 0, "float16"),
    (BF16, 0, "bfloat16"),
]


def operands(values, compute):
    """Return the operands as the cube unit reads them, from which the golden value is computed."""
    if compute == "hf32":
        return [round_to_hf32(array) for array in values]
    return [array.astype(np.float16) for array in values] if compute == "float16" else values


@pytest.mark.parametrize(("dtype", "math_type", "compute"), COMPUTED)
@pytest.mark.parametrize("shape", every(2, [(shape,) for shape in SHAPES]))
def test_gradients_meet_the_precision_standard_of_the_compute_dtype(
    shape, dtype, math_type, compute
):
    values, pad = tensors(*shape, dtype=dtype), shape[-1]
    grad_input, grad_weight, _ = reference.gradients(*operands(values[:3], compute), pad)
    wanted = (grad_input, grad_weight, values[0].astype(np.float64).sum(axis=(0, 1)))
    standards = (compute, compute, np.dtype(dtype).name)
    for deterministic in (False, True):
        result = run(values, pad, math_type, deterministic=deterministic, core_order="random")
        for name, expected, standard in zip(
            ("grad_input", "grad_weight", "grad_bias"), wanted, standards, strict=True
        ):
            assert_meets_the_standard(result.outputs[name], expected, standard)
            assert result.outputs[name].dtype == dtype


@pytest.mark.parametrize(
    ("math_type", "compute"), [(0, "float32"), (1, "hf32"), (2, "float16"), (3, "hf32")]
)
def test_conversion_of_realistic_data_stays_within_the_standard(math_type, compute):
    arguments = arguments_of(DECLARED, call(60, 4, 80, 100, 5, 2))
    values = list(DECLARED.hook(DATA)(arguments, seed=1).values())
    result = run(values, 2, math_type)
    for array, expected in zip(
        result.outputs.values(), reference.gradients(*values[:3], 2), strict=True
    ):
        assert_meets_the_standard(array, expected, compute)


def test_the_example_of_the_product_document_runs():
    ones = [np.ones(shape, np.float32) for shape in ((5, 1, 2), (5, 1, 2), (1, 2, 2), (2,))]
    grad_input, grad_weight, grad_bias = npu_sim.conv_tbc_backward(*ones, 0, 1)
    np.testing.assert_array_equal(grad_input, np.full((5, 1, 2), 2))
    np.testing.assert_array_equal(grad_weight, np.full((1, 2, 2), 5))
    np.testing.assert_array_equal(grad_bias, [5, 5])


def test_two_seeds_differ_only_where_the_mask_is_set():
    values = tensors(96, 6, 20, 35, 40, 3)
    first, second = (run(values, 3, core_order="random", seed=seed) for seed in (1, 2))
    mask = first.order_dependent["grad_weight"].mask
    moved = first.outputs["grad_weight"] != second.outputs["grad_weight"]
    assert moved.any()
    assert not (moved & ~mask).any()
    for name in ("grad_input", "grad_bias"):
        assert first.order_dependent[name].count == 0
        np.testing.assert_array_equal(first.outputs[name], second.outputs[name])


def test_taps_that_meet_fewer_than_three_cores_are_not_order_dependent():
    values = tensors(33, 1, 4, 4, 33, 24)
    result = run(values, 24, core_order="random")
    mask = result.order_dependent["grad_weight"].mask.all(axis=(1, 2))
    piece = result.plan.tiling["gradWeight"]["single_reduction"]
    out_time = 33 + 48 - 33 + 1
    for tap in range(33):
        met = {time // piece for time in range(out_time) if 0 <= time + tap - 24 < 33}
        assert mask[tap] == (len(met) > 2)
    assert 0 < mask.sum() < 33


@pytest.mark.parametrize(
    "shape", [(96, 6, 20, 35, 4, 3), (12, 5, 18, 35, 12, 0), (40, 3, 37, 50, 3, 7)]
)
def test_deterministic_runs_are_bit_identical_whatever_the_order(shape):
    values = tensors(*shape)
    first = run(values, shape[-1], deterministic=True, core_order="random", seed=1)
    second = run(values, shape[-1], deterministic=True, core_order="reverse")
    for name, array in first.outputs.items():
        assert array.tobytes() == second.outputs[name].tobytes()
        assert first.order_dependent[name].count == 0


def test_saturation_on_atlas_training():
    values = [
        np.full(shape, 3e5, np.float32) for shape in ((4, 1, 16), (4, 1, 16), (1, 16, 16), (16,))
    ]
    grad_input, grad_weight, grad_bias = npu_sim.conv_tbc_backward(
        *values, 0, 2, product="atlas_train"
    )
    np.testing.assert_array_equal(grad_input, np.float32(65504))
    np.testing.assert_array_equal(grad_weight, np.float32(4) * np.float32(65504) ** 2)
    np.testing.assert_array_equal(grad_bias, np.float32(12e5))
    on_a2 = npu_sim.conv_tbc_backward(*values, 0, 2)
    assert np.isinf(on_a2[0]).all()
    np.testing.assert_array_equal(on_a2[2], np.float32(12e5))


def test_out_is_written_and_strided_inputs_are_taken():
    values = tensors(20, 3, 8, 6, 3, 1)
    expected = npu_sim.conv_tbc_backward(*values, 1)
    strided = [np.asfortranarray(array) for array in values]
    outs = (
        np.empty((20, 3, 8), np.float32),
        np.empty((3, 6, 8), np.float32).transpose(0, 2, 1),
        np.empty(6, np.float32),
    )
    results = npu_sim.conv_tbc_backward(*strided, 1, out=outs)
    for result, out, wanted in zip(results, outs, expected, strict=True):
        assert result is out
        np.testing.assert_array_equal(out, wanted)


def test_nothing_is_written_when_a_check_fails():
    values = tensors(20, 3, 8, 6, 3, 1)
    outs = tuple(np.full(shape, 7, np.float32) for shape in ((20, 3, 8), (3, 8, 6), (5,)))
    with pytest.raises(UsageError) as refused:
        npu_sim.conv_tbc_backward(*values, 1, out=outs)
    assert refused.value.argument == "grad_bias"
    assert all((out == 7).all() for out in outs)


def test_planning_commands_fill_in_what_input_and_weight_imply():
    filled = arguments_of(
        DECLARED, {"input": "512x32x512:bf16", "weight": "3x512x256:bf16", "pad": 1}, infer=True
    )
    assert (str(filled["grad_output"]), str(filled["bias"])) == ("512x32x256:bf16", "256:bf16")
    with pytest.raises(UsageError, match="weight is missing"):
        arguments_of(DECLARED, {"input": "512x32x512:bf16"}, infer=True)
    assert (
        plan({"input": "128x4x64:fp32", "weight": "3x64x96:fp32"}).arguments["grad_output"]
        == "126x4x96:fp32"
    )
    assert (
        int(refusal({"input": "128x4x64:fp32", "weight": "3x64x96:fp32", "bias": None}).status)
        == 161001
    )


MULTIPLIED = [
    (call(7, 1, 64, 1, 7, 0), "element by element"),
    (call(7, 4, 64, 1, 7, 0), "batched matrix product, gradInput element by element"),
    (call(7, 1, 64, 96, 7, 0), "batched matrix product, gradWeight element by element"),
    (call(7, 4, 64, 96, 7, 0), "batched matrix product"),
]


@pytest.mark.parametrize(("arguments", "kernel"), MULTIPLIED)
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_contraction_of_length_1_is_a_product_of_elements(arguments, kernel, deterministic):
    planned = plan(arguments, deterministic=deterministic)
    assert planned.kernel == kernel
    outcomes = {decision.name: decision.outcome for decision in planned.decisions}
    for gradient in ("gradInput", "gradWeight"):
        assert outcomes[f"{gradient} element by element"] is (
            f"{gradient} element" in kernel or kernel == "element by element"
        )
    assert ("matmul_unpublished" in {caveat.code for caveat in planned.caveats}) is (
        "matrix" in kernel
    )
    assert "element" not in plan(arguments, product="atlas_train", cube_math_type=2).kernel


@pytest.mark.parametrize("math_type", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16])
def test_products_of_elements_are_rounded_once_and_never_to_hf32(dtype, math_type):
    values = tensors(7, 1, 5, 1, 7, 0, dtype=dtype)
    grad, x, weight, _ = values
    result = run(values, 0, math_type).outputs
    operands = [x.astype(np.float16) if math_type == 2 else x for x in (grad, x, weight)]
    for name, factor in (
        ("grad_input", operands[2][:, :, 0][:, None]),
        ("grad_weight", operands[1][:, 0][:, :, None]),
    ):
        exact = factor.astype(np.float64) * operands[0].astype(np.float64).reshape(1, 1, 1)
        assert result[name].tobytes() == exact.astype(operands[0].dtype).astype(dtype).tobytes()


def test_hf32_rounds_the_product_that_stays_a_matrix_product():
    values = tensors(4, 3, 5, 1, 4, 0)
    grad, x, weight, _ = values
    keep, rounded = run(values, 0, 0).outputs, run(values, 0, 1)
    np.testing.assert_array_equal(rounded.outputs["grad_input"], keep["grad_input"])
    expected = run([round_to_hf32(grad), round_to_hf32(x), weight, values[3]], 0, 0).outputs[
        "grad_weight"
    ]
    np.testing.assert_array_equal(rounded.outputs["grad_weight"], expected)
    assert (expected != keep["grad_weight"]).any()
    assert (
        "gradInput, multiplied element by element, is not rounded"
        in rounded.plan.caveats[0].message
    )
    assert "hf32_precision" not in {
        caveat.code for caveat in plan(call(7, 1, 64, 1, 7, 0), cube_math_type=1).caveats
    }


def test_whether_bf16_is_multiplied_element_by_element_is_a_model():
    assert "elementwise_model" in {
        caveat.code for caveat in plan(call(7, 1, 64, 3, 7, 0, "bf16")).caveats
    }
    assert "elementwise_model" not in {
        caveat.code for caveat in plan(call(7, 2, 64, 3, 7, 0, "bf16")).caveats
    }
    assert "elementwise_model" not in {
        caveat.code for caveat in plan(call(7, 1, 64, 3, 7, 0, "fp16")).caveats
    }


@pytest.mark.parametrize("product", ["atlas_a2", "atlas_a3"])
def test_one_shape_is_computed_deterministically_in_default_mode_too(product):
    listed = call(8, 1, 4, 2, 4, 0)
    planned = plan(listed, product=product)
    assert (
        planned.tiling["gradWeight"]
        == plan(listed, product=product, deterministic=True).tiling["gradWeight"]
    )
    assert (planned.tiling["route"], planned.tiling_key) == ("planner", 4)
    assert "white_listed" in {caveat.code for caveat in planned.caveats}
    assert all(order.fixed for order in planned.order)
    for other in (
        call(9, 1, 4, 2, 4, 0),
        call(8, 2, 4, 2, 4, 0),
        call(8, 1, 4, 2, 4, 1),
        call(8, 1, 4, 2, 4, 0, "fp16"),
    ):
        assert plan(other, product=product).tiling["route"] == "model"
    values = tensors(8, 1, 4, 2, 4, 0)
    fixed = run(values, 0, deterministic=True, product=product)
    for order in ("sequential", "reverse"):
        result = run(values, 0, core_order=order, product=product)
        assert result.order_dependent["grad_weight"].count == 0
        assert all(
            array.tobytes() == fixed.outputs[name].tobytes()
            for name, array in result.outputs.items()
        )


def test_cores_of_the_training_series_share_an_fp32_bias_gradient():
    values = tensors(900, 3, 4, 5, 1, 0)
    results = [
        run(values, 0, 1, product="atlas_train", core_order="random", seed=seed)
        for seed in range(4)
    ]
    planned = results[0].plan
    decision = next(x for x in planned.decisions if x.name == "gradBias split over cores")
    assert decision.outcome
    assert {order.output: order.fixed for order in planned.order}["grad_bias"] is False
    assert results[0].order_dependent["grad_bias"].count == 5
    assert len({result.outputs["grad_bias"].tobytes() for result in results}) > 1
    sums = reference.bias_of_cores(values[0], 256)
    in_order = run(values, 0, 1, product="atlas_train").outputs["grad_bias"]
    np.testing.assert_array_equal(in_order, np.add.accumulate(np.array(sums))[-1])
    fixed = run(values, 0, 1, product="atlas_train", deterministic=True)
    np.testing.assert_array_equal(
        fixed.outputs["grad_bias"], reference.bias_of_cores(values[0], 2700)[0]
    )
    assert fixed.order_dependent["grad_bias"].count == 0


@pytest.mark.parametrize(
    ("arguments", "profile"),
    [
        (call(900, 3, 4, 5, 1, 0, "fp16"), "atlas_train"),
        (call(80, 3, 4, 5, 1, 0, cube_math_type=1), "atlas_train"),
        (call(900, 3, 4, 5, 1, 0), "atlas_a2"),
    ],
)
def test_other_bias_gradients_are_summed_by_one_core(arguments, profile):
    orders = plan(arguments, product=profile).order
    assert {order.output: order.fixed for order in orders}["grad_bias"]


def test_grad_weight_has_one_accumulator_and_one_for_each_sample_when_deterministic():
    values = tensors(40, 3, 16, 16, 1, 0)
    result = run(values, 0)
    tiling = result.plan.tiling["gradWeight"]
    parts = [
        reference.core_weight(
            values[0][:, :, :2],
            values[1][:, :, :2],
            1,
            0,
            samples,
            start,
            min(start + tiling["single_reduction"], 40),
        )
        for samples in ([sample] for sample in range(3))
        for start in range(0, 40, tiling["single_reduction"])
    ]
    assert tiling["single_samples"] == 1
    np.testing.assert_array_equal(
        result.outputs["grad_weight"][:, :2, :2], np.add.accumulate(np.array(parts))[-1]
    )
    fixed = run(values, 0, deterministic=True).outputs["grad_weight"]
    samples = [
        reference.core_weight(values[0][:, :, :2], values[1][:, :, :2], 1, 0, [sample], 0, 40)
        for sample in range(3)
    ]
    np.testing.assert_array_equal(fixed[:, :2, :2], np.add.accumulate(np.array(samples))[-1])
    trained = run(values, 0, 2, product="atlas_train", deterministic=True).outputs["grad_weight"]
    halves = [array[:, :, :2].astype(np.float16).astype(np.float32) for array in values[:2]]
    np.testing.assert_array_equal(
        trained[:, :2, :2], reference.core_weight(*halves, 1, 0, range(3), 0, 40)
    )


@pytest.mark.parametrize(
    ("time", "taps", "dtype"),
    [
        (102, 3, "fp16"),
        (8180, 3, "fp32"),
        (16354, 3, "bf16"),
        (16380, 3, "fp16"),
        (243, 240, "fp16"),  # To < 16
        (243, 240, "fp32"),
    ],
)
def test_the_flip_of_the_deterministic_planner_is_the_nearest_time(time, taps, dtype):
    call = {"input": f"{time}x2x16:{dtype}", "weight": f"{taps}x16x16:{dtype}"}
    plan = npu_sim.plan(OPERATOR, deterministic=True, limits="hardware", **call)
    name = "deterministic planner takes the shape"
    (decision,) = [decision for decision in plan.decisions if decision.name == name]
    (flip,) = [flip.value for flip in decision.flips if flip.argument == "T"]
    problem, device = (
        ConvTbcProblem(time, 2, 16, 16, taps, 0, 4 if dtype == "fp32" else 2),
        load_profile().device,
    )
    times = range(time + 1, 20000) if decision.outcome else range(time - 1, taps, -1)
    assert flip == next(
        other
        for other in times
        if published_planner_takes(problem._replace(time=other), device) is not decision.outcome
    )


@pytest.mark.parametrize(
    ("axis", "changed"),
    [
        ("T", {"input": "0x4x8:fp32", "grad_output": "3x4x8:fp32"}),
        ("Cin", {"input": "4x4x0:fp32", "weight": "2x0x8:fp32", "grad_output": "7x4x8:fp32"}),
        ("L", {"weight": "0x8x8:fp32", "grad_output": "9x4x8:fp32"}),
    ],
)
def test_an_axis_of_0_runs_with_the_documented_range(axis, changed):
    call = {"input": "4x4x8:fp32", "weight": "2x8x8:fp32", "bias": "8:fp32", "pad": 2, **changed}
    call["cube_math_type"] = 1
    (warning, _) = npu_sim.plan("conv_tbc_backward", **call).caveats
    assert warning.code == "axis_beyond_documented"
    assert f"{axis} is 0" in warning.message
    assert "from 1 to 2147483646, and for L from 1 to 255" in warning.message
    train = npu_sim.plan("conv_tbc_backward", **call, product="atlas_train")
    assert [one.code for one in train.caveats] == ["grad_bias_constant"]


def test_gradients_of_an_empty_input_are_verified():
    grad = np.ones((3, 4, 8), np.float32)
    call = {
        "grad_output": grad,
        "input": np.ones((0, 4, 8), np.float32),
        "weight": np.ones((2, 8, 8), np.float32),
        "bias": np.ones(8, np.float32),
        "pad": 2,
        "cube_math_type": 1,
        "soc": "910B3",
    }
    bias = npu_sim.run("conv_tbc_backward", **call).outputs["grad_bias"]
    for measured, status in ((bias, "equal"), (bias + 1, "unreachable")):
        answer = npu_sim.verify("conv_tbc_backward", **call, grad_bias=measured)
        assert answer.status == status

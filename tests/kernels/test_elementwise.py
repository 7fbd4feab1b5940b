"""Rounding of every 16-bit pattern and millions of fp32 patterns against ml_dtypes, NumPy, fp64.

The payload of a nan is compared only between our own implementations: ml_dtypes, NumPy and
processors differ (NumPy's software conversion keeps a signalling fp16 nan, processors make it
quiet), and the device's is unknown.
"""

import os
import platform
import re
import subprocess
import sys

import ml_dtypes
import numba
import numpy as np
import pytest
from numba import config, njit, prange

from npu_sim.kernels.engine.compile import PLAIN, Kernel
from npu_sim.kernels.shared import elementwise
from npu_sim.numbers import scalars
from npu_sim.numbers.formats import FORMATS, from_storage, kernel_input, numpy_dtype, storage_view
from tests.rounding_reference import EVERY_16_BITS, fp32_sample, round_to, to_fp64

COMPILED = not config.DISABLE_JIT
SIXTEEN = ["float16", "bfloat16"]
FLOATS = [*SIXTEEN, "float32"]
BITS = {"float16": np.uint16, "bfloat16": np.uint16, "float32": np.uint32}


@pytest.fixture(scope="module")
def sample():
    """Fp32 values; about three million, fewer where plain Python rounds them one by one."""
    values = fp32_sample(2_000_000 if COMPILED else 10_000)
    return values if COMPILED else values[:: values.size // 30_000]


def every(name):
    return EVERY_16_BITS.view(numpy_dtype(name))


def assert_same(got, expected):
    """Same bits, or nan on both sides."""
    bits = BITS[expected.dtype.name]
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    with np.errstate(invalid="ignore"):
        both_nan = np.isnan(got.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    wrong = np.flatnonzero((got.view(bits) != expected.view(bits)) & ~both_nan)
    assert wrong.size == 0, (
        f"{wrong.size} differ, first at {wrong[0]}: {got[wrong[0]]} is not {expected[wrong[0]]}"
    )


# --- widening ---


@pytest.mark.parametrize("name", SIXTEEN)
def test_every_pattern_widens_like_the_library(name):
    with np.errstate(invalid="ignore"):
        assert_same(elementwise.widen_array(every(name)), every(name).astype(np.float32))


@pytest.mark.parametrize("name", SIXTEEN)
def test_every_pattern_survives_the_round_trip(name):
    back = elementwise.narrow_array(elementwise.widen_array(every(name)), name)
    assert_same(back, every(name))
    with np.errstate(invalid="ignore"):  # some processors report nan that are widened
        nan, still = np.isnan(every(name).astype(np.float32)), np.isnan(back.astype(np.float32))
    assert nan.sum() == 2 * ((1 << FORMATS[name].mantissa_bits) - 1)
    assert still[nan].all()


def test_float32_is_widened_and_narrowed_to_itself(sample):
    np.testing.assert_array_equal(
        elementwise.widen_array(sample).view(np.uint32), sample.view(np.uint32)
    )
    np.testing.assert_array_equal(
        elementwise.narrow_array(sample, "fp32").view(np.uint32), sample.view(np.uint32)
    )


# --- narrowing ---


@pytest.mark.parametrize("name", SIXTEEN)
def test_narrowing_equals_the_library(name, sample):
    with np.errstate(over="ignore", invalid="ignore"):
        expected = sample.astype(numpy_dtype(name))
    assert_same(elementwise.narrow_array(sample, name), expected)


@pytest.mark.parametrize("name", SIXTEEN)
def test_narrowing_equals_fp64_arithmetic(name, sample):
    assert_same(
        elementwise.widen_array(elementwise.narrow_array(sample, name)), round_to(sample, name)
    )


def test_hf32_equals_fp64_arithmetic(sample):
    rounded = elementwise.round_to_hf32(sample)
    assert_same(rounded, round_to(sample, "hf32"))
    assert not (rounded.view(np.uint32) & 0xFFF).any()
    assert_same(elementwise.round_to_hf32(rounded), rounded)


@pytest.mark.parametrize("name", SIXTEEN)
def test_sample_holds_what_it_should(name, sample):
    """The comparisons above cover ties, subnormal results, overflow and nan."""
    rounded = round_to(sample, name)
    with np.errstate(invalid="ignore"):
        distance = np.abs(to_fp64(sample) - to_fp64(rounded))
        subnormal = (rounded != 0) & (np.abs(rounded) < FORMATS[name].smallest_normal)
        ties = np.isfinite(rounded) & (
            distance * 2 == np.spacing(np.abs(rounded)) * 2.0 ** (23 - FORMATS[name].mantissa_bits)
        )
    least = 10_000 if COMPILED else 50
    assert np.count_nonzero(subnormal) > least / 100
    assert np.count_nonzero(ties) > least
    assert np.count_nonzero(np.isinf(rounded) & np.isfinite(sample)) > least / 100
    assert np.count_nonzero(np.isnan(sample)) > least / 100


def test_nan_payloads_are_as_documented():
    nan = np.array([0x7F80_0001, 0xFF80_0001, 0x7FC0_0000, 0xFFD2_3456], np.uint32).view(np.float32)
    assert elementwise.narrow_array(nan, "fp16").view(np.uint16).tolist() == [
        0x7E00,
        0xFE00,
        0x7E00,
        0xFE91,
    ]
    assert elementwise.narrow_array(nan, "bf16").view(np.uint16).tolist() == [
        0x7FC0,
        0xFFC0,
        0x7FC0,
        0xFFC0,
    ]
    hf32 = elementwise.round_to_hf32(nan).view(np.uint32).tolist()
    assert hf32 == [0x7FC0_0000, 0xFFC0_0000, 0x7FC0_0000, 0xFFD2_3000]
    signalling = np.array([0x7C01], np.uint16).view(np.float16)
    assert elementwise.widen_array(signalling).view(np.uint32).tolist() == [0x7FC0_2000]


@pytest.mark.parametrize(
    "function", [elementwise.narrow_array, lambda a, _: elementwise.round_to_hf32(a)]
)
def test_rounding_twice_is_refused(function):
    with pytest.raises(ValueError, match="round twice"):
        function(np.ones(3, np.float64), "fp16")


# --- shapes, outputs, threads ---


ARRANGEMENTS = {
    "matrix": lambda a: a[:120].reshape(10, 12),
    "transposed": lambda a: a[:120].reshape(10, 12).T,
    "strided": lambda a: a[: 7 * 40].reshape(10, 28)[::2, ::-3],
    "scalar": lambda a: a[7:8].reshape(()),
    "empty": lambda a: a[:0].reshape(0, 3),
    "more than a block": lambda a: a[: 16384 + 5],
}


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize("name", SIXTEEN)
def test_any_shape_and_stride(name, arrangement, sample):
    values = ARRANGEMENTS[arrangement](sample)
    narrowed = elementwise.narrow_array(values, name)
    assert_same(narrowed.reshape(-1), elementwise.narrow_array(np.ravel(values), name))
    assert narrowed.shape == values.shape
    stored = ARRANGEMENTS[arrangement](elementwise.narrow_array(sample, name))
    assert_same(
        elementwise.widen_array(stored).reshape(-1), elementwise.widen_array(np.ravel(stored))
    )


@pytest.mark.parametrize("name", SIXTEEN)
def test_out_may_have_gaps(name, sample):
    values = sample[:60].reshape(5, 12)
    around = np.full((5, 24), 3, numpy_dtype(name))
    out = around[:, 1::2]
    assert elementwise.narrow_array(values, name, out=out) is out
    assert_same(out.copy(), elementwise.narrow_array(values, name))
    assert (around[:, ::2] == 3).all()
    stored = np.empty(values.shape, storage_view(out).dtype)
    assert elementwise.narrow_array(values, name, out=stored) is stored
    assert_same(from_storage(stored, name), elementwise.narrow_array(values, name))


@pytest.mark.parametrize(
    "out", [np.empty(4, np.float16), np.empty(3, np.float32), np.empty(3, np.uint16)]
)
def test_wrong_out_is_refused(out):
    with pytest.raises(ValueError, match="out is"):
        elementwise.narrow_array(np.ones(3, np.float32), "fp16", out=out)


@pytest.mark.parametrize(
    "out", [np.frombuffer(bytes(8), np.float32), np.empty(2, np.dtype(np.float32).newbyteorder())]
)
def test_out_that_cannot_be_written_is_refused(out):
    for write in (
        elementwise.saturate,
        lambda out: elementwise.narrow_array(np.ones(2, np.float32), out.dtype, out=out),
    ):
        with pytest.raises(ValueError, match="out is"):
            write(out)


@pytest.mark.skipif(config.NUMBA_NUM_THREADS < 2, reason="one thread only")
@pytest.mark.parametrize("name", FLOATS)
def test_threads_change_nothing(name, sample):
    sample = np.ascontiguousarray(sample[::5])

    def everything():
        narrowed = elementwise.narrow_array(sample, name, saturate=True)
        wide = elementwise.widen_array(narrowed)
        error = elementwise.ulp_error(narrowed, to_fp64(sample), name)
        distance = elementwise.ulp_distance(wide, elementwise.round_to_hf32(sample), "fp32")
        return [array.tobytes() for array in (narrowed, wide, error, distance)]

    usual = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        alone = everything()
        numba.set_num_threads(2)
        assert everything() == alone
    finally:
        numba.set_num_threads(usual)


# --- storage ---


@pytest.mark.parametrize(
    ("name", "storage"), [("float16", np.int16), ("bfloat16", np.uint16), ("float32", np.float32)]
)
def test_storage_view_shares_memory(name, storage):
    array = np.arange(12).reshape(3, 4).astype(numpy_dtype(name))[:, ::2]
    stored = storage_view(array)
    assert (stored.dtype, stored.strides) == (storage, array.strides)
    assert np.shares_memory(stored, array)
    assert from_storage(stored, name).dtype == array.dtype
    np.testing.assert_array_equal(from_storage(stored, name), array)


def test_storage_of_other_dtypes_is_refused():
    with pytest.raises(ValueError, match="float16, bfloat16, float32"):
        storage_view(np.ones(3, np.int32))
    with pytest.raises(ValueError, match="stored as int16"):
        from_storage(np.ones(3, np.uint16), "fp16")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64])
def test_kernel_input_hides_read_only(dtype):
    array = np.arange(12).reshape(3, 4).astype(dtype)
    array.flags.writeable = False
    given = kernel_input(array)
    assert numba.typeof(given).mutable
    assert np.shares_memory(given, array)
    np.testing.assert_array_equal(given.view(dtype), array)
    assert not array.flags.writeable
    gaps = kernel_input(array[:, ::2])
    assert gaps.flags.c_contiguous
    assert not np.shares_memory(gaps, array)
    unaligned = np.frombuffer(b"\0" + array.tobytes(), dtype, offset=1)
    assert numba.typeof(kernel_input(unaligned)) == numba.typeof(given.reshape(-1))


# --- saturation mode ---


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("name", FLOATS)
def test_saturation(name, stored, sample):
    values = sample if name == "float32" else every(name)
    expected = values.copy()
    largest = numpy_dtype(name).type(FORMATS[name].largest_finite)
    with np.errstate(invalid="ignore"):
        expected[np.isnan(values)] = 0
        expected[values == np.inf], expected[values == -np.inf] = largest, -largest
        special = int(np.count_nonzero(~np.isfinite(values)))
    got = values.copy()
    assert elementwise.saturate(storage_view(got) if stored else got) == special > 0
    np.testing.assert_array_equal(got.view(BITS[name]), expected.view(BITS[name]))
    assert elementwise.saturate(got) == 0


def test_saturation_leaves_gaps_alone():
    around = np.full((4, 6), np.inf, np.float16)
    assert elementwise.saturate(around[::2, 1::2]) == 6
    assert (around[::2, 1::2] == 65504).all()
    assert np.isinf(around[1::2]).all()
    assert np.isinf(around[:, ::2]).all()


@pytest.mark.parametrize("name", SIXTEEN)
def test_narrowing_with_saturation(name, sample):
    largest = np.float32(FORMATS[name].largest_finite)
    with np.errstate(invalid="ignore"):
        clipped = np.clip(
            np.nan_to_num(sample, nan=0, posinf=np.inf, neginf=-np.inf), -largest, largest
        )
    assert_same(
        elementwise.narrow_array(sample, name, saturate=True),
        elementwise.narrow_array(clipped, name),
    )


def test_saturation_refuses_other_dtypes():
    with pytest.raises(ValueError, match="int32"):
        elementwise.saturate(np.ones(3, np.int32))


# --- scalar functions ---


@njit(parallel=True, error_model="numpy")
def scaled(stored, factor, out):
    for row in prange(stored.shape[0]):
        for column in range(stored.shape[1]):
            out[row, column] = scalars.narrow(scalars.widen(stored[row, column]) * factor, out)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("bfloat16", "bfloat16"),
        pytest.param("float16", "float16", marks=pytest.mark.long),
        pytest.param("float32", "bfloat16", marks=pytest.mark.long),
    ],
)
def test_widen_and_narrow_in_a_parallel_kernel(source, target, sample):
    with np.errstate(over="ignore", invalid="ignore"):
        values = sample[: 64 * 100].reshape(64, 100).astype(numpy_dtype(source))
        expected = (values.astype(np.float32) * np.float32(0.3)).astype(numpy_dtype(target))
        out = np.empty(values.shape, numpy_dtype(target))
        scaled(storage_view(values), np.float32(0.3), storage_view(out))
    assert_same(out.reshape(-1), expected.reshape(-1))


@njit
def in_a_kernel(values, bits, out, small):
    for index in range(values.size):
        small[0, index] = scalars.fp32_to_fp16(values[index])
        small[1, index] = np.int16(scalars.fp32_to_bf16(values[index]))
        out[0, index] = scalars.fp32_to_hf32(values[index])
        out[1, index] = scalars.fp16_to_fp32(bits[index])
        out[2, index] = scalars.bf16_to_fp32(bits[index])


def test_scalar_functions_give_the_same_bits_from_python(sample):
    bits = EVERY_16_BITS[::61] if COMPILED else EVERY_16_BITS[::997]
    values = np.ascontiguousarray(sample[:: sample.size // bits.size][: bits.size])
    out, small = np.empty((3, bits.size), np.float32), np.empty((2, bits.size), np.int16)
    in_a_kernel(values, bits, out, small)
    for index, (value, pattern) in enumerate(zip(values, bits, strict=True)):
        assert small[0, index] == scalars.fp32_to_fp16(value)
        assert small[1, index].view(np.uint16) == scalars.fp32_to_bf16(value)
        expected = [scalars.fp32_to_hf32(value), scalars.fp16_to_fp32(pattern)]
        expected.append(scalars.bf16_to_fp32(pattern))
        assert [one.view(np.uint32) for one in expected] == out[:, index].view(np.uint32).tolist()


@pytest.mark.parametrize("value", [1.5, np.float64(1.5), 1])
def test_scalar_functions_refuse_what_would_round_twice(value):
    for function in (scalars.fp32_to_fp16, scalars.fp32_to_bf16, scalars.fp32_to_hf32):
        with pytest.raises(TypeError, match="round twice"):
            function(value)
    for storage in (np.int16, np.uint16, np.float32):
        with pytest.raises(TypeError, match="round twice"):
            scalars.narrow(value, np.empty(1, storage))
    with pytest.raises(TypeError, match="stored element"):
        scalars.widen(value)


@pytest.mark.skipif(not COMPILED, reason="nothing is compiled")
def test_compiled_code_refuses_fp64():
    with pytest.raises(numba.TypingError):
        njit(lambda value, out: scalars.narrow(value, out))(1.5, np.empty(1, np.int16))


HALF_TO_FLOAT = r"vcvtph2psx?\s.*[yz]mm"
"""Processors with AVX512-FP16 have a second instruction for it, which LLVM takes there."""


def assembly(compiled, argument):
    """Assembly of the version that was compiled for a first argument of this dtype."""
    signature = next(
        one for one in compiled.signatures if one[0].dtype == numba.from_dtype(np.dtype(argument))
    )
    return compiled.inspect_asm(signature)


@pytest.mark.skipif(
    not COMPILED or platform.machine() != "x86_64" or not scalars.has_half_conversions(),
    reason="x86-64 with F16C",
)
@pytest.mark.skipif(PLAIN, reason="looks at what the engine compiles")
def test_loops_become_vector_instructions(monkeypatch):
    for name in SIXTEEN:
        stored = storage_view(np.ones((8, 64), numpy_dtype(name)))
        scaled(stored, np.float32(0.3), stored.copy())
    # Compiled here, not loaded from the cache: cached code cannot be inspected.
    monkeypatch.setenv("NPU_SIM_CACHE_DIR", "")
    widen_all = Kernel(elementwise._convert_all.function)
    widen_all.over(1, np.ones(512, np.int16), np.empty(512, np.float32))
    (entry,) = widen_all.entries.values()
    half, bfloat = assembly(scaled, np.int16), assembly(scaled, np.uint16)
    assert re.search(HALF_TO_FLOAT, half)
    assert re.search(r"vcvtps2phx?\s.*[yz]mm", half)
    assert re.search(r"vmulps\s.*[yz]mm", half)
    for instruction in ("vpmovzxwd", "vmulps", "vpaddd", "vpsrld"):
        assert re.search(rf"{instruction}\s.*[yz]mm", bfloat), instruction
    assert re.search(HALF_TO_FLOAT, entry._library.get_asm_str())


# --- without the compiler, without conversion instructions ---

OTHER_WAY = """
import sys
import numpy as np
from npu_sim.kernels.shared import elementwise
from npu_sim.numbers.formats import from_storage
given = np.load(sys.argv[1])
results = {"fp16": elementwise.widen_array(given["bits"].view(np.float16)).view(np.uint32)}
results["bf16"] = elementwise.widen_array(from_storage(given["bits"], "bf16")).view(np.uint32)
for name in ("fp16", "bf16"):
    results["to " + name] = elementwise.narrow_array(given["values"], name).view(np.uint16)
np.savez(sys.argv[1], **results)
"""


@pytest.mark.long
@pytest.mark.skipif(not COMPILED, reason="the comparison is with compiled code")
@pytest.mark.parametrize(
    ("variables", "step"),
    [({"NUMBA_DISABLE_JIT": "1"}, 401), ({"NUMBA_CPU_NAME": "generic"}, 11)],
    ids=["compiler off", "generic processor"],
)
def test_other_ways_to_run_give_the_same_bits(variables, step, sample, tmp_path):
    values, bits = (
        np.ascontiguousarray(sample[::step]),
        np.ascontiguousarray(EVERY_16_BITS[:: 1 + step // 100]),
    )
    path = tmp_path / "exchange.npz"
    np.savez(path, values=values, bits=bits)
    subprocess.run([sys.executable, "-c", OTHER_WAY, path], env=os.environ | variables, check=True)
    with np.load(path) as other:
        expected = {
            "fp16": elementwise.widen_array(bits.view(np.float16)).view(np.uint32),
            "bf16": elementwise.widen_array(bits.view(ml_dtypes.bfloat16)).view(np.uint32),
            "to fp16": elementwise.narrow_array(values, "fp16").view(np.uint16),
            "to bf16": elementwise.narrow_array(values, "bf16").view(np.uint16),
        }
        assert other.keys() == expected.keys()
        for key in other:
            np.testing.assert_array_equal(other[key], expected[key], err_msg=key)

"""Kernels of ConvTbcBackward: order of sums, rounding of operands, independence of threads."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_sim.kernels import conv_tbc_backward as kernels
from npu_sim.kernels.conv_tbc_backward.operands import round_row
from npu_sim.kernels.conv_tbc_backward.register_tile import PACKED_STEPS, TILE_COLUMNS, TILE_ROWS
from npu_sim.kernels.conv_tbc_backward.weight import (
    arrived_visits,
    blocking,
    cut_output,
    tail_mask,
    visits_by_core,
)
from npu_sim.kernels.shared.arrival_orders import (
    RANDOM,
    REVERSE,
    ROUND_ROBIN,
    SEQUENTIAL,
    ArrivalOrder,
)
from npu_sim.kernels.shared.elementwise import round_to_hf32
from npu_sim.kernels.vectors.lanes import fused_multiply_add
from npu_sim.numbers.formats import storage_view
from tests.processes import ALL_THREADS, words_printed_by
from tests.reference import conv_tbc_backward as reference

BF16 = ml_dtypes.bfloat16


def data(time, batch, in_channels, out_channels, taps, pad, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    out_time = time + 2 * pad - taps + 1
    shapes = (
        (out_time, batch, out_channels),
        (time, batch, in_channels),
        (taps, in_channels, out_channels),
    )
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def weight_gradient(
    grad,
    x,
    taps,
    pad,
    shares=None,
    tail=kernels.NO_TAIL,
    order=SEQUENTIAL,
    seed=0,
    rounding=kernels.EXACT,
):
    out = np.full((taps, x.shape[2], grad.shape[2]), np.nan, grad.dtype)
    whole = kernels.ReductionSplit(grad.shape[1], grad.shape[1], grad.shape[0], grad.shape[0])
    views = (storage_view(array) for array in (x, grad))
    reduction = kernels.Reduction(shares or whole, tail, ArrivalOrder(order, seed))
    kernels.grad_weight(*views, pad, 1, rounding, storage_view(out), reduction)
    return out


def input_gradient(grad, weight, time, pad, rounding=kernels.EXACT, result=kernels.EXACT):
    out = np.full((time, grad.shape[1], weight.shape[1]), np.nan, grad.dtype)
    kernels.grad_input(
        storage_view(grad), storage_view(weight), storage_view(out), pad, rounding, result
    )
    return out


SMALL = (6, 3, 5, 4, 3, 1)
RESTARTING = kernels.ReductionSplit(4, 4, 5, 5, restarts=1)


def parts_of(grad, x, shares, taps, pad):
    cores = [
        ([sample for sample, _, _ in visits], *visits[0][1:]) for visits in visits_by_core(shares)
    ]
    return [reference.core_weight(grad, x, taps, pad, *core) for core in cores]


def folded(parts):
    total = np.zeros_like(parts[0])
    for part in parts:
        total += part
    return total


def test_fused_multiply_add_rounds_once():
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(300).astype(np.float32) for _ in range(2))
    c = np.concatenate([rng.standard_normal(150), -(a[150:].astype(np.float64) * b[150:])]).astype(
        np.float32
    )
    c *= np.where(np.arange(300) % 3 == 0, np.float32(2.0**-24), np.float32(1))
    expected = np.array([reference.fused(*line) for line in zip(a, b, c, strict=True)], np.float32)
    np.testing.assert_array_equal(fused_multiply_add(a, b, c), expected)
    twice = a * b + c
    assert (twice != expected).any()


@pytest.mark.parametrize(
    "shape",
    [
        SMALL,
        (5, 2, 3, 37, 2, 1),
        (1, 3, 2, 20, 1, 0),
        (9, 1, 2, 9, 40, 20),
        (2, TILE_ROWS * 17, 1, 3, 3, 1),
        (4, 2, 2, 17, 20, 18),
    ],
)
def test_grad_input_adds_blocks_of_channels_then_taps_downwards(shape):
    grad, _, weight = data(*shape)
    time, pad = shape[0], shape[-1]
    np.testing.assert_array_equal(
        input_gradient(grad, weight, time, pad),
        reference.input_in_order(grad, weight, time, pad, 8),
    )
    halves = [one.astype(np.float16).astype(np.float32) for one in (grad, weight)]
    expected = reference.input_in_order(*halves, time, pad, 16)
    np.testing.assert_array_equal(
        input_gradient(grad, weight, time, pad, kernels.TO_FP16), expected
    )
    narrow = input_gradient(*(one.astype(np.float16) for one in halves), time, pad)
    np.testing.assert_array_equal(narrow, expected.astype(np.float16))


def test_the_accumulator_of_grad_weight_goes_on_from_sample_to_sample():
    grad, x, _ = data(36, 3, 2, 3, 2, 1)
    steps = len(grad)
    (whole,) = parts_of(grad, x, kernels.ReductionSplit(3, 3, steps, steps), 2, 1)
    np.testing.assert_array_equal(weight_gradient(grad, x, 2, 1), whole)
    sample_by_sample = folded(
        [reference.core_weight(grad, x, 2, 1, [sample], 0, steps) for sample in range(3)]
    )
    assert (whole != sample_by_sample).any()
    restarted = weight_gradient(
        grad, x, 2, 1, kernels.ReductionSplit(3, 3, steps, steps, restarts=1)
    )
    np.testing.assert_array_equal(restarted, sample_by_sample)


@pytest.mark.parametrize(
    ("order", "sequence"),
    [(SEQUENTIAL, [0, 1, 2, 3]), (REVERSE, [3, 2, 1, 0]), (ROUND_ROBIN, [0, 1, 2, 3])],
)
def test_sums_of_cores_are_added_in_the_order_of_arrival(order, sequence):
    shares = kernels.ReductionSplit(3, 2, 6, 3)
    grad, x, _ = data(*SMALL)
    parts = parts_of(grad, x, shares, 3, 1)
    assert [len(core) for core in visits_by_core(shares)] == [2, 2, 1, 1]
    expected = folded([parts[core] for core in sequence])
    np.testing.assert_array_equal(weight_gradient(grad, x, 3, 1, shares, order=order), expected)


def test_a_random_order_of_cores_is_drawn_for_every_row():
    grad, x, _ = data(*SMALL)
    shares = kernels.ReductionSplit(3, 2, 6, 3)
    parts = parts_of(grad, x, shares, 3, 1)
    orders = [
        folded([parts[one] for one in order]) for order in itertools.permutations(range(len(parts)))
    ]
    seen = set()
    for seed in range(6):
        result = weight_gradient(grad, x, 3, 1, shares, order=RANDOM, seed=seed)
        np.testing.assert_array_equal(
            result, weight_gradient(grad, x, 3, 1, shares, order=RANDOM, seed=seed)
        )
        seen.add(result.tobytes())
        for tap, channel in np.ndindex(result.shape[:2]):
            assert any((one[tap, channel] == result[tap, channel]).all() for one in orders)
    assert len(seen) > 1


def test_a_core_visits_its_samples_in_order():
    visits, last = arrived_visits(kernels.ReductionSplit(3, 2, 4, 4), REVERSE)
    assert visits.tolist() == [[2, 0, 4], [0, 0, 4], [1, 0, 4]]
    assert last.tolist() == [1, 0, 1]


@pytest.mark.parametrize("m_fastest", [0, 1])
def test_tail_tiles_are_summed_in_slots(m_fastest):
    grad, x, _ = data(6, 4, 40, 40, 2, 0)
    tail = kernels.TailTiles(2, 3, 16, 24, 3, 2, m_fastest)
    samples = [weight_gradient(grad[:, [b]].copy(), x[:, [b]].copy(), 2, 0) for b in range(4)]
    plain, slotted = folded(samples), folded(samples[:2]) + folded(samples[2:])
    np.testing.assert_array_equal(weight_gradient(grad, x, 2, 0, RESTARTING), plain)
    mask = tail_mask(tail, 40, 40)
    number = [
        [(i // 24) * 3 + o // 16 if m_fastest else (o // 16) * 2 + i // 24 for o in range(40)]
        for i in range(40)
    ]
    np.testing.assert_array_equal(mask, np.array(number) >= 3)
    result = weight_gradient(grad, x, 2, 0, RESTARTING, tail=tail)
    np.testing.assert_array_equal(result, np.where(mask, slotted, plain))
    assert (plain != slotted).any()


@pytest.mark.parametrize(
    "shares",
    [kernels.ReductionSplit(2, 2, PACKED_STEPS + 40, PACKED_STEPS + 40, one) for one in (0, 1)],
)
def test_blocks_of_time_are_counted_from_the_start_of_a_sample(shares):
    grad, x, _ = data(PACKED_STEPS + 41, 2, 1, 1, 4, 1)
    samples = [[0, 1]] if not shares.restarts else [[0], [1]]
    expected = folded(
        [reference.core_weight(grad, x, 4, 1, one, 0, PACKED_STEPS + 40) for one in samples]
    )
    np.testing.assert_array_equal(weight_gradient(grad, x, 4, 1, shares), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16])
@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 1, 1, 1, 0),
        (7, 3, 5, 6, 3, 1),
        (20, 4, TILE_COLUMNS + 1, 300, 4, 5),
        (300, 2, 3 * TILE_ROWS + 1, 17, 5, 2),
    ],
)
def test_gradients_agree_with_float64(shape, dtype):
    grad, x, weight = data(*shape, dtype=dtype)
    pad = shape[-1]
    expected = reference.gradients(grad, x, weight, pad)
    bias = np.empty(grad.shape[2], dtype)
    kernels.grad_bias(storage_view(grad), storage_view(bias))
    results = (
        input_gradient(grad, weight, shape[0], pad),
        weight_gradient(grad, x, shape[4], pad),
        bias,
    )
    relative = {np.float32: 2.0**-18, np.float16: 2.0**-10, BF16: 2.0**-7}[dtype]
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(
            result.astype(np.float64), wanted, rtol=relative, atol=relative * np.abs(wanted).max()
        )


def test_terms_outside_self_are_left_out_not_multiplied_by_zero():
    grad, _, weight = data(4, 2, 3, 3, 3, 1)
    for tap, row_without in ((0, 3), (2, 0)):
        infinite = weight.copy()
        infinite[tap] = np.inf
        finite = np.isfinite(input_gradient(grad, infinite, 4, 1)).all(axis=(1, 2))
        np.testing.assert_array_equal(finite, np.arange(4) == row_without)


def test_hf32_operands_have_11_explicit_bits_ties_to_even():
    rng = np.random.default_rng(2)
    ties = (1 + (np.arange(64) + 0.5) * 2.0**-11).astype(np.float32)
    values = np.concatenate([rng.standard_normal(1000).astype(np.float32), ties, -ties])
    rounded = np.empty_like(values)
    round_row(values, rounded, kernels.TO_HF32)
    scaled = (
        np.abs(rounded.astype(np.float64))
        / 2.0 ** np.floor(np.log2(np.abs(rounded.astype(np.float64))))
        * 2**11
    )
    assert (scaled == np.round(scaled)).all()
    np.testing.assert_array_equal((rounded[1000:1064].astype(np.float64) * 2**11) % 2, 0)
    np.testing.assert_array_equal(rounded, round_to_hf32(values))
    grad, x, weight = data(*SMALL)
    exact = input_gradient(round_to_hf32(grad), round_to_hf32(weight), 6, 1)
    np.testing.assert_array_equal(
        input_gradient(grad, weight, 6, 1, rounding=kernels.TO_HF32), exact
    )
    exact = weight_gradient(round_to_hf32(grad), round_to_hf32(x), 3, 1)
    np.testing.assert_array_equal(weight_gradient(grad, x, 3, 1, rounding=kernels.TO_HF32), exact)


def test_fp16_operands_overflow_or_saturate():
    values = np.array([1e5, -1e5, 65520, 65519, np.nan, np.inf, 1e-9, 0.1], np.float32)
    plain, saturated = np.empty_like(values), np.empty_like(values)
    round_row(values, plain, kernels.TO_FP16)
    round_row(values, saturated, kernels.TO_FP16_SATURATED)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(plain, values.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(
        saturated, [65504, -65504, 65504, 65504, 0, 65504, 0, np.float32(np.float16(0.1))]
    )


def test_grad_input_is_rounded_to_the_compute_dtype_before_it_is_widened():
    grad, _, weight = data(*SMALL)
    result = input_gradient(grad, weight, 6, 1, kernels.TO_FP16, kernels.TO_FP16)
    np.testing.assert_array_equal(result, result.astype(np.float16).astype(np.float32))
    narrow = input_gradient(grad.astype(np.float16), weight.astype(np.float16), 6, 1)
    np.testing.assert_array_equal(result, narrow.astype(np.float32))


def test_grad_bias_adds_groups_of_256_rows():
    grad = np.random.default_rng(7).standard_normal((300, 2, 3)).astype(np.float32)
    bias = np.empty(3, np.float32)
    kernels.grad_bias(grad, bias)
    np.testing.assert_array_equal(bias, reference.bias_of_cores(grad, 600)[0])


def test_cores_that_share_grad_bias_add_in_any_order():
    grad = np.random.default_rng(7).standard_normal((400, 3, 5)).astype(np.float32)
    sums = reference.bias_of_cores(grad, 300)
    np.testing.assert_array_equal(kernels.core_sums(grad, 300), sums)
    results = set()
    for order, seed in (
        (SEQUENTIAL, 0),
        (REVERSE, 0),
        (ROUND_ROBIN, 0),
        *((RANDOM, seed) for seed in range(8)),
    ):
        bias = np.empty(5, np.float32)
        kernels.grad_bias(grad, bias, 300, ArrivalOrder(order, seed))
        if order != RANDOM:
            np.testing.assert_array_equal(bias, folded(sums[::-1] if order == REVERSE else sums))
        assert any(
            (bias == folded([sums[one] for one in drawn])).all()
            for drawn in itertools.permutations(range(4))
        )
        results.add(bias.tobytes())
    assert len(results) > 2


@pytest.mark.parametrize(
    ("rounding", "dtype"),
    [
        (kernels.EXACT, np.float32),
        (kernels.TO_HF32, np.float32),
        (kernels.TO_FP16, np.float32),
        (kernels.EXACT, np.float16),
        (kernels.EXACT, BF16),
    ],
)
def test_elements_are_multiplied_with_one_rounding_and_keep_the_sign_of_zero(rounding, dtype):
    rng = np.random.default_rng(3)
    rows, columns = (
        np.concatenate([rng.standard_normal(30), [0.0, -0.0, 3e-5]]).astype(dtype) for _ in range(2)
    )
    out = np.empty((33, 33), dtype)
    kernels.multiply_elements(
        storage_view(rows), storage_view(columns), rounding, storage_view(out)
    )
    if rounding == kernels.TO_FP16:
        rows, columns = rows.astype(np.float16), columns.astype(np.float16)
    exact = np.multiply.outer(rows.astype(np.float64), columns.astype(np.float64))
    expected = exact.astype(rows.dtype).astype(dtype)
    assert out.tobytes() == expected.tobytes()
    assert np.signbit(out[out == 0]).any()


@settings(max_examples=60)
@given(
    taps=st.integers(1, 40),
    in_channels=st.integers(1, 700),
    out_channels=st.integers(1, 700),
    threads=st.integers(1, 9),
    kept=st.sampled_from([0, 5, 3000]),
)
def test_every_weight_lies_in_exactly_one_block(taps, in_channels, out_channels, threads, kept):
    owners = np.zeros((taps, in_channels, out_channels), np.int32)
    for first_tap, stop_tap, first_in, stop_in, first_out, stop_out in cut_output(
        owners.shape, blocking(kept), threads
    ):
        assert first_in % TILE_ROWS == 0
        assert first_out % TILE_COLUMNS == 0
        owners[first_tap:stop_tap, first_in:stop_in, first_out:stop_out] += 1
    assert (owners == 1).all()


DIGEST = (
    ALL_THREADS
    + """
import hashlib, os, sys
import numpy as np, numba
import npu_sim
threads = int(sys.argv[1])
numba.set_num_threads(threads)
rng = np.random.default_rng(0)
digest = hashlib.sha256()
cases = (300, 3, 70, 65, 5, 2), (40, 9, 33, 17, 3, 1), (9, 6, 20, 40, 9, 0)
for time, batch, cin, cout, taps, pad in cases:
    out_time = time + 2 * pad - taps + 1
    shapes = (out_time, batch, cout), (time, batch, cin), (taps, cin, cout), (cout,)
    tensors = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    for deterministic, order in ((True, "sequential"), (False, "random")):
        options = {'deterministic': deterministic, 'core_order': order, 'seed': 4}
        for result in npu_sim.conv_tbc_backward(*tensors, pad, 1, **options):
            digest.update(result.tobytes())
print(digest.hexdigest())
"""
)


@pytest.mark.long
def test_the_bits_do_not_depend_on_threads():
    results = set()
    for threads in ("1", "2", "4"):
        variables = {
            "NUMBA_NUM_THREADS": "4",
            "OPENBLAS_NUM_THREADS": threads,
            "OMP_NUM_THREADS": threads,
        }
        results.update(words_printed_by(DIGEST, threads, **variables))
    assert len(results) == 1


@pytest.mark.long
def test_the_definition_without_a_compiler_gives_the_same_bits():
    code = """
import numpy as np
from npu_sim.kernels import conv_tbc_backward as kernels
from npu_sim.kernels.shared.arrival_orders import RANDOM, ArrivalOrder
rng = np.random.default_rng(1)
SHAPES = (4, 2, 3), (4, 2, 5), (3, 5, 3)
grad, x, weight = (rng.standard_normal(shape).astype(np.float32) for shape in SHAPES)
out_x, out_w, out_b = np.empty_like(x), np.empty_like(weight), np.empty(3, np.float32)
kernels.grad_input(grad, weight, out_x, 1, kernels.TO_HF32, kernels.EXACT)
split = kernels.ReductionSplit(2, 1, 4, 2)
restarting = kernels.ReductionSplit(2, 2, 4, 4, restarts=1)
reduction = kernels.Reduction(split, order=ArrivalOrder(RANDOM, 9))
kernels.grad_weight(x, grad, 1, 1, kernels.TO_FP16, out_w, reduction)
kernels.grad_bias(grad, out_b, 3, ArrivalOrder(RANDOM, 5))
out_slots, slotted = np.empty_like(weight), kernels.TailTiles(1, 0, 16, 16, 1, 1, 0)
reduction = kernels.Reduction(restarting, slotted)
kernels.grad_weight(x, grad, 1, 1, kernels.EXACT, out_slots, reduction)
product = np.empty((5, 3), np.float32)
kernels.multiply_elements(x[0, 0], grad[0, 0], kernels.TO_FP16, product)
print(*(array.tobytes().hex() for array in (out_x, out_w, out_b, out_slots, product)))
"""
    assert words_printed_by(code, NUMBA_DISABLE_JIT="0") == words_printed_by(
        code, NUMBA_DISABLE_JIT="1"
    )

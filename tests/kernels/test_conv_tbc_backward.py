"""Kernels of ConvTbcBackward: order of sums, rounding of operands, the same bits for any number of threads."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_sim.kernels import conv_tbc_backward as kernels
from npu_sim.kernels.conv_tbc_backward_blocks import blocking, cut_output
from npu_sim.kernels.conv_tbc_backward_folds import arrival, contributions_by_core, tail_mask
from npu_sim.kernels.conv_tbc_backward_operands import round_row
from npu_sim.kernels.conv_tbc_backward_tile import CHUNK, TILE_COLUMNS, TILE_ROWS
from npu_sim.kernels.elementwise import round_to_hf32
from npu_sim.kernels.random_order import RANDOM, REVERSE, ROUND_ROBIN, SEQUENTIAL
from npu_sim.kernels.vectors.fused import fused_multiply_add
from npu_sim.numbers.storage import storage_view
from tests.reference import conv_tbc_backward as reference

BF16 = ml_dtypes.bfloat16


def data(time, batch, in_channels, out_channels, taps, pad, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    out_time = time + 2 * pad - taps + 1
    shapes = ((out_time, batch, out_channels), (time, batch, in_channels), (taps, in_channels, out_channels))
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def weight_gradient(grad, x, taps, pad, shares=None, tail=kernels.NO_TAIL, order=SEQUENTIAL, seed=0, rounding=kernels.EXACT):
    out = np.full((taps, x.shape[2], grad.shape[2]), np.nan, grad.dtype)
    whole = kernels.Shares(grad.shape[1], grad.shape[1], grad.shape[0], grad.shape[0])
    views = (storage_view(one) for one in (x, grad))
    kernels.grad_weight(*views, pad, 1, rounding, storage_view(out), shares or whole, tail, order, seed)
    return out


def input_gradient(grad, weight, time, pad, rounding=kernels.EXACT, result=kernels.EXACT):
    out = np.full((time, grad.shape[1], weight.shape[1]), np.nan, grad.dtype)
    kernels.grad_input(storage_view(grad), storage_view(weight), storage_view(out), pad, rounding, result)
    return out


SMALL = (6, 3, 5, 4, 3, 1)
SHARES = kernels.Shares(3, 1, 6, 3)


def parts_of(grad, x, shares, taps, pad):
    return [
        [reference.partial_weight(grad, x, taps, pad, *contribution) for contribution in core] for core in contributions_by_core(shares)
    ]


def folded(parts):
    total = np.zeros_like(parts[0])
    for part in parts:
        total += part
    return total


def test_fused_multiply_add_rounds_once():
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(300).astype(np.float32) for _ in range(2))
    c = np.concatenate([rng.standard_normal(150), -(a[150:].astype(np.float64) * b[150:])]).astype(np.float32)
    c *= np.where(np.arange(300) % 3 == 0, np.float32(2.0**-24), np.float32(1))
    expected = np.array([reference.fused(*line) for line in zip(a, b, c, strict=True)], np.float32)
    np.testing.assert_array_equal(fused_multiply_add(a, b, c), expected)
    twice = a * b + c
    assert (twice != expected).any()


def test_grad_input_adds_taps_then_channels_in_one_chain():
    grad, _, weight = data(*SMALL)
    np.testing.assert_array_equal(input_gradient(grad, weight, SMALL[0], 1), reference.input_in_order(grad, weight, SMALL[0], 1))


def test_grad_weight_adds_sample_after_sample():
    grad, x, _ = data(*SMALL)
    whole = parts_of(grad, x, kernels.Shares(3, 3, 6, 6), 3, 1)[0]
    np.testing.assert_array_equal(weight_gradient(grad, x, 3, 1), folded(whole))


@pytest.mark.parametrize(
    ("order", "sequence"),
    [
        (SEQUENTIAL, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (3, 0)]),
        (REVERSE, [(3, 0), (2, 0), (1, 0), (1, 1), (0, 0), (0, 1)]),
        (ROUND_ROBIN, [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1)]),
    ],
)
def test_contributions_of_cores_are_added_in_the_order_of_arrival(order, sequence):
    shares = kernels.Shares(3, 2, 6, 3)
    grad, x, _ = data(*SMALL)
    parts = parts_of(grad, x, shares, 3, 1)
    assert [len(core) for core in parts] == [2, 2, 1, 1]
    expected = folded([parts[core][turn] for core, turn in sequence])
    np.testing.assert_array_equal(weight_gradient(grad, x, 3, 1, shares, order=order), expected)


def test_a_random_order_is_a_merge_drawn_for_every_row():
    grad, x, _ = data(*SMALL)
    parts = [part for core in parts_of(grad, x, SHARES, 3, 1) for part in core]
    merges = {tuple(order): folded([parts[one] for one in order]) for order in itertools.permutations(range(len(parts)))}
    seen = set()
    for seed in range(6):
        result = weight_gradient(grad, x, 3, 1, SHARES, order=RANDOM, seed=seed)
        np.testing.assert_array_equal(result, weight_gradient(grad, x, 3, 1, SHARES, order=RANDOM, seed=seed))
        seen.add(result.tobytes())
        for tap, channel in np.ndindex(result.shape[:2]):
            assert any((merged[tap, channel] == result[tap, channel]).all() for merged in merges.values())
    assert len(seen) > 1


def test_each_core_keeps_its_own_order():
    shares = kernels.Shares(2, 2, 4, 4)
    contributions, counts = arrival(shares, RANDOM)
    assert counts.tolist() == [2]
    assert contributions.tolist() == [[0, 0, 4], [1, 0, 4]]


@pytest.mark.parametrize("m_fastest", [0, 1])
def test_tail_tiles_are_summed_in_slots(m_fastest):
    grad, x, _ = data(6, 4, 40, 40, 2, 0)
    tail = kernels.TailTiles(2, 3, 16, 24, 3, 2, m_fastest)
    parts = [weight_gradient(grad, x, 2, 0, kernels.Shares(4, 4, 5, 5)) for _ in range(1)]
    samples = [weight_gradient(grad[:, [b]].copy(), x[:, [b]].copy(), 2, 0) for b in range(4)]
    plain, slotted = folded(samples), folded(samples[:2]) + folded(samples[2:])
    np.testing.assert_array_equal(parts[0], plain)
    mask = tail_mask(tail, 40, 40)
    number = [[(i // 24) * 3 + o // 16 if m_fastest else (o // 16) * 2 + i // 24 for o in range(40)] for i in range(40)]
    np.testing.assert_array_equal(mask, np.array(number) >= 3)
    result = weight_gradient(grad, x, 2, 0, tail=tail)
    np.testing.assert_array_equal(result, np.where(mask, slotted, plain))
    assert (plain != slotted).any()


def test_a_sample_longer_than_a_chunk_is_one_chain():
    grad, x, _ = data(CHUNK + 40, 1, 1, 1, 1, 0)
    np.testing.assert_array_equal(weight_gradient(grad, x, 1, 0), reference.partial_weight(grad, x, 1, 0, 0, 0, CHUNK + 40))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1, 1, 0), (7, 3, 5, 6, 3, 1), (20, 4, TILE_COLUMNS + 1, 300, 4, 5), (300, 2, 3 * TILE_ROWS + 1, 17, 5, 2)]
)
def test_gradients_agree_with_float64(shape, dtype):
    grad, x, weight = data(*shape, dtype=dtype)
    pad = shape[-1]
    expected = reference.gradients(grad, x, weight, pad)
    bias = np.empty(grad.shape[2], dtype)
    kernels.grad_bias(storage_view(grad), storage_view(bias))
    results = (input_gradient(grad, weight, shape[0], pad), weight_gradient(grad, x, shape[4], pad), bias)
    relative = {np.float32: 2.0**-18, np.float16: 2.0**-10, BF16: 2.0**-7}[dtype]
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result.astype(np.float64), wanted, rtol=relative, atol=relative * np.abs(wanted).max())


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
    scaled = np.abs(rounded.astype(np.float64)) / 2.0 ** np.floor(np.log2(np.abs(rounded.astype(np.float64)))) * 2**11
    assert (scaled == np.round(scaled)).all()
    np.testing.assert_array_equal((rounded[1000:1064].astype(np.float64) * 2**11) % 2, 0)
    np.testing.assert_array_equal(rounded, round_to_hf32(values))
    grad, x, weight = data(*SMALL)
    exact = input_gradient(round_to_hf32(grad), round_to_hf32(weight), 6, 1)
    np.testing.assert_array_equal(input_gradient(grad, weight, 6, 1, rounding=kernels.TO_HF32), exact)
    exact = weight_gradient(round_to_hf32(grad), round_to_hf32(x), 3, 1)
    np.testing.assert_array_equal(weight_gradient(grad, x, 3, 1, rounding=kernels.TO_HF32), exact)


def test_fp16_operands_overflow_or_saturate():
    values = np.array([1e5, -1e5, 65520, 65519, np.nan, np.inf, 1e-9, 0.1], np.float32)
    plain, saturated = np.empty_like(values), np.empty_like(values)
    round_row(values, plain, kernels.TO_FP16)
    round_row(values, saturated, kernels.TO_FP16_SATURATED)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(plain, values.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(saturated, [65504, -65504, 65504, 65504, 0, 65504, 0, np.float32(np.float16(0.1))])


def test_grad_input_is_rounded_to_the_compute_dtype_before_it_is_widened():
    grad, _, weight = data(*SMALL)
    result = input_gradient(grad, weight, 6, 1, kernels.TO_FP16, kernels.TO_FP16)
    np.testing.assert_array_equal(result, result.astype(np.float16).astype(np.float32))
    narrow = input_gradient(grad.astype(np.float16), weight.astype(np.float16), 6, 1)
    np.testing.assert_array_equal(result, narrow.astype(np.float32))


def test_grad_bias_adds_groups_of_256_rows():
    rng = np.random.default_rng(7)
    grad = rng.standard_normal((300, 2, 3)).astype(np.float32)
    rows = grad.reshape(-1, 3)
    total = np.zeros(3, np.float32)
    for first in range(0, len(rows), 256):
        group = np.zeros(3, np.float32)
        for row in rows[first : first + 256]:
            group += row
        total += group
    bias = np.empty(3, np.float32)
    kernels.grad_bias(grad, bias)
    np.testing.assert_array_equal(bias, total)


@settings(max_examples=60, deadline=None)
@given(
    taps=st.integers(1, 40),
    in_channels=st.integers(1, 700),
    out_channels=st.integers(1, 700),
    threads=st.integers(1, 9),
    kept=st.sampled_from([0, 5, 3000]),
)
def test_every_weight_lies_in_exactly_one_block(taps, in_channels, out_channels, threads, kept):
    owners = np.zeros((taps, in_channels, out_channels), np.int32)
    for first_tap, stop_tap, first_in, stop_in, first_out, stop_out in cut_output(owners.shape, blocking(kept), threads):
        assert first_in % TILE_ROWS == 0
        assert first_out % TILE_COLUMNS == 0
        owners[first_tap:stop_tap, first_in:stop_in, first_out:stop_out] += 1
    assert (owners == 1).all()


DIGEST = """
import hashlib, os, sys
import numpy as np, numba
import npu_sim
threads = int(sys.argv[1])
numba.set_num_threads(threads)
rng = np.random.default_rng(0)
digest = hashlib.sha256()
for time, batch, cin, cout, taps, pad in ((300, 3, 70, 65, 5, 2), (40, 9, 33, 17, 3, 1), (9, 6, 20, 40, 9, 0)):
    shapes = ((time + 2 * pad - taps + 1, batch, cout), (time, batch, cin), (taps, cin, cout), (cout,))
    tensors = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    for deterministic, order in ((True, "sequential"), (False, "random")):
        for result in npu_sim.conv_tbc_backward(*tensors, pad, 1, deterministic=deterministic, core_order=order, seed=4):
            digest.update(result.tobytes())
print(digest.hexdigest())
"""


def digest(threads, **environment):
    variables = {**os.environ, "NUMBA_NUM_THREADS": "4", "PYTHONPATH": str(Path(__file__).parents[2]), **environment}
    done = subprocess.run([sys.executable, "-c", DIGEST, str(threads)], check=True, capture_output=True, text=True, env=variables)
    return done.stdout.strip()


def test_the_bits_do_not_depend_on_threads():
    results = {digest(threads, OPENBLAS_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads)) for threads in (1, 2, 4)}
    assert len(results) == 1


def test_the_definition_without_a_compiler_gives_the_same_bits():
    code = """
import numpy as np
from npu_sim.kernels import conv_tbc_backward as kernels
rng = np.random.default_rng(1)
grad, x, weight = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 2, 3), (4, 2, 5), (3, 5, 3)))
out_x, out_w, out_b = np.empty_like(x), np.empty_like(weight), np.empty(3, np.float32)
kernels.grad_input(grad, weight, out_x, 1, kernels.TO_HF32, kernels.EXACT)
kernels.grad_weight(x, grad, 1, 1, kernels.TO_FP16, out_w, kernels.Shares(2, 1, 4, 2), kernels.NO_TAIL, 3, 9)
kernels.grad_bias(grad, out_b)
print(out_x.tobytes().hex(), out_w.tobytes().hex(), out_b.tobytes().hex())
"""
    outputs = set()
    for disabled in ("0", "1"):
        variables = {**os.environ, "NUMBA_DISABLE_JIT": disabled, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True, env=variables)
        outputs.add(done.stdout)
    assert len(outputs) == 1

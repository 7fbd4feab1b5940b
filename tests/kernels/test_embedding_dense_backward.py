"""Kernels of EmbeddingDenseBackward against golden results and the slow reference."""

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numba import config

from npu_sim.kernels import embedding_dense_backward as kernels
from npu_sim.kernels.embedding_dense_backward import grouping
from npu_sim.kernels.embedding_dense_backward.gradient import merge_rows
from npu_sim.kernels.embedding_dense_backward.grouping import (
    convert_indices,
    first_out_of_range,
    group_rows,
)
from npu_sim.kernels.shared import arrival_orders
from npu_sim.numbers.formats import kernel_input, storage_view
from tests.cases import every
from tests.processes import ALL_THREADS, words_printed_by
from tests.reference import embedding_dense_backward as reference

GOLDEN = sorted(
    (Path(__file__).parent.parent / "data" / "kernels").glob("embedding_dense_backward_*.npz")
)
ORDERS = {
    "sequential": arrival_orders.SEQUENTIAL,
    "reverse": arrival_orders.REVERSE,
    "round_robin": arrival_orders.ROUND_ROBIN,
}
PATHS = {
    "sorted": grouping.SORTED,
    "staged": grouping.STAGED,
    "deterministic": grouping.DETERMINISTIC,
    "small_dim": grouping.SMALL_DIM,
    "row_atomic": grouping.ROW_ATOMIC,
    "index_order": grouping.INDEX_ORDER,
}
ATOMIC = ["sorted", "small_dim", "row_atomic"]
DTYPES = [np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
MANY_WEIGHTS = 10000
"""Too many to compute without the compiler."""


def cut_of(case: reference.Case) -> grouping.Cut:
    sizes = [stop - start for start, stop in case.core_ranges]
    path = PATHS[case.path]
    if path == grouping.SMALL_DIM:
        cores = len(sizes)
        return grouping.Cut(path, cores, cores - 1, sizes[0], sizes[-1], batch_rows=case.batch_rows)
    if path > grouping.SMALL_DIM:
        return grouping.Cut(path, len(sizes), len(sizes), sizes[0], sizes[0])
    flush_rows = (
        reference.DETERMINISTIC_FLUSH_ROWS if path == grouping.DETERMINISTIC else case.flush_rows
    )
    return grouping.Cut(
        path,
        len(sizes),
        sum(size > sizes[-1] for size in sizes),
        sizes[-1] + 1,
        sizes[-1],
        chunk_rows=flush_rows,
    )


def compute(grad, indices, num_weights, case, order=arrival_orders.SEQUENTIAL, seed=0):
    """Run the kernels; the result starts as nan, because every element must be written."""
    out = np.full((num_weights, grad.shape[1]), np.nan, grad.dtype)
    order = arrival_orders.ArrivalOrder(order, seed)
    call = (cut_of(case), case.padding_idx, case.scale, order)
    grouped = kernels.embedding_dense_backward(
        kernel_input(grad), convert_indices(indices, num_weights), storage_view(out), *call
    )
    return out, grouped


def bits(array):
    """Return the bits of an array, with one pattern for every nan."""
    patterns = array.view({2: np.uint16, 4: np.uint32}[array.itemsize]).copy()
    patterns[np.isnan(array.astype(np.float32))] = np.iinfo(patterns.dtype).max
    return patterns


def make_case(path, rows, num_weights, cores=7, batch_rows=5, padding_idx=-1, scale=False):
    if path == "index_order":
        return reference.Case(
            path, reference.ceiling_split(num_weights, cores), 0, padding_idx, True
        )
    split = {"small_dim": reference.rest_on_last_split, "row_atomic": reference.ceiling_split}.get(
        path, reference.even_split
    )
    return reference.Case(path, split(rows, cores), batch_rows, padding_idx, scale)


def make_data(rows, dim, num_weights, dtype, seed=0, special=False):
    """Return gradients, and indices of which one occurs in a third of all rows."""
    random = np.random.default_rng(seed)
    grad = (random.standard_normal((rows, dim)) * 10.0 ** random.integers(-3, 4, (rows, 1))).astype(
        dtype
    )
    if special:
        chosen = random.integers(0, rows, 40)
        grad[chosen, random.integers(0, dim, 40)] = np.resize(
            [-0.0, np.inf, -np.inf, np.nan, 1e-40, 6e-8, 65504], 40
        ).astype(dtype)
        grad[random.integers(0, rows, rows // 4)] = -0.0
    indices = random.integers(0, num_weights, rows)
    indices[random.random(rows) < 0.33] = num_weights // 2
    return grad, indices.astype(np.int32)


# --- golden results of the product ---


def golden_runs():
    for path in GOLDEN:
        with np.load(path) as file:
            for name in file.files:
                if name.startswith("out_grad_weight_"):
                    yield pytest.param(
                        path,
                        name.removeprefix("out_grad_weight_"),
                        id=f"{path.stem[-2:]}-{name.rpartition('weight_')[2]}",
                    )


@pytest.mark.parametrize(("path", "order"), list(golden_runs()))
def test_golden_results_bit_for_bit(path, order):
    """Files hold some of the product's columns, which are independent, and only nonzero rows."""
    with np.load(path) as file:
        golden = {name: file[name] for name in file.files}
    meta = json.loads(str(golden["meta"]))
    num_weights = meta["num_weights"]
    if config.DISABLE_JIT and num_weights > MANY_WEIGHTS:
        pytest.skip("too many rows without the compiler")
    settings = (
        meta["dtype"],
        num_weights,
        meta["padding_idx"],
        meta["scale_grad_by_freq"],
        meta["deterministic"],
    )
    case = reference.planned_case(meta["soc"], tuple(meta["grad_shape"]), *settings)
    grad = reference.as_grad(golden["in_grad"], meta["dtype"])
    out, grouped = compute(
        grad, golden["in_indices"], num_weights, case, ORDERS.get(order, arrival_orders.SEQUENTIAL)
    )
    expected = np.zeros_like(out)
    expected[golden["rows"]] = reference.as_grad(golden[f"out_grad_weight_{order}"], meta["dtype"])
    assert np.array_equal(storage_view(out).view(np.uint8), storage_view(expected).view(np.uint8))
    assert np.array_equal(
        np.flatnonzero(kernels.order_dependent_rows(grouped)), golden["order_dependent_rows"]
    )


def test_every_golden_file_is_there():
    assert len(GOLDEN) == 20


# --- the slow reference ---


@pytest.mark.parametrize("scale", [False, True])
def test_the_flush_of_release_8_3_has_ten_rows_and_changes_bits(scale):
    rows, num_weights = 1500, 5
    grad, indices = make_data(rows, 33, num_weights, np.dtype(np.float32))
    case = make_case("sorted", rows, num_weights, scale=scale)
    for name in ORDERS:
        found = {}
        for release, flush_rows in reference.SORTED_FLUSH_ROWS.items():
            at_release = replace(case, flush_rows=flush_rows)
            expected, mask = reference.backward(
                grad, indices, num_weights, at_release, reference.MERGES[name]
            )
            found[release], grouped = compute(grad, indices, num_weights, at_release, ORDERS[name])
            assert np.array_equal(bits(found[release]), bits(expected))
            assert np.array_equal(kernels.order_dependent_rows(grouped), mask)
        assert not np.array_equal(found["8.3"], found["8.5"])
        assert np.array_equal(found["8.5"], found["9.1"])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", every(2, [1, 15, 16, 33, 70]))
@pytest.mark.parametrize("path", PATHS)
def test_same_bits_as_the_reference(path, dim, dtype):
    rows, num_weights = 223, 29
    grad, indices = make_data(rows, dim, num_weights, dtype, seed=dim)
    for padding_idx, scale in ((-1, False), (num_weights // 2, True), (3, True)):
        if path == "staged" and scale:
            continue  # scale casts to fp32 first
        case = make_case(path, rows, num_weights, padding_idx=padding_idx, scale=scale)
        for name in ORDERS if path in ATOMIC else ["sequential"]:
            expected, mask = reference.backward(
                grad, indices, num_weights, case, reference.MERGES[name]
            )
            out, grouped = compute(grad, indices, num_weights, case, ORDERS[name])
            assert np.array_equal(bits(out), bits(expected)), (padding_idx, scale, name)
            assert np.array_equal(kernels.order_dependent_rows(grouped), mask)
            # On the sorted path only the most frequent row has three chunks.
            if path != "sorted" or padding_idx != num_weights // 2:
                assert mask.any() == (path in ATOMIC)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("path", PATHS)
def test_zeros_infinities_and_nan(path, dtype):
    grad, indices = make_data(150, 37, 41, dtype, seed=5, special=True)
    case = make_case(path, 150, 41, scale=path not in ("staged", "index_order"))
    expected, _ = reference.backward(grad, indices, 41, case)
    with np.errstate(all="ignore"):
        out, _ = compute(grad, indices, 41, case)
    assert np.array_equal(bits(out), bits(expected))


@pytest.mark.parametrize("path", PATHS)
def test_negative_zeros_sum_to_positive_zero(path):
    grad, indices = np.full((64, 20), -0.0, np.float32), np.arange(64, dtype=np.int32) % 5
    out, _ = compute(grad, indices, 6, make_case(path, 64, 6))
    assert not out.view(np.uint32).any()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("cores", [1, 2, 48])
def test_one_index_takes_every_row(path, cores):
    """The longest run: it covers every core's slice, and its stage slots fill several chunks."""
    random = np.random.default_rng(cores)
    grad, indices = random.standard_normal((331, 34)).astype(np.float16), np.full(331, 2, np.int32)
    case = make_case(path, 331, 3, cores=cores if path != "index_order" else min(cores, 3))
    for name in ORDERS if path in ATOMIC else ["sequential"]:
        expected, _ = reference.backward(grad, indices, 3, case, reference.MERGES[name])
        out, _ = compute(grad, indices, 3, case, ORDERS[name])
        assert np.array_equal(bits(out), bits(expected))


@pytest.mark.parametrize("dim", [9, 2100])
@pytest.mark.parametrize("path", ["sorted", "staged", "deterministic"])
def test_long_rows_and_short_rows_of_long_runs(path, dim):
    grad, indices = make_data(90, dim, 4, np.dtype(np.float16), seed=dim)
    case = make_case(path, 90, 4, cores=5)
    expected, _ = reference.backward(grad, indices, 4, case)
    out, _ = compute(grad, indices, 4, case)
    assert np.array_equal(bits(out), bits(expected))


@pytest.mark.parametrize("padding_idx", [-1, -(2**63), 29, 2**63, 2**64 - 1])
def test_a_padding_index_outside_the_weights_matches_nothing(padding_idx):
    grad, indices = make_data(60, 18, 29, np.dtype(np.float32))
    out, _ = compute(grad, indices, 29, make_case("sorted", 60, 29, padding_idx=padding_idx))
    expected, _ = compute(grad, indices, 29, make_case("sorted", 60, 29))
    assert np.array_equal(bits(out), bits(expected))


# --- random orders ---


def arrivals(path, rows, num_weights, indices, seed):
    """Return, for every order-dependent row, the core of each chunk in order, and the chunks."""
    cut = cut_of(make_case(path, rows, num_weights))
    starts, marked = group_rows(indices, num_weights)
    grouping.mark_chunks(cut, starts, marked)
    reached = np.flatnonzero(grouping.depends_on_arrival(cut, starts, marked))
    order = arrival_orders.ArrivalOrder(arrival_orders.RANDOM, seed)
    merged = merge_rows(cut, starts, marked, reached, order)
    core_starts = cut.core_starts()
    slot_of = {int(max(entry, ~entry)): slot for slot, entry in enumerate(marked)}
    merges = {}
    for row in reached:
        own = merged[starts[row] : starts[row + 1]]
        ends = [0, *(np.flatnonzero(own < 0) + 1).tolist()]
        parts = [
            tuple(int(max(entry, ~entry)) for entry in own[begin:end])
            for begin, end in pairwise(ends)
        ]
        places = [slot_of[part[0]] if cut.splits_slots else part[0] for part in parts]
        merges[int(row)] = (
            [int(np.searchsorted(core_starts, place, side="right")) - 1 for place in places],
            parts,
        )
    return merges


@pytest.mark.parametrize("path", ATOMIC)
def test_random_merges_keep_every_cores_own_order(path):
    grad, indices = make_data(223, 6, 29, np.dtype(np.float32), seed=3)
    case = make_case(path, 223, 29)
    program = {}
    for sent in reference.contributions(grad, indices.tolist(), case):
        program.setdefault(sent.weight_row, {}).setdefault(sent.core, []).append(sent.rows)
    merges = arrivals(path, 223, 29, indices, seed=11)
    assert merges
    for row, (cores, parts) in merges.items():
        for core, own in program[row].items():
            assert [part for at, part in zip(cores, parts, strict=True) if at == core] == own
    drawn = {row: cores for row, (cores, _) in merges.items()}
    merge = lambda row, cores, counts: drawn.get(row, cores * counts[0])  # noqa: E731
    expected, _ = reference.backward(grad, indices, 29, case, merge)
    out, _ = compute(grad, indices, 29, case, arrival_orders.RANDOM, seed=11)
    assert np.array_equal(bits(out), bits(expected))


def test_random_merges_depend_on_seed_and_row_only():
    _, indices = make_data(223, 1, 29, np.dtype(np.float32), seed=3)
    first, again, other = (arrivals("row_atomic", 223, 29, indices, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert arrivals("row_atomic", 223, 29, indices, 1 + 2**64) == first


def test_random_merges_are_uniform():
    """Two chunks of core 0, one each of cores 1 and 2: twelve merges, all equally likely."""
    starts, marked = group_rows(np.zeros(4, np.int32), 1)
    cut = grouping.Cut(grouping.ROW_ATOMIC, 3, 1, 2, 1, 0, 0)
    grouping.mark_chunks(cut, starts, marked)
    draws = 600 if config.DISABLE_JIT else 6000
    rows = np.zeros(1, np.int64)
    orders = (arrival_orders.ArrivalOrder(arrival_orders.RANDOM, seed) for seed in range(draws))
    found = Counter(tuple(~merge_rows(cut, starts, marked, rows, order)) for order in orders)
    assert len(found) == 12
    chi_squared = sum((count - draws / 12) ** 2 for count in found.values()) / (draws / 12)
    # 11 degrees of freedom, p = 0.001. The seeds are fixed, so the outcome is too.
    assert chi_squared < 31.3


# --- threads ---

THREADS_SCRIPT = (
    ALL_THREADS
    + """
import hashlib, numba, numpy as np
from tests.kernels.test_embedding_dense_backward import ATOMIC, DTYPES, PATHS
from tests.kernels.test_embedding_dense_backward import compute, make_case, make_data
from npu_sim.numbers.formats import storage_view
for threads in (1, 2, 4):
    numba.set_num_threads(threads)
    digest = hashlib.sha256()
    for path in PATHS:
        for dtype in DTYPES:
            for dim in (5, 70, 130):
                grad, indices = make_data(600, dim, 37, dtype, seed=dim)
                case = make_case(path, 600, 37, padding_idx=3)
                out, _ = compute(grad, indices, 37, case, 3 if path in ATOMIC else 0, 9)
                digest.update(storage_view(out).tobytes())
    print(digest.hexdigest())
"""
)


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="there are no threads without the compiler")
def test_any_number_of_threads_gives_the_same_bits():
    digests = words_printed_by(THREADS_SCRIPT, NUMBA_NUM_THREADS="4")
    assert len(digests) == 3
    assert len(set(digests)) == 1


# --- scale ---


def test_the_scale_pass_multiplies_by_a_rounded_reciprocal():
    grad, indices = np.full((49, 16), 0.1, np.float32), np.zeros(49, np.int32)
    out, _ = compute(grad, indices, 1, make_case("row_atomic", 49, 1, scale=True))
    total = np.float32(0)
    for _ in range(49):
        total = total + np.float32(0.1)
    assert out[0, 0] == total * (np.float32(1) / np.float32(49))
    assert out[0, 0] != total / np.float32(49)


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="16777216 rows")
@pytest.mark.parametrize(("path", "chunk_rows"), [("small_dim", 1), ("sorted", 11)])
def test_counters_are_fp32(path, chunk_rows):
    rows = 2**24 + 50
    grad, indices = np.zeros((rows, 1), np.float32), np.zeros(rows, np.int32)
    grad[0] = 1
    out, _ = compute(grad, indices, 1, make_case(path, rows, 1, cores=1, batch_rows=1, scale=True))
    counter = np.float32(2**24)  # where adding 1 rounds back
    if chunk_rows > 1:
        counter = np.float32(0)
        for first in range(0, rows, chunk_rows):
            counter = counter + np.float32(min(chunk_rows, rows - first))
    assert counter != rows
    assert out[0, 0] == np.float32(1) / counter


# --- indices ---


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "float64", "int32", "int64", "int16", "int8", "uint8", "bool"]
)
def test_indices_of_every_dtype(dtype):
    values = np.array([[1, 0, 1], [0, 1, 1]]).astype(dtype)
    converted = convert_indices(values, 40)
    assert converted.dtype == np.int32
    assert converted.tolist() == [1, 0, 1, 0, 1, 1]
    assert first_out_of_range(converted, 40) == -1
    assert convert_indices(values[:, ::2], 40).tolist() == [1, 1, 0, 1]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floating_point_indices_are_truncated_towards_zero(dtype):
    values = np.array([0.99, -0.5, -0.0, 7.5, 39.9], dtype)
    assert convert_indices(values, 40).tolist() == [0, 0, 0, 7, 39]
    for bad in (np.nan, np.inf, -np.inf, -1, 40):
        assert first_out_of_range(convert_indices(np.array([1, bad, 2], dtype), 40), 40) == 1


@pytest.mark.parametrize("bad", [-1, 40, 2**31, 2**32, 2**32 + 1, -(2**63), 2**63 - 1])
def test_integers_that_wrap_are_out_of_range(bad):
    assert first_out_of_range(convert_indices(np.array([3, 39, bad, -5], np.int64), 40), 40) == 2


def test_many_weights_take_64_bit_indices():
    converted = convert_indices(np.array([2**31 + 5, 3]), 2**31 + 6)
    assert converted.dtype == np.int64
    assert first_out_of_range(converted, 2**31 + 6) == -1
    assert first_out_of_range(converted, 2**31 + 5) == 0


def test_a_late_index_out_of_range_is_found():
    indices = np.zeros((1 << 20) + 10, np.int32)
    indices[-3] = -7
    assert first_out_of_range(convert_indices(indices, 1), 1) == indices.size - 3


def test_no_indices_are_all_in_range():
    assert first_out_of_range(convert_indices(np.empty(0, np.int64), 5), 5) == -1


def test_indices_are_converted_without_a_copy_when_they_can_be_used():
    indices = np.array([1, 2], np.int32)
    assert np.shares_memory(convert_indices(indices, 3), indices)
    indices.flags.writeable = False
    assert convert_indices(indices, 3).flags.writeable


def test_rows_are_grouped_stably():
    indices = np.random.default_rng(0).integers(0, 50, 1000).astype(np.int32)
    starts, positions = group_rows(indices, 60)
    assert np.array_equal(positions, np.argsort(indices, kind="stable"))
    assert np.array_equal(starts, np.searchsorted(np.sort(indices), np.arange(61)))

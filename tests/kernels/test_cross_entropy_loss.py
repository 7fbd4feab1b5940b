import hashlib
import json

import ml_dtypes
import numba
import numpy as np
import pytest

import npu_sim
from npu_sim.kernels import cross_entropy_loss as kernels
from npu_sim.tiling import cross_entropy_loss as tiler
from tests.cases import every
from tests.golden import DATA
from tests.processes import ALL_THREADS, words_printed_by
from tests.reference import cross_entropy_loss as reference

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), np.dtype(np.float16), BF16]
REDUCTIONS = ["none", "mean", "sum"]
GOLDEN = sorted(
    path for path in (DATA / "kernels").glob("cross_entropy_loss_*.npz") if "grad" not in path.stem
)
COMPILED = not numba.config.DISABLE_JIT
SOC, CORES = "Ascend910B3", 40


def bits(array):
    """Bit patterns; every nan has the same."""
    found = array.view(np.uint16 if array.itemsize == 2 else np.uint32).copy()
    found[np.isnan(array.astype(np.float32))] = np.iinfo(found.dtype).max
    return found


def case(rows, columns, dtype, weighted, seed=0):
    """Inputs of a call: about every eighth label is ignored."""
    rng = np.random.default_rng([rows, columns, seed])
    x = (rng.standard_normal((rows, columns)) * 3).astype(np.float32).astype(dtype)
    target = rng.integers(0, columns, rows)
    ignored = int(target[rows // 2])
    target[rng.random(rows) < 0.125] = ignored
    weight = rng.uniform(0.1, 2, columns).astype(np.float32) if weighted else None
    return x, target, weight, ignored


def compute(x, target, weight, reduction, ignored, smoothing=0.0, limits="documented", soc=SOC):
    return npu_sim.run(
        "cross_entropy_loss",
        soc=soc,
        input=x,
        target=target,
        weight=weight,
        reduction=reduction,
        ignore_index=ignored,
        label_smoothing=smoothing,
        limits=limits,
    )


def assert_as_in_reference(x, target, weight, reduction, ignored, smoothing=0.0, **more):
    result = compute(x, target, weight, reduction, ignored, smoothing, **more)
    tiling = result.plan.tiling
    place = tiling["inputUbSize"] + tiling["weight4SmoothingBufSize"] + 8
    if x.itemsize == 2:
        place += tiling["inputUbSize"] // 2
    expected = reference.loss_and_log_prob(
        x, target, weight, reduction, ignored, smoothing, CORES, tiling["inputUbSize"], place
    )
    for own, right in zip(result.outputs.values(), expected, strict=True):
        assert own.dtype == x.dtype
        assert np.array_equal(bits(own.reshape(right.shape)), bits(right))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_results_bit_for_bit(path):
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    meta = json.loads(str(arrays.pop("meta")))
    for key, array in arrays.items():
        arrays[key] = array.view(BF16) if array.dtype == np.uint16 else array
    result = compute(
        arrays["in_input"],
        arrays["in_target"],
        arrays.get("in_weight"),
        meta["reduction"],
        meta["ignore_index"],
        meta["label_smoothing"],
        soc=meta["soc"],
    )
    assert result.plan.tiling_key == meta["tiling_key"]
    assert result.plan.tiling["inputUbSize"] == meta["inputUbSize"]
    for name, own in result.outputs.items():
        if f"out_{name}" in arrays:
            assert np.array_equal(bits(own), bits(arrays[f"out_{name}"]))
        else:
            digest = hashlib.sha256(bits(own).tobytes()).hexdigest()
            assert digest == meta["digests"][f"out_{name}"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("rows", "columns"),
    every(2, [(1, 1), (7, 5), (39, 33), (40, 64), (41, 129), (100, 300), (3, 8200), (2, 24600)]),
)
def test_every_combination_agrees_with_the_reference(
    rows, columns, reduction, weighted, smoothing, dtype
):
    x, target, weight, ignored = case(rows, columns, dtype, weighted)
    assert_as_in_reference(x, target, weight, reduction, ignored, smoothing)


@pytest.mark.parametrize("core_rows", [3, 4096, 4097, 5200, 6300, 8191, 8192, 8193, 9500])
@pytest.mark.parametrize("place", [16, 40, kernels.NEVER])
def test_cores_with_many_rows_lose_and_overwrite_sums(core_rows, place):
    parts = np.random.default_rng(core_rows).standard_normal((3, 3 * core_rows), np.float32)
    ranges = [(core * core_rows, (core + 1) * core_rows) for core in range(3)]
    expected = [
        reference.tree(
            [reference.core_sum(part[first:last], place if kind == 0 else 1 << 40)
             for first, last in ranges]
        )
        for kind, part in enumerate(parts)
    ]  # fmt: skip
    totals = kernels.totals_of(parts, kernels.Cores(np.array(ranges), place))
    assert totals.tolist() == [float(total) for total in expected]


@pytest.mark.parametrize(
    ("core_rows", "code"), [(8193, "rows_lost"), (5185, "row_sum_overwritten")]
)
def test_a_call_of_the_hardware_limit_loses_rows(core_rows, code):
    rows = CORES * core_rows
    x, target = np.zeros((rows, 2), np.float32), np.zeros(rows, np.int64)
    x[:, 0] = np.arange(rows) % 7
    result = compute(x, target, None, "mean", 3, limits="hardware")
    assert code in [warning.code for warning in result.plan.caveats]
    parts = -compute(x, target, None, "none", 3, limits="hardware").outputs["loss"]
    place = result.plan.tiling["inputUbSize"] + 8
    sums = [
        reference.core_sum(parts[first:last], place)
        for first, last in reference.core_ranges(rows, CORES)
    ]
    weights = reference.tree([reference.core_sum(np.ones(core_rows)) for _ in range(CORES)])
    assert result.outputs["loss"] == -reference.tree(sums) / weights


def test_rows_are_lost_and_sums_overwritten_in_these_calls():
    """The calls of the test above differ from the sum over all rows."""
    lost = kernels.Cores(np.array([[0, 9500]]))
    ones = np.ones((3, 9500), np.float32)
    assert kernels.totals_of(ones, lost).tolist() == [4096.0] * 3
    overwritten = kernels.Cores(np.array([[0, 6300]]), 16)
    ones[0, 4096 + 16 * 64 :] = 2
    assert kernels.totals_of(ones, overwritten).tolist() == [
        64 * 2 + 1024 + 2 * (6300 - 4096 - 1024),
        6300.0,
        6300.0,
    ]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [5, 200])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 6e4, -6e4, 0.0, -0.0])
def test_any_value_of_a_logit(value, columns, dtype):
    x, target, weight, ignored = case(6, columns, dtype, True)
    x[1, 0], x[2, columns - 1], x[3, target[3]], x[4] = value, value, value, value
    with np.errstate(all="ignore"):
        assert_as_in_reference(x, target, weight, "none", ignored, 0.1)
        assert_as_in_reference(x, target, weight, "mean", ignored)


def test_an_ignored_row_gives_minus_zero():
    x, target = np.zeros((2, 4), np.float32), np.array([-100, 1])
    loss = compute(x, target, None, "none", -100).outputs["loss"]
    assert np.signbit(loss[0])
    assert loss[0] == 0
    total = compute(x[:1], target[:1], None, "sum", -100).outputs["loss"]
    assert np.signbit(total[0])
    assert total[0] == 0
    assert np.isnan(compute(x[:1], target[:1], None, "mean", -100).outputs["loss"][0])


def test_a_cut_row_depends_on_the_batch():
    x = case(4, 100000, np.dtype(np.float32), False)[0]
    labels = kernels.Labels(np.zeros(4, np.int64), np.empty(0, np.float32), -100, False)
    results = []
    for columns in (48000, 47744):
        log_prob, parts = np.empty_like(x), np.empty((5, 4), np.float32)
        split = kernels.Split(columns)
        form = kernels.Form(
            np.finfo(np.float32).min, *np.array([0], np.float32), False, *np.ones(1, np.float32),
            *np.zeros(2, np.float32),
        )  # fmt: skip
        kernels.loss_of_rows(kernels.Rows(x, log_prob, parts), labels, form, split, "pieces")
        results.append(parts[kernels.LOGARITHM])
        assert np.array_equal(
            parts[kernels.LOGARITHM],
            [
                np.log(
                    np.float64(
                        reference.row_sum(
                            np.exp((row - row.max()).astype(np.float64)).astype(np.float32), columns
                        )
                    )
                ).astype(np.float32)
                for row in x
            ],
        )
    assert tiler.PIECE_COLUMNS == kernels.PIECE_COLUMNS


def test_neither_end_of_a_row_is_overwritten():
    x, target, weight, ignored = case(5, 8192 + 131, BF16, True)
    memory = np.full(5 * 8323 + 80, 9, BF16)
    out = memory[41 : 41 + 5 * 8323].reshape(5, 8323)
    loss = np.empty(1, BF16)
    npu_sim.cross_entropy_loss(x, target, weight, "sum", ignored, out=(loss, out))
    assert (memory[:41] == 9).all()
    assert (memory[41 + out.size :] == 9).all()
    right = npu_sim.cross_entropy_loss(x, target, weight, "sum", ignored)
    assert np.array_equal(bits(out), bits(right[1]))
    assert np.array_equal(bits(loss), bits(right[0]))


PROGRAM = (
    ALL_THREADS
    + """
import hashlib, sys
import numpy as np
from numba import set_num_threads
from tests.kernels.test_cross_entropy_loss import DTYPES, bits, case, compute
rows, columns, *every_number_of_threads = (int(word) for word in sys.argv[1:])
for threads in every_number_of_threads:
    set_num_threads(threads)
    digest = hashlib.sha256()
    with np.errstate(all="ignore"):
        for dtype in DTYPES:
            x, target, weight, ignored = case(rows, columns, dtype, True)
            x[0, :3] = [np.nan, np.inf, -np.inf]
            for soc in ("Ascend910B1", "Ascend950PR_9589"):
                found = compute(x, target, weight, "mean", ignored, 0.1, soc=soc).outputs
                for array in found.values():
                    digest.update(bits(array).tobytes())
    print(digest.hexdigest())
"""
)


@pytest.mark.long
@pytest.mark.skipif(not COMPILED, reason="nothing is compiled")
def test_any_number_of_threads_gives_the_same_bits():
    digests = words_printed_by(PROGRAM, 200, 9000, 1, 2, 4, NUMBA_NUM_THREADS="4")
    assert len(digests) == 3
    assert len(set(digests)) == 1


@pytest.mark.long
@pytest.mark.skipif(not COMPILED, reason="nothing is compiled")
def test_without_the_compiler_the_bits_are_the_same():
    assert words_printed_by(PROGRAM, 5, 140, 1, NUMBA_DISABLE_JIT="1") == words_printed_by(
        PROGRAM, 5, 140, 1
    )

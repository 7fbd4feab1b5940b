import json

import ml_dtypes
import numba
import numpy as np
import pytest

import npu_sim
from npu_sim.kernels import cross_entropy_loss_grad as kernels
from npu_sim.kernels.engine.compile import PLAIN, Kernel
from npu_sim.kernels.shared.elementwise import ulp_distance
from tests.cases import every
from tests.golden import DATA
from tests.processes import ALL_THREADS, words_printed_by
from tests.reference import cross_entropy_loss_grad as reference

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), np.dtype(np.float16), BF16]
REDUCTIONS = ["none", "mean", "sum"]
GOLDEN = sorted(path.stem for path in (DATA / "kernels").glob("cross_entropy_loss_grad_*.npz"))
COMPILED = not numba.config.DISABLE_JIT


def bits(array):
    return array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint32)


def case(rows, columns, dtype, reduction, weighted, seed=0):
    """Inputs of a call: about every eighth label is ignored."""
    rng = np.random.default_rng([rows, columns, seed])
    logits = rng.standard_normal((rows, columns)) * 3
    log_prob = (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(np.float32)
    grad_loss = rng.standard_normal(rows) if reduction == "none" else np.array(0.7)
    target = rng.integers(0, columns, rows)
    ignored = int(target[rows // 2])
    target[rng.random(rows) < 0.125] = ignored
    weight = rng.uniform(0.1, 2, columns).astype(np.float32) if weighted else None
    return (
        grad_loss.astype(np.float32).astype(dtype),
        log_prob.astype(dtype),
        target,
        weight,
        reduction,
        ignored,
    )


def compute(grad_loss, log_prob, target, weight, reduction, ignored, soc="Ascend910B1"):
    profile = npu_sim.load_profile("atlas_a2", soc)
    return npu_sim.cross_entropy_loss_grad(
        grad_loss, log_prob, target, weight, reduction, ignored, product=profile
    )


def assert_close(result, expected, most=2):
    """Within 2 ulp of the output dtype; nan where nan is expected."""
    assert result.dtype == expected.dtype
    assert ulp_distance(result, expected, result.dtype).max(initial=0) <= most


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_results_within_two_ulp(name):
    with np.load(DATA / "kernels" / f"{name}.npz") as file:
        meta = json.loads(str(file["meta"]))
        arrays = {key: file[key] for key in file.files if key != "meta"}
    dtype = BF16 if meta["dtype"] == "bfloat16" else np.dtype(meta["dtype"])
    grad_loss, kept, expected = (
        arrays[key].view(dtype) for key in ("in_grad_loss", "in_log_prob", "out_x_grad")
    )
    # Some rows were left out of the file; no other row depends on their log_prob.
    log_prob = np.full((arrays["in_target"].size, kept.shape[1]), -1, dtype)
    log_prob[arrays["rows"]] = kept
    call = (
        grad_loss,
        log_prob,
        arrays["in_target"],
        arrays.get("in_weight"),
        meta["reduction"],
        meta["ignore_index"],
    )
    result = compute(*call, soc=meta["soc"])[arrays["rows"]]
    assert_close(result, expected, most=2 if dtype == np.float32 else 0)
    assert (
        npu_sim.plan(
            "cross_entropy_loss_grad",
            soc=meta["soc"],
            grad_loss=grad_loss,
            log_prob=log_prob,
            target=arrays["in_target"],
            weight=arrays.get("in_weight"),
            reduction=meta["reduction"],
        ).tiling_key
        == meta["tiling_key"]
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("rows", "columns"),
    every(2, [(1, 1), (7, 5), (47, 33), (48, 64), (49, 129), (100, 300), (13, 8200)]),
)
def test_every_combination_agrees_with_the_reference(rows, columns, reduction, weighted, dtype):
    call = case(rows, columns, dtype, reduction, weighted)
    assert_close(compute(*call), reference.x_grad(*call, cores=48))


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("soc", ["Ascend910B1", "Ascend910B4"])
def test_the_divisor_is_summed_core_by_core(soc, weighted):
    """Weights of very different sizes: any other order of the additions gives other bits."""
    rng = np.random.default_rng(1)
    target, weight = (
        rng.integers(0, 500, 20000),
        (10.0 ** rng.uniform(-4, 4, 500)).astype(np.float32),
    )
    given = weight if weighted else np.empty(0, np.float32)
    cores = 48 if soc == "Ascend910B1" else 40
    ranges = np.array(reference.core_ranges(20000, cores), np.int64)
    labels = kernels.Labels(target, given, 500, 3, True)
    survey = kernels.survey_labels(labels, kernels.Passes(ranges), True)
    values = np.where(target == 3, np.float32(0), weight[target] if weighted else np.float32(1))
    expected = reference.reduce_sum(
        [reference.reduce_sum(values[first:last]) for first, last in ranges]
    )
    assert survey.divisor.view(np.uint32) == expected.view(np.uint32)
    assert (survey.out_of_range, survey.ignored, survey.aliased) == (
        -1,
        int((target == 3).sum()),
        0,
    )


@pytest.mark.parametrize("label", [-1, 5])
def test_ascend_950_finds_the_first_label_out_of_range(label):
    labels = kernels.Labels(np.array([1, label, 2]), np.empty(0, np.float32), 5, -100, False)
    passes = kernels.Passes(np.array([[0, 2], [2, 3]]), 2)
    assert kernels.survey_labels(labels, passes, True).out_of_range == 1


def test_the_core_count_can_change_the_last_bits():
    rng = np.random.default_rng(1)
    target, weight = (
        rng.integers(0, 500, 20000),
        (10.0 ** rng.uniform(-4, 4, 500)).astype(np.float32),
    )
    labels = kernels.Labels(target, weight, 500, -100, True)
    ranges = [np.array(reference.core_ranges(20000, cores), np.int64) for cores in (40, 48, 64)]
    divisors = [
        kernels.survey_labels(labels, kernels.Passes(ranges_of_cores), True).divisor
        for ranges_of_cores in ranges
    ]
    assert len(set(divisors)) > 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [40, 700])
@pytest.mark.parametrize(
    "value", [0.0, -0.0, -np.inf, np.inf, np.nan, -100.0, -95.5, -88.0, 5.0, 88.9]
)
def test_any_value_of_log_prob(value, columns, dtype):
    """Blocks with all values in [-87, -0] take the fast path; any other value must not."""
    call = list(case(4, columns, dtype, "none", True))
    call[1] = call[1].copy()
    call[1][1, columns // 2] = value
    call[1][2, 0] = value
    call[1][3, columns - 1] = value
    with np.errstate(all="ignore"):
        assert_close(compute(*call), reference.x_grad(*call, cores=48))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("value", [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 6e4])
def test_any_gradient_of_the_loss(value, dtype):
    call = list(case(3, 300, dtype, "sum", False))
    call[0] = np.array(value, np.float32).astype(dtype)
    with np.errstate(all="ignore"):
        assert_close(compute(*call), reference.x_grad(*call, cores=48))


def test_tiny_results_stay_subnormal():
    log_prob = np.full((2, 300), -80, np.float32)
    result = compute(np.array(1e-5, np.float32), log_prob, np.array([0, 0]), None, "sum", -100)
    expected = reference.x_grad(
        np.array(1e-5, np.float32), log_prob, np.array([0, 0]), None, "sum", -100, 48
    )
    assert 0 < result[0, 1] < np.finfo(np.float32).smallest_normal
    assert_close(result, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cancellation_at_the_label(dtype):
    """exp(log_prob) * nll - nll near log_prob = 0: one ulp of exp is many ulps of the result."""
    log_prob = np.full((200, 20), -5, dtype)
    log_prob[:, 7] = -np.geomspace(1e-4, 0.5, 200)
    call = (np.array(1, dtype), log_prob, np.full(200, 7), None, "sum", -100)
    assert_close(
        compute(*call)[:, 7].copy(), reference.x_grad(*call, cores=48)[:, 7].copy(), most=0
    )


def test_neither_end_of_a_row_is_overwritten():
    """Blocks never write beyond a row: adjacent odd rows, and memory around the output."""
    call = case(5, 8192 + 131, BF16, "sum", True)
    memory = np.full(5 * 8323 + 80, 9, BF16)
    out = memory[41 : 41 + 5 * 8323].reshape(5, 8323)
    result = npu_sim.cross_entropy_loss_grad(*call, out=out)
    assert result is out
    assert (memory[:41] == 9).all()
    assert (memory[41 + out.size :] == 9).all()
    assert np.array_equal(bits(out), bits(compute(*call)))


PROGRAM = (
    ALL_THREADS
    + """
import hashlib, sys
import numpy as np
from numba import set_num_threads, config
from tests.kernels.test_cross_entropy_loss_grad import DTYPES, REDUCTIONS, bits, case, compute
rows, columns, *every_number_of_threads = (int(word) for word in sys.argv[1:])
for threads in every_number_of_threads:
    set_num_threads(threads)
    digest = hashlib.sha256()
    with np.errstate(all="ignore"):
        for dtype in DTYPES:
            for reduction in REDUCTIONS:
                digest.update(bits(compute(*case(rows, columns, dtype, reduction, True))).tobytes())
        call = list(case(rows, columns, DTYPES[0], "sum", False))
        call[1] = call[1].copy()
        call[1][0, : 5] = [-100, -np.inf, 0, 3, 88]
        digest.update(bits(compute(*call)).tobytes())
    print(digest.hexdigest())
"""
)


@pytest.mark.long
@pytest.mark.skipif(not COMPILED, reason="nothing is compiled")
def test_any_number_of_threads_gives_the_same_bits():
    digests = words_printed_by(PROGRAM, 200, 9000, 1, 2, 4, NUMBA_NUM_THREADS="4")
    assert len(digests) == 3
    assert len(set(digests)) == 1


@pytest.mark.skipif(not COMPILED, reason="nothing is compiled")
@pytest.mark.long
def test_without_the_compiler_the_bits_are_the_same():
    assert words_printed_by(PROGRAM, 5, 140, 1, NUMBA_DISABLE_JIT="1") == words_printed_by(
        PROGRAM, 5, 140, 1
    )


@pytest.mark.skipif(not COMPILED or PLAIN, reason="looks at what the engine compiles")
def test_nothing_is_contracted_or_reordered(monkeypatch):
    monkeypatch.setenv("NPU_SIM_CACHE_DIR", "")
    fresh = Kernel(kernels._write_rows.function)
    monkeypatch.setattr(kernels, "_write_rows", fresh)
    log_prob = np.zeros((2, 300), np.float32)
    one = np.ones(1, np.float32)
    labels = kernels.Labels(np.zeros(2, np.int64), np.empty(0, np.float32), 300, -100, True)
    kernels.write_gradient(one, kernels.Division(one[0]), log_prob, labels, log_prob.copy())
    (entry,) = fresh.entries.values()
    module = entry._library.get_llvm_str()
    for flag in (" fast ", " contract ", " reassoc ", "llvm.fmuladd"):
        assert flag not in module
    assert " x float>" in module

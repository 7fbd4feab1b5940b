import json

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.cores import load_profile
from npu_sim.kernels import rms_norm_grad as kernels
from npu_sim.kernels.ascend_950 import rms_norm_grad as kernels_950
from npu_sim.kernels.shared.arrival_orders import (
    RANDOM,
    REVERSE,
    ROUND_ROBIN,
    SEQUENTIAL,
    ArrivalOrder,
    arrivals,
)
from npu_sim.numbers.formats import storage_view
from npu_sim.operators.rms_norm_grad.ascend_950 import timeline as plans_950
from npu_sim.tiling import rms_norm_grad as tiling
from tests.cases import every
from tests.golden import DATA
from tests.processes import ALL_THREADS, words_printed_by
from tests.reference import rms_norm_grad as reference

F = np.float32
CODES = {"sequential": SEQUENTIAL, "reverse": REVERSE, "round_robin": ROUND_ROBIN}
BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPE_ROWS = [
    (np.float32, np.float32),
    (np.float16, np.float32),
    (np.float16, np.float16),
    (BF16, np.float32),
    (BF16, BF16),
]
GOLDEN = sorted(path.stem for path in (DATA / "kernels").glob("rms_norm_grad_*.npz"))


def test_planner_and_kernel_cut_the_same_pieces_and_groups():
    assert kernels.PIECE_COLUMNS == tiling.PIECE_COLUMNS
    assert kernels.GROUP_ROWS == tiling.GROUP_ROWS
    assert kernels_950.PIECE_COLUMNS == plans_950.PIECE_COLUMNS


def bits(array):
    return array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint32)


def load(name):
    """Return a golden result reduced to some rows (for dx) and columns (for dgamma)."""
    with np.load(DATA / "kernels" / f"{name}.npz") as file:
        arrays = {key: file[key] for key in file.files if key != "meta"}
        meta = json.loads(str(file["meta"]))
    float_dtypes = {
        "float32": np.dtype(np.float32),
        "float16": np.dtype(np.float16),
        "bfloat16": BF16,
    }
    for key, array in arrays.items():
        if array.dtype == np.uint16:
            arrays[key] = array.view(
                float_dtypes[meta["gamma_dtype" if key == "gamma" else "dtype"]]
            )
    return meta, arrays


def golden_split(meta):
    """Path and row split of the whole golden call, from its plan."""
    rows, columns = meta["shape"]
    dtype, gamma_dtype = meta["dtype"], meta["gamma_dtype"]
    specs = {
        "dy": f"{rows}x{columns}:{dtype}",
        "x": f"{rows}x{columns}:{dtype}",
        "rstd": f"{rows}:fp32",
    }
    profile = load_profile(None, meta["soc"])
    plan = npu_sim.plan("rms_norm_grad", product=profile, **specs, gamma=f"{columns}:{gamma_dtype}")
    assert plan.tiling_key == meta["tiling_key"]
    lanes = any(
        decision.name == "lane accumulators" and decision.outcome for decision in plan.decisions
    )
    path = kernels.PIECES if plan.tiling_key == 2 else kernels.LANES if lanes else kernels.HALVING
    return kernels.Split(path, plan.block_dim, plan.tiling["block_factor"])


def compute(split, dy, x, rstd, gamma, deterministic=False, order=SEQUENTIAL, seed=0):
    dx, dgamma = np.empty(x.shape, x.dtype), np.empty(x.shape[1], F)
    stored = [storage_view(np.ascontiguousarray(array)) for array in (dy, x, rstd, gamma)]
    rows = kernels.Rows(*stored, storage_view(dx))
    kernels.rms_norm_grad(rows, split, deterministic, ArrivalOrder(order, seed), dgamma)
    return dx, dgamma


@pytest.mark.parametrize("name", every(3, [name for name in GOLDEN if load(name)[0]["rows"]]))
def test_golden_dx_bit_for_bit(name):
    meta, arrays = load(name)
    split = golden_split(meta)._replace(block_dim=1, block_factor=len(meta["rows"]))
    dx, _ = compute(split, *(arrays[f"rows_{one}"] for one in ("dy", "x", "rstd")), arrays["gamma"])
    assert np.array_equal(bits(dx), bits(arrays["rows_dx"]))


@pytest.mark.parametrize("name", every(3, GOLDEN))
def test_golden_dgamma_bit_for_bit(name):
    meta, arrays = load(name)
    prefix = "columns" if "columns_dy" in arrays else "rows"
    inputs = [arrays[f"{prefix}_{one}"] for one in ("dy", "x", "rstd")]
    gamma = arrays["gamma"][meta["columns"]]
    orders = [
        key.removeprefix("columns_dgamma_") for key in arrays if key.startswith("columns_dgamma_")
    ]
    assert orders == (["fixed"] if meta["deterministic"] else list(CODES))
    for order in orders:
        _, dgamma = compute(
            golden_split(meta), *inputs, gamma, order == "fixed", CODES.get(order, SEQUENTIAL)
        )
        assert np.array_equal(bits(dgamma), bits(arrays[f"columns_dgamma_{order}"])), order


@pytest.mark.parametrize("name", ["rms_norm_grad_08", "rms_norm_grad_10"])
@pytest.mark.parametrize("order", CODES)
def test_whole_golden_calls_through_the_public_function(name, order):
    meta, arrays = load(name)
    inputs = {one: arrays[f"rows_{one}"] for one in ("dy", "x", "rstd")}
    dx, dgamma = npu_sim.rms_norm_grad(
        **inputs, gamma=arrays["gamma"], product=load_profile(None, meta["soc"]), core_order=order
    )
    assert np.array_equal(bits(dx), bits(arrays["rows_dx"]))
    assert np.array_equal(bits(dgamma), bits(arrays[f"columns_dgamma_{order}"]))


def random_inputs(rows, columns, dtype, gamma_dtype, seed=0):
    rng = np.random.default_rng([seed, rows, columns])
    dy, x = (rng.standard_normal((rows, columns), F).astype(dtype) for _ in range(2))
    return (
        dy,
        x,
        rng.uniform(0.5, 2, rows).astype(F),
        rng.normal(1, 0.2, columns).astype(gamma_dtype),
    )


def expected(split, dy, x, rstd, gamma):
    wide = [array.astype(F) for array in (dy, x, rstd, gamma)]
    if split.path == kernels.PIECES:
        dx, contributions = reference.split_d(*wide, split.block_factor)
    else:
        dx, contributions = reference.split_n(
            *wide, split.block_factor, split.path == kernels.LANES
        )
    return dx.astype(dy.dtype), contributions


CASES = [
    *[
        (kernels.LANES, rows, columns)
        for rows, columns in [
            (1, 1),
            (7, 3),
            (50, 63),
            (9, 64),
            (10, 65),
            (33, 129),
            (5, 639),
            (3, 640),
        ]
    ],
    *[
        (kernels.HALVING, rows, columns)
        for rows, columns in [
            (9, 1),
            (4, 9),
            (5, 64),
            (6, 65),
            (7, 127),
            (8, 128),
            (9, 129),
            (5, 641),
        ]
    ],
    *[
        (kernels.HALVING, rows, columns)
        for rows, columns in [(3, 1000), (2, 3071), (4, 4096), (3, 4097), (2, 6080)]
    ],
    *[
        (kernels.PIECES, rows, columns)
        for rows, columns in [(3, 6081), (70, 8192), (2, 8193), (5, 8256), (4, 8257), (2, 12289)]
    ],
]


@pytest.mark.parametrize(("path", "rows", "columns"), CASES)
@pytest.mark.parametrize("cores", every(2, [3, 1]))
def test_every_path_agrees_with_the_reference(path, rows, columns, cores):
    block_factor = -(-rows // cores)
    split = kernels.Split(path, -(-rows // block_factor), block_factor)
    dtype, gamma_dtype = DTYPE_ROWS[(rows + columns) % len(DTYPE_ROWS)]
    inputs = random_inputs(rows, columns, dtype, gamma_dtype)
    dx, contributions = expected(split, *inputs)
    counts = [len(own) for own in contributions]
    assert counts == split.contributions(rows).tolist()
    for order, code in CODES.items():
        got_dx, dgamma = compute(split, *inputs, order=code)
        assert np.array_equal(bits(got_dx), bits(dx))
        assert np.array_equal(
            bits(dgamma), bits(reference.merged(contributions, reference.arrival(counts, order)))
        ), order
    got_dx, dgamma = compute(split, *inputs, deterministic=True)
    assert np.array_equal(bits(got_dx), bits(dx))
    assert np.array_equal(bits(dgamma), bits(reference.fixed(contributions)))


@pytest.mark.parametrize(("dtype", "gamma_dtype"), DTYPE_ROWS)
@pytest.mark.parametrize(
    ("path", "columns"), [(kernels.LANES, 200), (kernels.HALVING, 700), (kernels.PIECES, 6100)]
)
def test_every_dtype_row_agrees_with_the_reference(path, columns, dtype, gamma_dtype):
    split = kernels.Split(path, 2, 5)
    inputs = random_inputs(9, columns, dtype, gamma_dtype)
    dx, contributions = expected(split, *inputs)
    got_dx, dgamma = compute(split, *inputs)
    assert np.array_equal(bits(got_dx), bits(dx))
    assert np.array_equal(bits(dgamma), bits(reference.merged(contributions, [(0, 0), (1, 0)])))


def test_special_values_spread_as_ieee_says():
    split = kernels.Split(kernels.HALVING, 2, 2)
    dy, x, rstd, gamma = random_inputs(4, 700, np.float16, np.float16)
    x[0, 5], dy[1, 6], x[2, 7], dy[3, 8] = np.inf, np.nan, 6e-8, -0.0
    with np.errstate(all="ignore"):
        dx, contributions = expected(split, dy, x, rstd, gamma)
        dgamma = reference.fixed(contributions)
    got_dx, got_dgamma = compute(split, dy, x, rstd, gamma)
    assert np.array_equal(got_dx, dx, equal_nan=True)
    assert np.array_equal(got_dgamma, dgamma, equal_nan=True)
    assert not np.isfinite(dx[:2]).any()
    assert np.array_equal(bits(got_dx[2:]), bits(dx[2:]))


def test_a_random_order_is_drawn_once_for_whole_rows():
    split = kernels.Split(kernels.HALVING, 10, 3)
    inputs = random_inputs(30, 700, np.float32, np.float32)
    _, contributions = expected(split, *inputs)
    _, dgamma = compute(split, *inputs, order=RANDOM, seed=5)
    (drawn,) = arrivals(np.ones(10, np.int64), ArrivalOrder(RANDOM, 5))
    assert np.array_equal(
        bits(dgamma), bits(reference.merged(contributions, [(core, 0) for core in drawn]))
    )


def test_a_random_order_is_drawn_for_every_piece():
    rows, columns = 200, 8300
    split = kernels.Split(kernels.PIECES, 3, 70)
    inputs = random_inputs(rows, columns, np.float32, np.float32)
    _, contributions = expected(split, *inputs)
    counts = split.contributions(rows)
    assert counts.tolist() == [3, 3, 2]
    numbered = [(core, number) for core, count in enumerate(counts) for number in range(count)]
    drawn = arrivals(counts, ArrivalOrder(RANDOM, 9), 3)
    assert len({tuple(one) for one in drawn.tolist()}) == 3
    _, dgamma = compute(split, *inputs, order=RANDOM, seed=9)
    for piece, begin in enumerate(range(0, columns, 4096)):
        merged = reference.merged(contributions, [numbered[one] for one in drawn[piece]])
        assert np.array_equal(
            bits(dgamma[begin : begin + 4096]), bits(merged[begin : begin + 4096])
        )


@pytest.mark.parametrize("path", [kernels.HALVING, kernels.PIECES])
@pytest.mark.parametrize("order", [SEQUENTIAL, REVERSE, RANDOM])
@pytest.mark.parametrize("deterministic", [False, True])
def test_cores_in_batches_give_the_same_bits(monkeypatch, path, order, deterministic):
    columns = 700 if path == kernels.HALVING else 4096
    split = kernels.Split(path, 13, 2)
    inputs = random_inputs(26, columns, np.float32, np.float32)
    whole = compute(split, *inputs, deterministic=deterministic, order=order, seed=3)
    monkeypatch.setattr(kernels, "SMALL_SCRATCH_BYTES", 0)
    monkeypatch.setattr(kernels, "thread_count", lambda: 1)
    batches = list(
        kernels._batches(
            np.ones(13, np.int64),
            arrivals(np.ones(13, np.int64), ArrivalOrder(order, 3)),
            26,
            columns,
            4,
        )
    )
    assert [cores.size for cores, _ in batches] == [6, 6, 1]
    batched = compute(split, *inputs, deterministic=deterministic, order=order, seed=3)
    for one, other in zip(whole, batched, strict=True):
        assert np.array_equal(bits(one), bits(other))


SCRIPT = (
    ALL_THREADS
    + """
import sys, hashlib
import numba
import numpy as np, ml_dtypes
import npu_sim
from npu_sim.framework.inference import arguments_of
from npu_sim.operators.shared.generate import generate
from npu_sim.operators.loading import load_operator
SIZES = {
    "large": ((41, 100, "fp16"), (30, 700, "bf16"), (5, 6500, "fp32")),
    "small": ((3, 70, "fp16"), (2, 660, "bf16"), (2, 6090, "fp32")),
}
for threads in sys.argv[2:]:
    numba.set_num_threads(int(threads))
    digest = hashlib.sha256()
    for rows, columns, dtype in SIZES[sys.argv[1]]:
        x = f"{rows}x{columns}:{dtype}"
        call = {"dy": x, "x": x, "rstd": f"{rows}:fp32", "gamma": f"{columns}:{dtype}"}
        data = generate("rms_norm_grad", arguments_of(load_operator("rms_norm_grad"), call), 1)
        for order in ("sequential", "round_robin", "random"):
            options = {"core_order": order, "seed": 2, "soc": "Ascend910B4"}
            for result in npu_sim.rms_norm_grad(**data, **options):
                digest.update(result.tobytes())
    print(digest.hexdigest())
"""
)


@pytest.mark.long
def test_the_number_of_threads_does_not_matter():
    digests = words_printed_by(SCRIPT, "large", 1, 2, 4, NUMBA_NUM_THREADS="4")
    assert len(digests) == 3
    assert len(set(digests)) == 1


@pytest.mark.long
def test_uncompiled_kernels_give_the_same_bits():
    assert words_printed_by(SCRIPT, "small", 1, NUMBA_DISABLE_JIT="1") == words_printed_by(
        SCRIPT, "small", 1, NUMBA_DISABLE_JIT="0"
    )

"""EmbeddingDenseBackward on Ascend 950: kernels, order, contract, warnings, differences from A2."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.cores import load_profile
from npu_sim.operators.timelines import steps, timeline
from npu_sim.studies.certificate import certify
from tests.cases import every

OPERATOR = "embedding_dense_backward"
A5 = "ascend_950"
CORES_72, CORES_8 = "Ascend950DT_9591", "Ascend950PR_950z"
DTYPES = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}


def call(rows, dim, num_weights, dtype="fp32", padding_idx=-1, scale=False, seed=0):
    """Gradients of mixed magnitude; low indices are frequent."""
    random = np.random.default_rng([rows, dim, num_weights, seed])
    grad = random.standard_normal((rows, dim)) * 2.0 ** random.integers(-4, 5, (rows, 1))
    return {
        "grad": grad.astype(DTYPES[dtype]),
        "indices": (num_weights * random.random(rows) ** 2).astype(np.int32),
        "num_weights": num_weights,
        "padding_idx": padding_idx,
        "scale_grad_by_freq": scale,
    }


def run(product=A5, **inputs):
    return npu_sim.run(OPERATOR, product=product, **inputs)


def plan(rows, dim, num_weights, dtype="fp32", indices="int32", scale=False, **target):
    return npu_sim.plan(
        OPERATOR,
        product=A5,
        grad=f"{rows}x{dim}:{dtype}",
        indices=f"{rows}:{indices}",
        num_weights=num_weights,
        scale_grad_by_freq=scale,
        **target,
    )


# --- A slow reference, core by core as the page describes the kernels ---


def grouped(rows, size, start):
    """``start`` plus the sums of every ``size`` rows."""
    total = start.copy()
    for begin in range(0, len(rows), size):
        group = np.zeros_like(total)
        for row in rows[begin : begin + size]:
            group = group + row
        total = total + group
    return total


def scaled(total, count):
    return total * (np.float32(1) / np.float32(count))


def reference_v2(grad, indices, num_weights, padding_idx, scale_grad_by_freq, core_rows, batch):
    """Running sums over batches, two slots of every core, and the merge of the slots."""
    order = np.argsort(indices, kind="stable")
    zeros = np.zeros(grad.shape[1], np.float32)
    out = np.zeros((num_weights, grad.shape[1]), np.float32)
    begins, ends = [], []
    for first in range(0, order.size, core_rows):
        sums, counts, written = {}, {}, []
        for begin in range(first, min(first + core_rows, order.size), batch):
            own = order[begin : min(begin + batch, first + core_rows)]
            for index in np.unique(indices[own]).tolist():
                if index == padding_idx:
                    continue
                rows = grad[own[indices[own] == index]].astype(np.float32)
                sums[index] = grouped(rows, 10, sums.get(index, zeros))
                counts[index] = counts.get(index, 0) + len(rows)
                written += [index] if index not in written else []
                total = sums[index]
                out[index] = scaled(total, counts[index]) if scale_grad_by_freq else total
        if not written:
            begins.append((-2, 0, zeros))
            ends.append((-2, 0, zeros))
            continue
        low, high = written[0], written[-1]
        has_begin = low != high and indices[order[first]] != padding_idx
        begins.append((low, counts[low], sums[low]) if has_begin else (high, 0, zeros))
        ends.append((high, counts[high], sums[high]))
    pairs = zip(ends[:64], begins[1:65], strict=False)
    if any(end[0] == begin[0] != -2 for end, begin in pairs):
        slots = [ends[0]]
        for begin, end in zip(begins[1:], ends[1:], strict=True):
            slots += [begin, end]
        for index in {slot[0] for slot in slots} - {-2}:
            own = [slot for slot in slots if slot[0] == index]
            total = grouped([slot[2] for slot in own], 10, zeros)
            count = sum(slot[1] for slot in own)
            out[index] = scaled(total, count) if scale_grad_by_freq else total
    return out.astype(grad.dtype)


def reference_v1(grad, indices, num_weights, padding_idx, scale_grad_by_freq, batch, full_load):
    """Sums of batches in the rows' own order, added in that order."""
    zeros = np.zeros(grad.shape[1], np.float32)
    out = np.zeros((num_weights, grad.shape[1]), np.float32)
    for begin in range(0, indices.size, batch):
        own = indices[begin : begin + batch]
        for index in set(own.tolist()) - {padding_idx}:
            rows = grad[begin : begin + batch][own == index].astype(np.float32)
            out[index] = out[index] + grouped(rows, 5, zeros)
    if scale_grad_by_freq:
        counts = np.bincount(indices, minlength=num_weights)
        for index in np.flatnonzero(counts):
            total, count = out[index], counts[index]
            out[index] = total / np.float32(count) if full_load else scaled(total, count)
    return out.astype(grad.dtype)


def expected(result, inputs):
    tiling = result.plan.tiling
    if result.plan.kernel == "EmbeddingDenseGradV2":
        batch = tiling["scatterFactor"]
        return reference_v2(**inputs, core_rows=batch * tiling["normalBlockLoopNum"], batch=batch)
    full_load = result.plan.tiling_key < 200
    return reference_v1(**inputs, batch=tiling["indicesFactor"], full_load=full_load)


@pytest.mark.parametrize("dtype", every(3, DTYPES))
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize(
    ("rows", "dim", "num_weights", "padding_idx", "soc"),
    [
        (3000, 7, 1, -1, None),
        (2500, 40, 3, 1, CORES_8),
        (1500, 9, 40, 0, None),
        (2100, 33, 2, 1, None),
        (9000, 65, 300, 299, CORES_8),
        (4000, 600, 6, 2, CORES_8),
        (2400, 17, 90, -1, CORES_72),
    ],
)
def test_v2_adds_like_a_slow_reference(rows, dim, num_weights, padding_idx, soc, scale, dtype):
    inputs = call(rows, dim, num_weights, dtype, padding_idx, scale)
    result = run(soc=soc, **inputs)
    assert result.plan.kernel == "EmbeddingDenseGradV2"
    assert result.outputs["grad_weight"].tobytes() == expected(result, inputs).tobytes()


@pytest.mark.parametrize("dtype", every(2, DTYPES))
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize(
    ("rows", "dim", "num_weights", "padding_idx", "full_load"),
    [
        (1, 5, 4, -1, True),
        (400, 33, 3, 1, True),
        (300, 1000, 20, -1, True),
        (1000, 1200, 5, 4, False),
        (1030, 1200, 500, -1, False),
    ],
)
def test_v1_adds_like_a_slow_reference(
    rows, dim, num_weights, padding_idx, full_load, scale, dtype
):
    inputs = call(rows, dim, num_weights, dtype, padding_idx, scale)
    result = run(soc=CORES_8, **inputs)
    assert result.plan.kernel == "EmbeddingDenseGrad"
    assert (result.plan.tiling_key < 200) == full_load
    assert full_load or result.plan.tiling["loopPerCoreIndice"] > 1
    assert result.outputs["grad_weight"].tobytes() == expected(result, inputs).tobytes()


def neighbours_share(pairs, core_rows):
    """Indices of 72 cores where only the given neighbours share one."""
    indices = np.repeat(np.arange(72, dtype=np.int32), core_rows)
    for pair in pairs:
        indices[(pair + 1) * core_rows] = pair
    return indices


@pytest.mark.parametrize(("pairs", "left_out"), [((66,), True), ((3, 66), False), ((63,), False)])
@pytest.mark.parametrize("scale", [False, True])
def test_the_merge_is_left_out_when_only_later_pairs_share_an_index(pairs, left_out, scale):
    inputs = call(72 * 32, 16, 72, scale=scale)
    inputs["indices"] = neighbours_share(pairs, 32)
    result = run(soc=CORES_72, **inputs)
    assert result.plan.block_dim == 72
    assert result.outputs["grad_weight"].tobytes() == expected(result, inputs).tobytes()
    codes = {caveat.code for caveat in result.caveats}
    assert ("sum_of_one_core" in codes) == left_out
    assert "merge_test_sees_64_pairs" in {caveat.code for caveat in result.plan.caveats}


def test_index_dtypes_do_not_change_the_sums():
    inputs = call(3000, 20, 50)
    outputs = [
        run(**{**inputs, "indices": inputs["indices"].astype(dtype)}).outputs["grad_weight"]
        for dtype in (np.int32, np.float32, np.uint8)
    ]
    assert all(np.array_equal(outputs[0], other) for other in outputs)


@pytest.mark.parametrize(
    ("sizes", "dtype", "scale", "kernel"),
    [
        ((512, 512, 9), "fp32", False, "EmbeddingDenseGradV2"),
        ((511, 511, 9), "fp32", False, "EmbeddingDenseGrad"),
        ((1023, 512, 9), "bf16", False, "EmbeddingDenseGrad"),
        ((1024, 1024, 9), "bf16", False, "EmbeddingDenseGradV2"),
        ((1024, 1025, 9), "fp32", False, "EmbeddingDenseGrad"),
        ((5, 2049, 10246), "fp32", False, "EmbeddingDenseGradV2"),
        ((5, 2049, 10245), "fp32", False, "EmbeddingDenseGrad"),
        ((5, 2048, 99999), "fp32", False, "EmbeddingDenseGrad"),
        ((5, 4000, 2001), "fp32", True, "EmbeddingDenseGradV2"),
        ((5, 4000, 2000), "fp32", True, "EmbeddingDenseGrad"),
        ((2**31 - 1, 8, 9), "fp32", False, "EmbeddingDenseGradV2"),
        ((2**31, 8, 9), "fp32", False, "EmbeddingDenseGrad"),
    ],
)
def test_which_kernel_runs(sizes, dtype, scale, kernel):
    made = plan(*sizes, dtype, scale=scale)
    assert (made.kernel, made.outcome) == (kernel, "runs")
    assert all(order.fixed for order in made.order)
    assert all(memory.used_bytes <= memory.capacity_bytes == 253952 for memory in made.memories)


@pytest.mark.parametrize(
    ("sizes", "indices", "launches"),
    [
        ((2000, 64, 9), "int32", ["Sort", "ZerosLike", "EmbeddingDenseGradV2"]),
        ((2000, 64, 9), "int64", ["Sort", "ZerosLike", "EmbeddingDenseGradV2"]),
        ((2000, 64, 9), "float64", ["Cast", "Sort", "ZerosLike", "EmbeddingDenseGradV2"]),
        ((1, 4000, 99999), "int32", ["ZerosLike", "EmbeddingDenseGradV2"]),
        ((100, 64, 9), "int64", ["EmbeddingDenseGrad"]),
        ((100, 64, 9), "bool", ["Cast", "EmbeddingDenseGrad"]),
    ],
)
def test_launches(sizes, indices, launches):
    made = plan(*sizes, "bf16", indices=indices)
    assert [one.kernel for one in made.launches] == launches
    *_, kernel = made.launches
    assert kernel.inputs[0].dtype == kernel.outputs[0].dtype == "bfloat16"
    is_wide = indices in ("int64", "float64")
    assert kernel.inputs[1].dtype == ("int64" if is_wide else "int32")


def test_the_deterministic_switch_changes_nothing():
    on, off = (plan(5000, 300, 70, deterministic=value) for value in (True, False))
    assert (on.tiling, on.launches, on.order) == (off.tiling, off.launches, off.order)


def test_scale_has_no_bound_on_columns():
    assert plan(2000, 100000, 50, scale=True).outcome == "runs"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"num_weights": 0, "scale_grad_by_freq": True}, 561002),
        ({"indices": "511:int32"}, 161002),
        ({"out": "9x65:fp32"}, 161002),
        ({"out": "9x64:bf16"}, 161002),
    ],
)
def test_refusals(changes, status):
    good = {"grad": "512x64:fp32", "indices": "512:int32", "num_weights": 9, "product": A5}
    assert npu_sim.plan(OPERATOR, **good).outcome == "runs"
    with pytest.raises(npu_sim.AclnnError) as caught:
        npu_sim.plan(OPERATOR, **{**good, **changes})
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("sizes", "padding_idx"),
    every(
        4,
        itertools.product(
            [(700, 60, 9), (1100, 8, 4), (400, 33, 3), (1030, 1040, 200), (1200, 1500, 4)], (-1, 1)
        ),
    ),
)
def test_the_kernel_adds_as_its_declared_tree(sizes, padding_idx):
    for soc in (None, CORES_8):
        certificates = certify(OPERATOR, product=A5, soc=soc, **call(*sizes, "fp32", padding_idx))
        assert certificates
        assert all(one.agrees is True for one in certificates)


def test_bits_differ_from_a2():
    inputs = call(2000, 40, 9)
    a2, a5 = (run(product, **inputs).outputs["grad_weight"] for product in ("atlas_a2", A5))
    assert (a2 != a5).any()
    assert np.allclose(a2, a5, rtol=1e-4, atol=1e-3)
    assert "sum_differs_between_products" in {one.code for one in plan(3, 8, 9).caveats}
    assert "sum_differs_between_products" not in {one.code for one in plan(2, 8, 9).caveats}


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize(
    "sizes", [(5000, 300, 70), (20000, 100, 9), (300, 1000, 20), (3000, 8192, 100)]
)
def test_every_path_has_a_bound_and_steps(sizes, scale):
    made = plan(*sizes, "bf16", scale=scale)
    bound = timeline(made, load_profile(A5))
    rows, dim, _ = sizes
    assert bound.bound_us > 0
    assert bound.read_bytes >= rows * dim * 2
    assert steps(made)["tiles"]

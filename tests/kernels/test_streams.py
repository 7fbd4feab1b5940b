"""Non-temporal and cached stores of results have the same bits, at any place in a cache line."""

import numpy as np
import pytest

from npu_sim.kernels import cross_entropy_loss_grad, rms_norm_grad
from npu_sim.kernels.embedding_dense_backward import sums as embedding_dense_backward_sums
from npu_sim.kernels.embedding_dense_backward.gradient import embedding_dense_backward
from npu_sim.kernels.embedding_dense_backward.grouping import ROW_ATOMIC, Cut
from npu_sim.kernels.shared import row_copies, token_sums
from npu_sim.kernels.shared.arrival_orders import ArrivalOrder
from tests.cases import every

F = np.float32
STORAGES = [np.float32, np.int16, np.uint16]
COLUMNS = [16, 32, 33, 47, 64, 100, 128, 257]
OFFSETS = [0, 1, 5, 12]


def stored(rng, *shape, dtype):
    """Finite stored numbers below 1 in magnitude, of random bits."""
    values = rng.uniform(-1, 1, shape).astype(F)
    return (
        values
        if dtype is F
        else values.astype(np.float16).view(np.int16)
        if dtype is np.int16
        else (values.view(np.uint32) >> 16).astype(dtype)
    )


def at_offset(rows, columns, dtype, offset):
    """Return an array ``offset`` elements after the start of a cache line."""
    memory = np.full(rows * columns + 256, 7, dtype)
    first = -(memory.ctypes.data // memory.itemsize) % (64 // memory.itemsize) + 64 + offset
    return memory, memory[first : first + rows * columns].reshape(rows, columns)


def assert_equal_both_ways(monkeypatch, module, rows, columns, dtype, compute):
    """Cached and non-temporal stores give the same bits; nothing beside them may change."""
    for offset in OFFSETS:
        results = []
        for streams in (False, True):
            decides = "is_streamed" if hasattr(module, "is_streamed") else "streams_rows"
            monkeypatch.setattr(module, decides, lambda *_, streams=streams: streams)
            memory, out = at_offset(rows, columns, dtype, offset)
            compute(out)
            results.append(out.copy())
            out[...] = 7
            assert (memory == 7).all()
        through, past = (result.view(np.uint8) for result in results)
        assert np.array_equal(through, past), offset


@pytest.mark.parametrize("columns", [*COLUMNS, 300, 515, 9000])
@pytest.mark.parametrize("dtype", STORAGES)
def test_cross_entropy(monkeypatch, dtype, columns):
    rng = np.random.default_rng(columns)
    values = -rng.uniform(0, 20, (5, columns)).astype(F)
    log_prob = (
        values
        if dtype is F
        else values.astype(np.float16).view(np.int16)
        if dtype is np.int16
        else (values.view(np.uint32) >> 16).astype(dtype)
    )
    target, loss = (
        np.array([0, columns // 3, columns // 2, columns - 2, columns - 1]),
        np.array([1.7], F),
    )

    labels = cross_entropy_loss_grad.Labels(target, np.empty(0, F), columns, -100, True)

    def compute(out):
        division = cross_entropy_loss_grad.Division(F(1))
        cross_entropy_loss_grad.write_gradient(loss, division, log_prob, labels, out)

    assert_equal_both_ways(monkeypatch, cross_entropy_loss_grad, 5, columns, dtype, compute)


@pytest.mark.parametrize("columns", every(3, COLUMNS))
@pytest.mark.parametrize(
    ("dtype", "gamma_dtype"), [*((one, one) for one in STORAGES), (np.int16, F), (np.uint16, F)]
)
@pytest.mark.parametrize("path", [rms_norm_grad.LANES, rms_norm_grad.HALVING, rms_norm_grad.PIECES])
def test_rms_norm(monkeypatch, path, dtype, gamma_dtype, columns):
    rng = np.random.default_rng(columns)
    dy, x, gamma = (
        stored(rng, 7, columns, dtype=dtype),
        stored(rng, 7, columns, dtype=dtype),
        stored(rng, columns, dtype=gamma_dtype),
    )
    rstd, dgamma = rng.uniform(0.5, 2, 7).astype(F), np.empty(columns, F)

    def compute(out):
        rows = rms_norm_grad.Rows(dy, x, rstd, gamma, out)
        split = rms_norm_grad.Split(path, 3, 3)
        rms_norm_grad.rms_norm_grad(rows, split, False, ArrivalOrder(), dgamma)

    assert_equal_both_ways(monkeypatch, rms_norm_grad, 7, columns, dtype, compute)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("dtype", STORAGES)
def test_moe(monkeypatch, dtype, columns):
    rng = np.random.default_rng(columns)
    grad = stored(rng, 14 * columns, dtype=dtype)
    indices = rng.permutation(18).astype(np.int32)  # four rows were dropped

    def compute(out):
        token_sums.sum_tokens(token_sums.Entries(grad, columns, indices, 3), out.reshape(-1))

    assert_equal_both_ways(monkeypatch, token_sums, 6, columns, dtype, compute)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("dtype", STORAGES)
def test_moe_copies(monkeypatch, dtype, columns):
    rng = np.random.default_rng(columns)
    tokens, places = stored(rng, 6, columns, dtype=dtype), rng.permutation(18).astype(np.int32)

    def compute(out):
        row_copies.copy_rows(tokens, places, out, 3)

    assert_equal_both_ways(monkeypatch, row_copies, 14, columns, dtype, compute)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("columns", [one for one in COLUMNS if one >= 32])
@pytest.mark.parametrize("dtype", STORAGES)
def test_embedding(monkeypatch, dtype, columns, scale):
    rng = np.random.default_rng(columns)
    # Rows without contributions, short runs, a run of several passes, one that all threads share.
    indices = np.concatenate([rng.integers(0, 30, 90), np.full(40, 17), np.full(300, 23)])
    indices = rng.permutation(indices[(indices != 4) & (indices != 29)]).astype(np.int32)
    grad = stored(rng, indices.size, columns, dtype=dtype)

    rows_of_core = -(-indices.size // 4)
    cut = Cut(ROW_ATOMIC, 4, 4, rows_of_core, rows_of_core)

    def compute(out):
        embedding_dense_backward(grad, indices, out, cut, 9, scale)

    assert_equal_both_ways(monkeypatch, embedding_dense_backward_sums, 31, columns, dtype, compute)

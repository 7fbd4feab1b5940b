"""Kernels stay within their memory, and results reach the caller, for arrays of any layout."""

import os
from pathlib import Path

import numpy as np
import pytest

import npu_sim
from npu_sim.framework import execution
from npu_sim.operators.loading import load_operator
from tests.cases import every
from tests.small_calls import NAMES, outputs_of, same_bits, small_call

ROOT = Path(__file__).parents[2]
ADDRESSING = [
    (name, tensor.name)
    for name in NAMES
    for tensor in load_operator(name).inputs
    if tensor.addresses
]


@pytest.mark.parametrize("operator", NAMES)
def test_every_integer_input_is_declared_as_addresses(operator):
    integers = {
        name
        for name, value in small_call(operator).items()
        if isinstance(value, np.ndarray) and value.dtype.kind in "iub"
    }
    assert integers == {name for owner, name in ADDRESSING if owner == operator}


@pytest.mark.parametrize(("operator", "name"), ADDRESSING)
def test_changes_to_inputs_during_a_call_have_no_effect(operator, name, monkeypatch):
    call = small_call(operator)
    expected = npu_sim.run(operator, **call).outputs
    copies = execution.own_copies

    def change_meanwhile(inputs, tensors):
        private = copies(inputs, tensors)
        tensors[name][...] = np.iinfo(tensors[name].dtype).max
        return private

    monkeypatch.setattr(execution, "own_copies", change_meanwhile)
    outputs = npu_sim.run(operator, **call).outputs
    assert (call[name] == np.iinfo(call[name].dtype).max).all()
    assert all(same_bits(outputs[key], expected[key]) for key in expected)


@pytest.mark.parametrize(("operator", "name"), ADDRESSING)
@pytest.mark.filterwarnings("ignore:Setting the strides")
def test_an_array_may_change_its_shape_during_a_call(operator, name, monkeypatch):
    call = small_call(operator)
    expected = npu_sim.run(operator, **call).outputs
    compute = execution.compute_case

    def reshape_meanwhile(*arguments, **keywords):
        call[name].strides = (0,) * call[name].ndim
        return compute(*arguments, **keywords)

    monkeypatch.setattr(execution, "compute_case", reshape_meanwhile)
    outputs = npu_sim.run(operator, **call).outputs
    assert all(same_bits(outputs[key], expected[key]) for key in expected)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (1.0, 1.0, True),
        (0.0, -0.0, False),
        (np.nan, -np.nan, True),
        (np.nan, 1.0, False),
        (1.0, 2.0, False),
    ],
)
def test_results_are_compared_bit_for_bit_except_nan(first, second, same):
    assert (
        same_bits(np.full((2, 2), first, np.float32), np.full((2, 2), second, np.float32)) == same
    )


# --- Outputs ---


class CopyingArray:
    """An array-like that returns a copy of its memory."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array.copy()


class SharingArray(CopyingArray):
    """An array-like that returns its memory."""

    def __array__(self, dtype=None, copy=None):
        return self.array


def fortran(shape, dtype):
    return np.full(shape, 7, dtype, order="F")


def gaps(shape, dtype):
    return np.full((*shape, 3), 7, dtype)[..., 1]


def backwards(shape, dtype):
    return np.full(shape, 7, dtype)[(slice(None, None, -1),) * len(shape)]


def unaligned(shape, dtype):
    size = int(np.prod(shape)) * dtype.itemsize
    return np.zeros(size + 1, np.uint8)[1:].view(dtype).reshape(shape)


def swapped(shape, dtype):
    return np.full(shape, 7, dtype.newbyteorder("S"))


def memory_view(shape, dtype):
    return memoryview(np.full(shape, 7, dtype))


def sharing(shape, dtype):
    return SharingArray(np.full(shape, 7, dtype))


WRITTEN = [fortran, gaps, backwards, unaligned, swapped, memory_view, sharing]
DTYPES = ["float32", "float16"]


@pytest.mark.parametrize("dtype", every(3, DTYPES))
@pytest.mark.parametrize("make", WRITTEN, ids=lambda make: make.__name__)
@pytest.mark.parametrize("operator", NAMES)
def test_every_layout_of_out_is_written(operator, make, dtype):
    expected = npu_sim.run(operator, **_call(operator, dtype)).outputs
    outs = tuple(make(array.shape, array.dtype) for array in expected.values())
    npu_sim.run(operator, **_call(operator, dtype), out=outs)
    for (name, array), out in zip(expected.items(), outs, strict=True):
        assert same_bits(array, np.asarray(out)), name


def read_only(shape, dtype):
    array = np.zeros(shape, dtype)
    array.flags.writeable = False
    return array


def broadcast(shape, dtype):
    return np.lib.stride_tricks.as_strided(
        np.zeros(2, dtype), shape, (0,) * len(shape), writeable=True
    )


REFUSED = {
    "a copy": lambda shape, dtype: CopyingArray(np.zeros(shape, dtype)),
    "a list": lambda shape, dtype: np.zeros(shape, dtype).tolist(),
    "a word": lambda shape, dtype: "x",
    "read-only": read_only,
    "overlapping": broadcast,
    "another shape": lambda shape, dtype: np.zeros((*shape, 2), dtype),
    "another dtype": lambda shape, dtype: np.zeros(shape, np.float64),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=list(REFUSED))
@pytest.mark.parametrize("operator", NAMES)
def test_an_unwritable_out_array_is_refused(operator, make):
    expected = npu_sim.run(operator, **small_call(operator)).outputs
    outs = tuple(make(array.shape, array.dtype) for array in expected.values())
    with pytest.raises(npu_sim.UsageError, match=r"written|result is|share memory"):
        npu_sim.run(operator, **small_call(operator), out=outs)


@pytest.mark.parametrize("operator", NAMES)
def test_more_outs_than_outputs_are_refused(operator):
    expected = npu_sim.run(operator, **small_call(operator)).outputs
    written = [np.zeros_like(array) for array in expected.values()]
    left = [None] * (len(outputs_of(operator)) - len(written))
    with pytest.raises(npu_sim.UsageError, match=r"one for every output|has .* arrays"):
        npu_sim.run(operator, **small_call(operator), out=(*written, *left, np.zeros(3)))
    assert not any(out.any() for out in written)


def _call(operator, dtype):
    dtypes = {
        axis.name: dtype
        for axis in load_operator(operator).dtype_axes
        if dtype in axis.words and "indices" not in axis.name
    }
    return small_call(operator, **dtypes)


@pytest.mark.parametrize("rows", [2**40, 2**58])
def test_a_broadcast_input_beyond_the_memory_is_refused_with_its_size_and_the_limit(rows):
    grad = np.broadcast_to(np.ones((), np.float32), (rows, 4))
    indices = np.broadcast_to(np.ones((), np.int32), (rows,))
    with pytest.raises(npu_sim.AclnnError) as refused:
        npu_sim.embedding_dense_backward(grad, indices, num_weights=3)
    limit = execution.memory_bytes()
    message = f"takes {16 * rows:,} bytes as a contiguous copy, this machine has {limit:,}"
    assert message in str(refused.value)
    assert (refused.value.status, refused.value.argument) == (361001, "grad")


def test_inputs_that_only_together_exceed_the_memory_are_refused(monkeypatch):
    limit = execution.memory_bytes()
    rows = limit // 12
    grad = np.broadcast_to(np.ones((), np.float32), (rows, 2))
    indices = np.broadcast_to(np.ones((), np.int64), (rows,))
    monkeypatch.setattr(execution, "own_copies", lambda *_: pytest.fail("work began"))
    with pytest.raises(npu_sim.AclnnError) as refused:
        npu_sim.embedding_dense_backward(grad, indices, num_weights=3)
    message = f"grad, indices take {16 * rows:,} bytes as contiguous copies, this machine has"
    assert message in str(refused.value)
    assert max(grad.nbytes, indices.nbytes) < limit


def test_an_input_in_a_file_that_was_truncated_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((4096, 16), np.float32))
    given = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert npu_sim.rms_norm(given, np.ones(16, "f4"))[0].all()
    os.truncate(tmp_path / "x.npy", 5000)
    with pytest.raises(npu_sim.UsageError, match="x is in a memory-mapped file that now has 5000"):
        npu_sim.rms_norm(given[5:], np.ones(16, "f4"))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_large_results_start_on_a_cache_line(dtype):
    x, gamma = np.ones((1 << 14, 64), dtype), np.ones(64, dtype)
    y, rstd = npu_sim.rms_norm(x, gamma)
    for result in (y, rstd, npu_sim.swi_glu(x), npu_sim.rms_norm_grad(x, x, rstd, gamma)[0]):
        assert result.ctypes.data % 64 == 0

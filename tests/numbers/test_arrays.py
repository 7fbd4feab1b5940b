"""Arrays of other libraries: the same memory where it can be shared."""

import ctypes

import ml_dtypes
import numpy as np
import pytest

from npu_sim.numbers.arrays import as_array, have_own_memory
from npu_sim.numbers.formats import TensorSpec


class ArrayInterface:
    def __init__(self, array):
        self.keep = array
        self.__array_interface__ = array.__array_interface__


class Dlpack:
    """An exporter with nothing but DLPack; ``legacy`` ones know no protocol version."""

    def __init__(self, array, legacy=False):
        self.array, self.legacy, self.dtype = array, legacy, array.dtype

    def __dlpack_device__(self):
        return (1, 0)

    def export(self, arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack__(self, **arguments):
        if self.legacy and arguments:
            raise TypeError("unexpected keyword argument")
        return self.export(arguments)


class DlpackBfloat(Dlpack):
    """Exports 16-bit integers and labels them bfloat16 (type code 4), as tensor libraries do."""

    def export(self, arguments):
        bits = self.array.view(np.uint16)
        capsule = bits.__dlpack__(**arguments)
        name = b"dltensor_versioned" if "max_version" in arguments else b"dltensor"
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        address = pointer(capsule, name) + (32 if name.endswith(b"versioned") else 0) + 20
        assert ctypes.c_uint8.from_address(address).value == 1
        ctypes.c_uint8.from_address(address).value = 4
        return capsule


class OnAnotherDevice(Dlpack):
    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **arguments):
        raise BufferError("cannot export device memory")


class RecordsGradients(Dlpack):
    requires_grad = True

    def detach(self):
        return Dlpack(self.array)

    def __dlpack__(self, **arguments):
        raise BufferError("use tensor.detach()")


@pytest.fixture
def values():
    return np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.mark.parametrize(
    "wrap",
    [lambda a: a, ArrayInterface, Dlpack, lambda a: Dlpack(a, legacy=True), RecordsGradients],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.bool_])
@pytest.mark.parametrize("part", [np.s_[:], np.s_[1:, ::2]])
def test_memory_is_shared(values, wrap, dtype, part):
    array = values.astype(dtype)[part]
    got = as_array(wrap(array))
    assert np.shares_memory(got, array)
    assert (got.dtype, got.shape, got.strides) == (array.dtype, array.shape, array.strides)
    np.testing.assert_array_equal(got, array)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("part", [np.s_[:], np.s_[1:, ::2], np.s_[0, 0]])
def test_bfloat16_over_dlpack(values, legacy, part):
    array = values.astype(ml_dtypes.bfloat16)[part]
    array = np.asarray(array)
    with pytest.raises((BufferError, RuntimeError, TypeError)):
        np.from_dlpack(DlpackBfloat(array, legacy))  # the reason for the detour
    got = as_array(DlpackBfloat(array, legacy))
    assert got.dtype == ml_dtypes.bfloat16
    assert np.shares_memory(got, array)
    np.testing.assert_array_equal(got.view(np.uint16), array.view(np.uint16))
    assert TensorSpec.of(DlpackBfloat(array, legacy)) == TensorSpec.of(array)


def test_shared_memory_outlives_its_owner():
    got = as_array(DlpackBfloat(np.full(100_000, 3, ml_dtypes.bfloat16)))
    np.full(100_000, 7, ml_dtypes.bfloat16)  # would take the place of freed memory
    assert (got.astype(np.float32) == 3).all()


def test_unreachable_memory_names_the_type(values):
    with pytest.raises(TypeError, match="OnAnotherDevice over DLPack"):
        as_array(OnAnotherDevice(values))


def test_library_that_copies_from_its_device(values):
    class Copies(OnAnotherDevice):
        def __array__(self, dtype=None, copy=None):
            return self.array.copy()

    np.testing.assert_array_equal(as_array(Copies(values)), values)


def test_foreign_byte_order_becomes_native(values):
    got = as_array(values.astype(values.dtype.newbyteorder()))
    assert got.dtype.isnative
    np.testing.assert_array_equal(got, values)


@pytest.mark.parametrize("value", [3, 2.5, [1, 2], [[1.0], [2.0]], np.float32(1), np.array(7)])
def test_numbers_and_sequences(value):
    got = as_array(value)
    assert isinstance(got, np.ndarray)
    np.testing.assert_array_equal(got, np.asarray(value))


MEMORY = np.zeros((6, 8), np.int16)
PARTS = {
    "all": MEMORY,
    "first rows": MEMORY[:3],
    "last rows": MEMORY[3:],
    "last element": MEMORY[5:, 7:],
    "columns": MEMORY[1:3, 2:5],
    "backwards": MEMORY[4:1:-1, ::-2],
    "transposed": MEMORY[3:].T,
    "broadcast": np.broadcast_to(MEMORY[2:3, 7:], (3, 3)),
    "nothing": MEMORY[2:2],
}


@pytest.mark.parametrize("one", PARTS)
@pytest.mark.parametrize("other", PARTS)
def test_views_of_one_array_have_no_memory_of_their_own(one, other):
    assert not have_own_memory((PARTS[one], np.zeros(3), PARTS[other]))


@pytest.mark.parametrize(
    "foreign",
    [
        np.frombuffer(bytearray(8), np.uint8),
        np.asarray(memoryview(bytearray(8))),
        as_array(DlpackBfloat(np.zeros(3, ml_dtypes.bfloat16))),
        [1, 2],
    ],
    ids=["buffer", "memoryview", "DLPack", "list"],
)
def test_memory_of_others_counts_as_shared(foreign):
    assert not have_own_memory((np.zeros(3), foreign))


def test_arrays_and_views_of_different_arrays_have_memory_of_their_own():
    assert have_own_memory((np.zeros(3), MEMORY[2:5].T, np.arange(6).reshape(2, 3)))

"""AclTensor and the functions of the runtime."""

import ml_dtypes
import numpy as np
import pytest

from npu_sim import aclnn
from npu_sim.aclnn import AclDataType, AclFormat, AclTensor, aclCreateTensor, aclDestroyTensor


def test_a_view_has_its_shape_strides_and_offset():
    memory = np.arange(12, dtype=np.float32)
    view = aclCreateTensor(
        (2, 3), AclDataType.ACL_FLOAT, (6, 2), 1, AclFormat.ACL_FORMAT_ND, (12,), memory
    )
    np.testing.assert_array_equal(view.array, [[1, 3, 5], [7, 9, 11]])
    assert (view.contiguous, view.storage_shape, view.format.layout) == (False, (12,), "ND")
    view.array[0, 0] = 50
    assert memory[1] == 50
    assert aclDestroyTensor(view) == 0
    assert view.array is None


@pytest.mark.parametrize(
    ("strides", "offset"), [((6, 2), 2), ((8, 2), 0), ((6, 4), 0), ((6, -2), 0)]
)
def test_a_view_beyond_its_memory_is_an_error(strides, offset):
    with pytest.raises(ValueError, match="does not lie in a memory of 48 bytes"):
        AclTensor((2, 3), AclDataType.ACL_FLOAT, strides, offset, data=np.zeros(12, np.float32))


def test_strides_and_shape_have_one_length():
    with pytest.raises(ValueError, match="one stride for every dimension"):
        AclTensor((2, 3), AclDataType.ACL_FLOAT, (1,))


@pytest.mark.parametrize("kind", [kind for kind in AclDataType if kind.numpy is not None])
def test_arrays_keep_their_type_and_memory(kind):
    array = np.zeros((3, 4), kind.numpy)[:, 1:3]
    tensor = AclTensor.from_array(array)
    assert (tensor.dtype, tensor.shape, tensor.strides, tensor.contiguous) == (
        kind,
        (3, 2),
        (4, 1),
        False,
    )
    assert np.shares_memory(tensor.array, array)
    same = AclTensor((3, 4), kind, data=np.zeros(12 * kind.numpy.itemsize, np.uint8))
    assert same.array.dtype == kind.numpy


def test_types_numpy_does_not_have_are_described_without_a_view():
    tensor = AclTensor((4,), AclDataType.ACL_INT4, data=np.zeros(2, np.uint8))
    assert tensor.array is None
    assert "ACL_INT4" in repr(tensor)


def test_lists_and_bfloat16_arrays_become_tensors():
    assert AclTensor.from_array([[1.0, 2.0]]).dtype is AclDataType.ACL_DOUBLE
    assert AclTensor.from_array(np.zeros(3, ml_dtypes.bfloat16)).dtype is AclDataType.ACL_BF16
    with pytest.raises(ValueError, match="has no aclDataType"):
        AclTensor.from_array(np.zeros(3, "M8[s]"))


@pytest.mark.parametrize(
    ("shape", "strides", "contiguous"),
    [
        ((2, 3), (3, 1), True),
        ((1, 3), (99, 1), True),
        ((2, 1), (1, 7), True),
        ((2, 3), (1, 2), False),
        ((0, 3), (9, 9), True),
        ((), (), True),
    ],
)
def test_contiguous(shape, strides, contiguous):
    assert AclTensor(shape, AclDataType.ACL_FLOAT, strides).contiguous is contiguous


def test_constants_have_the_values_of_the_vendor():
    assert (aclnn.ACL_FLOAT, aclnn.ACL_BF16, aclnn.ACL_FORMAT_ND, aclnn.ACL_FORMAT_NCL) == (
        0,
        27,
        2,
        47,
    )


def test_memory_is_allocated_and_copied():
    status, memory = aclnn.aclrtMalloc(100)
    assert (status, memory.nbytes, memory.ctypes.data % 512) == (0, 100, 0)
    assert aclnn.aclrtMalloc(0) == (aclnn.ACL_ERROR_INVALID_PARAM, None)
    host = np.arange(5, dtype=np.float32)
    assert aclnn.aclrtMemcpy(memory, 100, host, 20, aclnn.ACL_MEMCPY_HOST_TO_DEVICE) == 0
    np.testing.assert_array_equal(memory[:20].view(np.float32), host)
    for most, count in ((10, 20), (200, 30), (100, -1)):
        assert (
            aclnn.aclrtMemcpy(memory, most, host, count, aclnn.ACL_MEMCPY_HOST_TO_DEVICE)
            == aclnn.ACL_ERROR_INVALID_PARAM
        )
    assert aclnn.aclrtMemcpy(memory, 100, host, 20, 9) == aclnn.ACL_ERROR_INVALID_PARAM
    assert aclnn.aclrtFree(memory) == 0


def test_devices_and_streams_succeed():
    assert (
        aclnn.aclInit()
        == aclnn.aclrtSetDevice(0)
        == aclnn.aclrtResetDevice(0)
        == aclnn.aclFinalize()
        == 0
    )
    assert aclnn.aclrtSetDevice(-1) == aclnn.aclrtResetDevice(-1) == aclnn.ACL_ERROR_INVALID_PARAM
    status, stream = aclnn.aclrtCreateStream()
    assert status == aclnn.aclrtSynchronizeStream(stream) == aclnn.aclrtDestroyStream(stream) == 0

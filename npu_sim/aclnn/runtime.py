"""Tensors, constants, and functions of the runtime: device, stream, memory, options and messages.

The simulated device computes in host memory and finishes a call before it returns, so most of these
functions have little to do. Functions that return a value through a pointer argument in C return
(status, value) here.
"""

import threading
from collections.abc import Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import numpy as np

from npu_sim.framework.target import current_device, set_device
from npu_sim.language import Text
from npu_sim.numbers.arrays import Array
from npu_sim.numbers.formats import TensorSpec, as_array, canonical_dtype, numpy_dtype
from npu_sim.plans.workspace import ALIGNMENT_BYTES
from npu_sim.status import INVALID, AclnnError, Status


class AclDataType(IntEnum):
    """Element type of a tensor (aclDataType)."""

    ACL_DT_UNDEFINED = -1
    ACL_FLOAT = 0
    ACL_FLOAT16 = 1
    ACL_INT8 = 2
    ACL_INT32 = 3
    ACL_UINT8 = 4
    ACL_INT16 = 6
    ACL_UINT16 = 7
    ACL_UINT32 = 8
    ACL_INT64 = 9
    ACL_UINT64 = 10
    ACL_DOUBLE = 11
    ACL_BOOL = 12
    ACL_STRING = 13
    ACL_COMPLEX64 = 16
    ACL_COMPLEX128 = 17
    ACL_BF16 = 27
    ACL_INT4 = 29
    ACL_UINT1 = 30
    ACL_COMPLEX32 = 33

    @property
    def numpy(self) -> np.dtype[Any] | None:
        """NumPy dtype of an element; None for a type that NumPy does not have."""
        name = NUMPY_NAMES.get(self)
        if name is None:
            return None
        return numpy_dtype(name) if name == "bfloat16" else np.dtype(name)


class AclFormat(IntEnum):
    """Meaning of a tensor's dimensions, or a private layout (aclFormat)."""

    ACL_FORMAT_UNDEFINED = -1
    ACL_FORMAT_NCHW = 0
    ACL_FORMAT_NHWC = 1
    ACL_FORMAT_ND = 2
    ACL_FORMAT_NC1HWC0 = 3
    ACL_FORMAT_FRACTAL_Z = 4
    ACL_FORMAT_NC1HWC0_C04 = 12
    ACL_FORMAT_HWCN = 16
    ACL_FORMAT_NDHWC = 27
    ACL_FORMAT_FRACTAL_NZ = 29
    ACL_FORMAT_NCDHW = 30
    ACL_FORMAT_NDC1HWC0 = 32
    ACL_FRACTAL_Z_3D = 33
    ACL_FORMAT_NC = 35
    ACL_FORMAT_NCL = 47

    @property
    def layout(self) -> str:
        """Name without its prefix, the layout of a :class:`~npu_sim.numbers.formats.TensorSpec`."""
        return self.name.removeprefix("ACL_").removeprefix("FORMAT_")


NUMPY_NAMES: MappingProxyType[AclDataType, str] = MappingProxyType(
    {
        AclDataType.ACL_FLOAT: "float32",
        AclDataType.ACL_FLOAT16: "float16",
        AclDataType.ACL_INT8: "int8",
        AclDataType.ACL_INT32: "int32",
        AclDataType.ACL_UINT8: "uint8",
        AclDataType.ACL_INT16: "int16",
        AclDataType.ACL_UINT16: "uint16",
        AclDataType.ACL_UINT32: "uint32",
        AclDataType.ACL_INT64: "int64",
        AclDataType.ACL_UINT64: "uint64",
        AclDataType.ACL_DOUBLE: "float64",
        AclDataType.ACL_BOOL: "bool",
        AclDataType.ACL_COMPLEX64: "complex64",
        AclDataType.ACL_COMPLEX128: "complex128",
        AclDataType.ACL_BF16: "bfloat16",
    }
)
"""Names of the NumPy dtypes of data types."""

_DATA_TYPES = MappingProxyType({name: kind for kind, name in NUMPY_NAMES.items()})


def data_type_of(dtype: Any) -> AclDataType:
    """Return the data type of a NumPy dtype or of a dtype's name.

    Raises
    ------
    ValueError
        If the vendor has no such data type, or ``canonical_dtype`` does not accept the name.
    """
    name = dtype.name if isinstance(dtype, np.dtype) else canonical_dtype(dtype)
    if name not in _DATA_TYPES:
        raise ValueError(
            Text(
                "dtype {name} has no aclDataType; those that have: {dtypes}",
                name=name,
                dtypes=", ".join(_DATA_TYPES),
            )
        )
    return _DATA_TYPES[name]


ACL_SUCCESS = 0
ACL_ERROR_INVALID_PARAM = 100000
"""Status of the runtime's own functions for an illegal argument (aclError)."""
ACL_MEM_MALLOC_HUGE_FIRST, ACL_MEM_MALLOC_HUGE_ONLY, ACL_MEM_MALLOC_NORMAL_ONLY = 0, 1, 2
ACL_MEMCPY_HOST_TO_HOST = 0
ACL_MEMCPY_HOST_TO_DEVICE = 1
ACL_MEMCPY_DEVICE_TO_HOST = 2
ACL_MEMCPY_DEVICE_TO_DEVICE = 3
ACL_OPT_DETERMINISTIC = 0
"""Determinism switch of ``aclrtCtxSetSysParamOpt`` (aclSysParamOpt)."""


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor, in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


class AclTensor:
    """A view of memory: shape, strides and offset in elements, data type and format.

    Parameters
    ----------
    viewDims
        Sizes, outermost first. Negative sizes are accepted; the operators return an error for them.
    dataType
        Type of the elements.
    strides
        Strides in elements; those of a contiguous tensor if None.
    offset
        First element of the view, in elements from the start of the memory.
    format
        Meaning of the dimensions.
    storageDims
        Shape of the allocated memory; ``viewDims`` if None. Stored, but not used.
    data
        The memory: a C-contiguous array of any dtype, for example from ``aclrtMalloc``. None
        describes a tensor without memory, which is sufficient for the first stage.

    Raises
    ------
    ValueError
        If the view exceeds the memory.
    """

    __slots__ = ("array", "dtype", "format", "offset", "shape", "storage_shape", "strides")

    def __init__(
        self,
        viewDims: Sequence[int],
        dataType: int,
        strides: Sequence[int] | None = None,
        offset: int = 0,
        format: int = AclFormat.ACL_FORMAT_ND,
        storageDims: Sequence[int] | None = None,
        data: Any = None,
    ) -> None:
        self.shape = tuple(int(size) for size in viewDims)
        self.dtype = AclDataType(dataType)
        self.strides = (
            row_major_strides(self.shape)
            if strides is None
            else tuple(int(step) for step in strides)
        )
        self.offset = int(offset)
        self.format = AclFormat(format)
        self.storage_shape = (
            self.shape if storageDims is None else tuple(int(size) for size in storageDims)
        )
        if len(self.strides) != len(self.shape):
            message = Text(
                "strides {strides} do not match the shape {shape}: one stride for every dimension",
                strides=self.strides,
                shape=self.shape,
            )
            raise ValueError(message)
        self.array: Array | None = (
            None if data is None or min(self.shape, default=0) < 0 else self._view(data)
        )

    @classmethod
    def from_array(cls, array: Any, format: int = AclFormat.ACL_FORMAT_ND) -> "AclTensor":
        """Return a tensor of an array, another library's CPU tensor or nested lists.

        The memory is shared where possible.
        """
        values = as_array(array).view()  # unaffected if the caller changes the shape
        item = values.itemsize
        if any(step % item for step in values.strides):
            raise ValueError(
                Text(
                    "strides {strides} are not multiples of the element size {item}",
                    strides=values.strides,
                    item=item,
                )
            )
        tensor = cls(
            values.shape,
            data_type_of(values.dtype),
            [step // item for step in values.strides],
            format=format,
        )
        tensor.array = values
        return tensor

    def _view(self, data: Any) -> Array | None:
        kind = self.dtype.numpy
        if kind is None:
            return None
        memory = np.asarray(data)
        if not memory.flags.c_contiguous:
            raise ValueError(
                "the memory of a tensor is a C-contiguous array; from_array takes strided ones"
            )
        memory = memory.reshape(-1).view(np.uint8)
        try:
            byte_strides = tuple(step * kind.itemsize for step in self.strides)
            return np.ndarray(self.shape, kind, memory, self.offset * kind.itemsize, byte_strides)
        except (TypeError, ValueError) as error:
            message = Text(
                "a view of shape {shape}, strides {strides}, offset {offset} and type {name}",
                shape=self.shape,
                strides=self.strides,
                offset=self.offset,
                name=self.dtype.name,
            )
            raise ValueError(
                Text(
                    "{message} does not lie in a memory of {nbytes} bytes: {error}",
                    message=message,
                    nbytes=memory.nbytes,
                    error=error,
                )
            ) from None

    @property
    def contiguous(self) -> bool:
        """Whether the elements are in row-major order without gaps; axes of size 1 are ignored."""
        if 0 in self.shape:
            return True
        expected = row_major_strides(self.shape)
        return all(
            size == 1 or step == right
            for size, step, right in zip(self.shape, self.strides, expected, strict=True)
        )

    def spec(self, name: str) -> TensorSpec:
        """Return the spec of the tensor for planning.

        Raises
        ------
        AclnnError
            161002 for a negative size, or a data type that no operator supports.
        """
        if min(self.shape, default=0) < 0:
            raise AclnnError(
                INVALID,
                name,
                "{name} has shape {shape}: a size is negative",
                "sizes are 0 or more",
                name=name,
                shape=self.shape,
            )
        try:
            dtype = self.dtype.name if self.dtype.numpy is None else self.dtype.numpy.name
            return TensorSpec(self.shape, dtype, self.contiguous, self.format.layout)
        except ValueError as error:
            raise AclnnError(
                INVALID,
                name,
                "{name} is {description}: {error}",
                name=name,
                description=self.dtype.name,
                error=error,
            ) from None

    def __repr__(self) -> str:
        memory = "" if self.array is not None else ", without memory"
        view = f"shape={self.shape}, dtype={self.dtype.name}, strides={self.strides}"
        return f"AclTensor({view}, offset={self.offset}, format={self.format.name}{memory})"


def aclCreateTensor(
    viewDims: Sequence[int],
    dataType: int,
    strides: Sequence[int] | None,
    offset: int,
    format: int,
    storageDims: Sequence[int] | None,
    tensorData: Any,
) -> AclTensor:
    """Return a tensor over memory; the C function's dimension counts are the sequences' lengths."""
    return AclTensor(viewDims, dataType, strides, offset, format, storageDims, tensorData)


def aclDestroyTensor(tensor: AclTensor | None) -> int:
    """Drop a tensor's reference to its memory."""
    if tensor is not None:
        tensor.array = None
    return ACL_SUCCESS


class Stream:
    """Stream: calls on it run in order, and have finished when they return."""


def aclInit(configPath: str | None = None) -> int:
    """Do nothing."""
    return ACL_SUCCESS


def aclFinalize() -> int:
    """Do nothing."""
    return ACL_SUCCESS


def aclrtSetDevice(deviceId: int) -> int:
    """Accept any device number; :func:`npu_sim.aclnn.set_device` chooses the simulated device."""
    return ACL_SUCCESS if deviceId >= 0 else ACL_ERROR_INVALID_PARAM


def aclrtResetDevice(deviceId: int) -> int:
    """Accept any device number."""
    return ACL_SUCCESS if deviceId >= 0 else ACL_ERROR_INVALID_PARAM


def aclrtCreateStream() -> tuple[int, Stream]:
    """Return (status, stream)."""
    return ACL_SUCCESS, Stream()


def aclrtSynchronizeStream(stream: Stream | None) -> int:
    """Do nothing: calls have finished when they return."""
    return ACL_SUCCESS


def aclrtDestroyStream(stream: Stream | None) -> int:
    """Do nothing."""
    return ACL_SUCCESS


def aclrtMalloc(size: int, policy: int = ACL_MEM_MALLOC_HUGE_FIRST) -> tuple[int, Array | None]:
    """Return (status, memory), an uninitialised uint8 array of ``size`` bytes aligned to 512."""
    if size <= 0:
        return ACL_ERROR_INVALID_PARAM, None
    block = np.empty(size + ALIGNMENT_BYTES, np.uint8)
    start = -block.ctypes.data % ALIGNMENT_BYTES
    return ACL_SUCCESS, block[start : start + size]


def aclrtFree(devPtr: Array | None) -> int:
    """Do nothing: memory is freed with its last reference."""
    return ACL_SUCCESS


def aclrtMemcpy(dst: Array, destMax: int, src: Array, count: int, kind: int) -> int:
    """Copy ``count`` bytes between C-contiguous arrays of any dtypes."""
    target, source = _bytes(dst), _bytes(src)
    if (
        not 0 <= count <= min(destMax, target.size, source.size)
        or not 0 <= kind <= ACL_MEMCPY_DEVICE_TO_DEVICE
    ):
        return ACL_ERROR_INVALID_PARAM
    target[:count] = source[:count]
    return ACL_SUCCESS


def _bytes(memory: Array) -> Array:
    if not memory.flags.c_contiguous:
        raise ValueError("memory to copy is a C-contiguous array")
    return memory.reshape(-1).view(np.uint8)


def aclrtCtxSetSysParamOpt(opt: int, value: int) -> int:
    """Set an option of the current context; the only one is ``ACL_OPT_DETERMINISTIC``, 0 or 1."""
    if opt != ACL_OPT_DETERMINISTIC or value not in (0, 1):
        return ACL_ERROR_INVALID_PARAM
    set_device(deterministic=bool(value))
    return ACL_SUCCESS


def aclrtCtxGetSysParamOpt(opt: int) -> tuple[int, int]:
    """Return (status, value) of an option of the current context."""
    if opt != ACL_OPT_DETERMINISTIC:
        return ACL_ERROR_INVALID_PARAM, 0
    return ACL_SUCCESS, int(current_device().deterministic)


MAX_MESSAGES = 16
"""Messages stored per thread; older ones are dropped."""


_messages = threading.local()
"""``newest_first`` has the messages of a thread."""


def report(interface: str, error: AclnnError, argument: str = "") -> Status:
    """Store the message of an error for :func:`aclGetRecentErrMsg` and return its status.

    Parameters
    ----------
    interface
        Name of the function that returns the status.
    error
        The error.
    argument
        Name of the illegal argument in the product document; empty for the error's own name.
    """
    where = f" ({argument or error.argument})" if argument or error.argument else ""
    older = getattr(_messages, "newest_first", [])
    _messages.newest_first = [f"{interface}{where}: {error}", *older][:MAX_MESSAGES]
    return error.status


def aclGetRecentErrMsg() -> str | None:
    """Return and clear this thread's error messages, newest first; None if there are none."""
    messages = getattr(_messages, "newest_first", [])
    _messages.newest_first = []
    return "\n".join(messages) or None

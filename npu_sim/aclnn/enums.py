"""Data types, formats and constants with the names and values of the runtime's documents."""

from enum import IntEnum
from types import MappingProxyType
from typing import Any

import numpy as np

from npu_sim.language import Text
from npu_sim.numbers.formats import canonical_dtype, numpy_dtype


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

"""Number formats as data, dtype names, storage dtypes, and shapes and tensors as users write them.

A kernel's array names the format of its elements by its storage dtype: float16 is stored as int16
and bfloat16 as uint16 (their bit patterns), float32 as itself.

This module does not import Numba: planning needs names and sizes only.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from npu_sim.language import Text
from npu_sim.numbers.arrays import Array, Dtype, Shape, as_array, dtype_name, dtype_of_name
from npu_sim.status import closest, shown

LONGEST_SIZE = 100
"""Digits of one size."""
_BETWEEN_SIZES = re.compile("[xX×*,]")


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as users write it."""
    return "x".join(map(str, shape)) or "scalar"


def parse_shape(text: str) -> Shape:
    """Read a shape as users write it; an empty text and ``scalar`` have rank 0.

    Raises ValueError for a size that is not an integer of 0 or more.
    """
    if text in ("", "scalar"):
        return ()
    parts = list(map(str.strip, _BETWEEN_SIZES.split(text)))
    for part in parts:
        if not (part.isascii() and part.isdecimal()):
            raise ValueError(
                Text("size {part} is not an integer >= 0 with all its digits", part=shown(part))
            )
        if len(part) > LONGEST_SIZE:
            raise ValueError(
                Text(
                    "a size of {part_count} digits is more than any tensor has",
                    part_count=len(part),
                )
            )
    return tuple(map(int, parts))


__all__ = [
    "DTYPES",
    "FORMATS",
    "ORDERED_ADDITIONS",
    "SHORT_NAMES",
    "Format",
    "SpecText",
    "TensorSpec",
    "as_array",
    "canonical_dtype",
    "itemsize",
    "numpy_dtype",
    "shape_text",
]

ORDERED_ADDITIONS = 3
"""Fewest additions to a zero whose order can matter: two commute (specification page ``numerics``,
"Atomic addition to global memory")."""


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format with a sign bit, subnormals, infinities and nan.

    Attributes
    ----------
    name : str
        Canonical name, also the name of the storage dtype except for ``hf32``.
    short_name : str
        Name in tables and in the text form of a ``TensorSpec``.
    bits : int
        Bits that carry information, 16 to 32.
    exponent_bits : int
        Width of the biased exponent, 5 or 8.
    mantissa_bits : int
        Explicit mantissa bits, without the hidden one, 7 to 23.
    itemsize : int
        Bytes of one element in memory, 2 or 4.
    storage : str
        dtype of the array that holds the elements.
    evidence : str
        Source of the layout.
    """

    name: str
    short_name: str
    bits: int
    exponent_bits: int
    mantissa_bits: int
    itemsize: int
    storage: str
    evidence: str

    @property
    def bias(self) -> int:
        """Exponent bias, ``2**(exponent_bits - 1) - 1``."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def largest_finite(self) -> float:
        """Largest finite value, exact in fp64."""
        return (2.0 - self.epsilon) * 2.0**self.bias

    @property
    def smallest_normal(self) -> float:
        """Smallest positive value with a hidden one."""
        return 2.0 ** (1 - self.bias)

    @property
    def smallest_subnormal(self) -> float:
        """Smallest positive value; also the distance of neighbours below ``smallest_normal``."""
        return self.smallest_normal * self.epsilon

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next larger value, ``2**-mantissa_bits``."""
        return 2.0**-self.mantissa_bits


_HF32_EVIDENCE = (
    "vendor programming documents: fp32 operands of the cube unit on A2/A3, "
    "low 12 mantissa bits zero"
)

FORMATS: MappingProxyType[str, Format] = MappingProxyType(
    {
        "float16": Format("float16", "fp16", 16, 5, 10, 2, "float16", "IEEE 754 binary16"),
        "bfloat16": Format(
            "bfloat16", "bf16", 16, 8, 7, 2, "bfloat16", "upper half of IEEE 754 binary32"
        ),
        "float32": Format("float32", "fp32", 32, 8, 23, 4, "float32", "IEEE 754 binary32"),
        "hf32": Format("hf32", "hf32", 20, 8, 11, 4, "float32", _HF32_EVIDENCE),
    }
)
"""Floating-point formats in which the simulated kernels compute."""

_ITEMSIZES: MappingProxyType[str, int] = MappingProxyType(
    {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
    | {"int32": 4, "int64": 8, "int16": 2, "int8": 1, "uint8": 1, "bool": 1}
)
DTYPES: tuple[str, ...] = tuple(_ITEMSIZES)
"""Canonical names of the dtypes of tensors."""

SHORT_NAMES: MappingProxyType[str, str] = MappingProxyType(
    {name: name for name in DTYPES}
    | {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}
)
"""Canonical name to the name used in tables and in the text form of a ``TensorSpec``."""

_ALIASES: MappingProxyType[str, str] = MappingProxyType(
    {name: name for name in DTYPES}
    | {short: name for name, short in SHORT_NAMES.items()}
    # names of C and of tensor libraries: there "float" has 32 bits and "int" too
    | {"half": "float16", "float": "float32", "single": "float32", "double": "float64"}
    | {"char": "int8", "byte": "uint8", "short": "int16", "int": "int32", "long": "int64"}
    | {"bool_": "bool", "boolean": "bool", "f16": "float16", "f32": "float32", "f64": "float64"}
    | {"i8": "int8", "u8": "uint8", "i16": "int16", "i32": "int32", "i64": "int64"}
)


def canonical_dtype(dtype: Any) -> str:
    """Return the canonical name of a dtype given by name, alias, NumPy dtype or framework dtype.

    The Python types ``float`` and ``int`` have 64 bits, as in NumPy; the texts have 32, as in C.

    Raises
    ------
    ValueError
        When it is none of ``DTYPES``; the message lists them.
    """
    if isinstance(dtype, str):
        if dtype in _ITEMSIZES:
            return dtype
        text = dtype
    elif isinstance(dtype, (np.dtype, type)):
        try:
            text = dtype_name(np.dtype(dtype))
        except TypeError:
            text = str(dtype)
    else:
        text = str(getattr(dtype, "name", None) or dtype)
    # "torch.bfloat16" begins with the library, "ACL_BF16" and "DT_BF16" with the vendor's prefix;
    # product documents write dtypes in capitals.
    plain = text.strip().lower().rsplit(".", 1)[-1]
    plain = plain.removeprefix("acl_").removeprefix("dt_").removesuffix("_t")
    if (name := _ALIASES.get(plain)) is None:
        raise ValueError(
            Text(
                "unknown dtype {text}{hint}; allowed are {short}{more}",
                text=shown(text),
                hint=closest(plain, SHORT_NAMES.values()),
                short=", ".join(
                    name if brief == name else f"{brief} ({name})"
                    for name, brief in SHORT_NAMES.items()
                ),
                more="; 2-byte void is what numpy.save makes of bfloat16: "
                "view the array as ml_dtypes.bfloat16"
                if text == "void16"
                else "",
            )
        )
    return name


def itemsize(dtype: Any) -> int:
    """Return the bytes of one element of a dtype, as for ``canonical_dtype``, or of ``"hf32"``."""
    return FORMATS["hf32"].itemsize if dtype == "hf32" else _ITEMSIZES[canonical_dtype(dtype)]


def numpy_dtype(dtype: Any) -> Dtype:
    """Return the NumPy dtype of ``dtype``: ml_dtypes.bfloat16 for bfloat16, float32 for hf32."""
    return dtype_of_name(FORMATS["hf32"].storage if dtype == "hf32" else canonical_dtype(dtype))


_SPEC_FORM = (
    "write the sizes with x between them, a colon and the dtype, "
    "such as 4096x512:bf16 or scalar:fp32"
)
_STRIDED = "strided"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Description of a tensor without its values.

    Attributes
    ----------
    shape : tuple[int, ...]
        Sizes, outermost first, each >= 0; empty for a scalar.
    dtype : str
        Canonical name; the constructor accepts aliases and NumPy dtypes.
    contiguous : bool
        Whether the elements lie in memory in row-major order without gaps.
    storage_format : str
        Layout name of the product's tensor descriptor, ``"ND"`` unless private.
    """

    shape: Shape
    dtype: str
    contiguous: bool = True
    storage_format: str = "ND"

    def __post_init__(self) -> None:
        """Normalise the fields; raise ValueError for invalid ones."""
        try:
            shape = tuple(map(operator.index, self.shape))
        except TypeError:
            raise ValueError(
                Text("shape {shape} is not a sequence of integers", shape=shown(self.shape))
            ) from None
        if shape and min(shape) < 0:
            raise ValueError(
                Text("shape {shape} has a negative size; sizes are 0 or more", shape=shown(shape))
            )
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "dtype", canonical_dtype(self.dtype))
        object.__setattr__(self, "contiguous", bool(self.contiguous))
        object.__setattr__(self, "storage_format", str(self.storage_format).upper())

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def plain(self) -> TensorSpec:
        """Return the same tensor, contiguous and in the layout ND."""
        if self.contiguous and self.storage_format == "ND":
            return self
        return TensorSpec.known(self.shape, self.dtype)

    @classmethod
    def known(
        cls, shape: Shape, dtype: str, contiguous: bool = True, storage_format: str = "ND"
    ) -> TensorSpec:
        """Return the description with valid fields, unchecked: int sizes >= 0, canonical dtype."""
        spec = object.__new__(cls)
        for name, value in zip(
            cls.__slots__, (shape, dtype, contiguous, storage_format), strict=True
        ):
            object.__setattr__(spec, name, value)
        return spec

    @property
    def numel(self) -> int:
        """Number of elements; 1 for a scalar."""
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _ITEMSIZES[self.dtype]

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel * self.itemsize

    @classmethod
    def parse(cls, text: str) -> TensorSpec:
        """Read ``4096x512:bf16``; ``scalar:fp32`` or ``:fp32`` has rank 0.

        A tensor that is not contiguous ends in ``:strided``, one with a layout other than ND in its
        name: ``4096x512:bf16:strided:NCL``.

        Raises
        ------
        ValueError
            When the text has another form; the message says which part and what is right.
        """
        return _parsed(text)

    @classmethod
    def of(cls, array: Any) -> TensorSpec:
        """Describe an array, or anything ``as_array`` accepts."""
        values = as_array(array)
        return _spec(values.shape, values.dtype, values.flags.c_contiguous)

    def __str__(self) -> str:
        """Return the text that ``parse`` reads."""
        sizes = shape_text(self.shape)
        marks = "" if self.contiguous else f":{_STRIDED}"
        layout = "" if self.storage_format == "ND" else f":{self.storage_format}"
        return f"{sizes}:{SHORT_NAMES[self.dtype]}{marks}{layout}"


class SpecText(str):
    """A :class:`TensorSpec` as text, such as ``4096x512:bf16``, with its fields."""

    __slots__ = ()

    @property
    def spec(self) -> TensorSpec:
        """The description that the text stands for."""
        return TensorSpec.parse(self)

    @property
    def shape(self) -> Shape:
        """Sizes, outermost first."""
        return self.spec.shape

    @property
    def dtype(self) -> str:
        """Canonical name of the dtype, such as ``bfloat16``."""
        return self.spec.dtype


@lru_cache(maxsize=1024)
def _parsed(text: str) -> TensorSpec:
    """Parse a text, cached: most calls of a model have tensors of a few shapes."""
    sizes, colon, rest = text.strip().partition(":")
    if not colon:
        raise ValueError(
            Text("tensor {text} has no dtype: {spec_form}", text=shown(text), spec_form=_SPEC_FORM)
        )
    try:
        return TensorSpec.known(parse_shape(sizes.strip()), *_parse_marks(rest))
    except ValueError as error:
        raise ValueError(
            Text(
                "tensor {text}: {error}; {spec_form}",
                text=shown(text),
                error=error,
                spec_form=_SPEC_FORM,
            )
        ) from None


@lru_cache(maxsize=1024)
def _spec(shape: Shape, dtype: Dtype, contiguous: bool) -> TensorSpec:
    """Return the description of an array, cached."""
    return TensorSpec(shape, canonical_dtype(dtype), contiguous)


@lru_cache(maxsize=256)
def _parse_marks(text: str) -> tuple[str, bool, str]:
    """Read the part after the sizes: dtype, whether contiguous, storage format."""
    dtype, *marks = (part.strip() for part in text.split(":"))
    layouts = [mark for mark in marks if mark != _STRIDED]
    if len(layouts) > 1 or "" in layouts:
        raise ValueError(
            Text("more than one storage format in {marks}", marks=shown(":".join(marks)))
        )
    return canonical_dtype(dtype), _STRIDED not in marks, layouts[0].upper() if layouts else "ND"


STORAGE: MappingProxyType[str, Dtype] = MappingProxyType(
    {
        "float16": np.dtype(np.int16),
        "bfloat16": np.dtype(np.uint16),
        "float32": np.dtype(np.float32),
    }
)
"""Name of a format to its storage dtype."""

FORMAT_OF_STORAGE: MappingProxyType[Dtype, str] = MappingProxyType(
    {storage: name for name, storage in STORAGE.items()}
)

UNSIGNED: MappingProxyType[int, Dtype] = MappingProxyType(
    {size: np.dtype(f"u{size}") for size in (2, 4, 8)}
)
"""Bytes of an element to the dtype of its bit pattern."""

BLOCK = 16384
"""Elements of a chunk: 32 KiB of 16-bit elements, so that a block fits the first-level cache.

Kernels loop over slices of a block. With an index that starts at ``block * BLOCK``, the compiler
cannot rule out negative values, and the wrap-around check prevents vector instructions.
"""


def storage_view(array: Any) -> Array:
    """Return the storage array of an array, without a copy.

    float16 becomes int16 and bfloat16 becomes uint16, same shape and strides; float32 stays.
    """
    values = as_array(array)
    floating(values.dtype)
    return _as_stored(values)


def from_storage(bits: Array, dtype: Any) -> Array:
    """Return a stored array as ``dtype`` (float16, bfloat16 or float32), without a copy."""
    name = floating(dtype)
    if bits.dtype not in (STORAGE[name], numpy_dtype(name)):
        raise ValueError(
            Text(
                "{name} is stored as {storage}, not as {dtype}",
                name=name,
                storage=STORAGE[name],
                dtype=bits.dtype,
            )
        )
    return bits.view(numpy_dtype(name))


class _Memory:
    """A writable view of an array's memory; keeps the array alive."""

    def __init__(self, array: Array) -> None:
        self.array = array
        interface = array.__array_interface__
        self.__array_interface__ = interface | {"data": (interface["data"][0], False)}


def kernel_input(array: Any) -> Array:
    """Return an array that a kernel only reads: its storage view, C-contiguous and aligned.

    Other dtypes stay. Copies only arrays with another memory layout. A read-only array becomes a
    writable view of the same memory: plain Numba would compile every kernel a second time. Nothing
    may be written through the result.
    """
    stored = _as_stored(as_array(array))
    if stored.flags.carray:
        return stored
    stored = np.require(stored, requirements=["C", "A"])
    return stored if stored.flags.writeable or stored.size == 0 else np.asarray(_Memory(stored))


def _as_stored(values: Array) -> Array:
    dtype = _stored_dtype(values.dtype)
    return values if dtype is None else values.view(dtype)


@lru_cache(maxsize=64)
def _stored_dtype(dtype: Dtype) -> Dtype | None:
    """Return the storage dtype of a dtype; None where it is the same."""
    stored = STORAGE.get(dtype.name, dtype)
    return None if stored == dtype else stored


@lru_cache(maxsize=64)
def floating(dtype: Any) -> str:
    """Return the canonical name of a dtype kernels compute on, or raise ValueError."""
    name = canonical_dtype(dtype)
    if name not in STORAGE:
        raise ValueError(
            Text("dtype {name} is not one of {storage}", name=name, storage=", ".join(STORAGE))
        )
    return name


def stored_as(array: Any, kind: Format) -> Array:
    """Return the storage array, for reading, of an array of a format or of its storage dtype."""
    values = as_array(array)
    if values.dtype not in (STORAGE[kind.storage], numpy_dtype(kind.storage)):
        raise ValueError(
            Text(
                "expected an array of {storage}, not of {dtype}",
                storage=kind.storage,
                dtype=values.dtype,
            )
        )
    return kernel_input(values)


def magnitude_patterns(kind: Format) -> tuple[int, int]:
    """Return the mask of all bits but the sign, and the pattern of inf, in a format's storage."""
    mask = (1 << (8 * kind.itemsize - 1)) - 1
    return mask, mask & ~((1 << (8 * kind.itemsize - 1 - kind.exponent_bits)) - 1)

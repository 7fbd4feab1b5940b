"""Rounding for kernels: scalar functions that Numba compiles to a few vector instructions.

Stored elements are bit patterns: int16 for fp16, uint16 for bf16, float32 for fp32 (hf32 too). The
storage type names the format, so `widen` and `narrow` choose at compile time.

The functions on bit patterns in plain integers are the reference implementation; they also compile
under Numba with 64-bit integers. Called from Python, or from a kernel with NUMBA_DISABLE_JIT=1, the
scalar functions run them on NumPy scalars, with the same bits. The compiled versions are tested
against them, ml_dtypes and NumPy:

- fp16: LLVM ``half`` conversions, which become vcvtph2ps and vcvtps2ph (fcvt on Arm). Where the
  target processor lacks them, LLVM would call functions that Numba does not provide, and the
  process would crash; the integer definition is compiled instead.
- bf16, hf32: integer arithmetic. A conversion through LLVM ``bfloat`` would be shorter on
  processors with AVX512-BF16, but that instruction flushes subnormals to zero.

nan
---
Widening and fp16 narrowing behave like the conversion instructions of common processors: sign and
leading payload bits stay and the nan becomes quiet (NumPy's software conversion leaves a signalling
fp16 nan signalling). bf16 narrowing returns the nan 0x7fc0 with the sign, as ml_dtypes does. hf32
rounding keeps sign and leading payload bits, and the nan becomes quiet. The payload of the device's
nan is not published: compare nan as nan.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import config
from numba.extending import intrinsic, overload, register_jitable

from npu_sim.language import Text

FP32_SIGN = 0x8000_0000
FP32_MAGNITUDE = 0x7FFF_FFFF
FP32_INFINITY = 0x7F80_0000
FP32_QUIET = 0x0040_0000
FP32_HIDDEN = 0x0080_0000
FP32_MANTISSA_BITS = 23

FP16_SIGN = 0x8000
FP16_INFINITY = 0x7C00
FP16_QUIET = 0x0200
FP16_HIDDEN = 0x0400
FP16_MANTISSA_BITS = 10

BF16_NAN = 0x7FC0
BF16_SHIFT = 16
HF32_SHIFT = 12

# Difference of the exponent biases, 127 - 15 = 112, in the exponent field of fp32.
FP16_REBIAS = 112 << FP32_MANTISSA_BITS
# 65520 lies midway between 65504, the largest fp16, and 65536, which has the even mantissa.
FP16_OVERFLOW = 0x477F_F000
# 2**-14, the smallest normal fp16.
FP16_SMALLEST_NORMAL = 0x3880_0000
FP16_MANTISSA_SHIFT = FP32_MANTISSA_BITS - FP16_MANTISSA_BITS


def shift_right_to_nearest_even(value: int, shift: int) -> int:
    """Divide an integer >= 0 by ``2**shift`` (shift >= 1), rounding to nearest, ties to even."""
    return (value + (1 << (shift - 1)) - 1 + ((value >> shift) & 1)) >> shift


def fp16_to_fp32_bits(bits: int) -> int:
    """Widen fp16 bits (0 to 0xffff) to fp32 bits; exact."""
    sign = (bits & FP16_SIGN) << 16
    magnitude = bits & 0x7FFF
    if magnitude > FP16_INFINITY:
        return sign | FP32_INFINITY | FP32_QUIET | ((magnitude & 0x3FF) << FP16_MANTISSA_SHIFT)
    if magnitude == FP16_INFINITY:
        return sign | FP32_INFINITY
    if magnitude >= FP16_HIDDEN:
        return sign | ((magnitude << FP16_MANTISSA_SHIFT) + FP16_REBIAS)
    if magnitude == 0:
        return sign
    exponent = 113  # of the smallest normal fp16 in fp32; normalise the subnormal
    while magnitude < FP16_HIDDEN:
        magnitude <<= 1
        exponent -= 1
    return sign | (exponent << FP32_MANTISSA_BITS) | ((magnitude & 0x3FF) << FP16_MANTISSA_SHIFT)


def fp32_to_fp16_bits(bits: int) -> int:
    """Round fp32 bits (0 to 2**32 - 1) to fp16 bits, nearest even; inf beyond the range."""
    sign = (bits >> 16) & FP16_SIGN
    magnitude = bits & FP32_MAGNITUDE
    if magnitude > FP32_INFINITY:
        return sign | FP16_INFINITY | FP16_QUIET | ((magnitude >> FP16_MANTISSA_SHIFT) & 0x1FF)
    if magnitude >= FP16_OVERFLOW:
        return sign | FP16_INFINITY
    if magnitude >= FP16_SMALLEST_NORMAL:
        return sign | shift_right_to_nearest_even(magnitude - FP16_REBIAS, FP16_MANTISSA_SHIFT)
    # value = significand * 2**(exponent - 150), counted in units of the smallest subnormal 2**-24
    shift = 126 - (magnitude >> FP32_MANTISSA_BITS)
    if shift > FP32_MANTISSA_BITS + 1:  # below half a unit
        return sign
    significand = (magnitude & (FP32_HIDDEN - 1)) | FP32_HIDDEN
    return sign | shift_right_to_nearest_even(significand, shift)


def bf16_to_fp32_bits(bits: int) -> int:
    """Widen bf16 bits (0 to 0xffff) to fp32 bits; exact."""
    return bits << BF16_SHIFT


def fp32_to_bf16_bits(bits: int) -> int:
    """Round fp32 bits (0 to 2**32 - 1) to bf16 bits, nearest even; inf beyond the range."""
    if bits & FP32_MAGNITUDE > FP32_INFINITY:
        return ((bits & FP32_SIGN) >> BF16_SHIFT) | BF16_NAN
    return shift_right_to_nearest_even(bits, BF16_SHIFT)


def fp32_to_hf32_bits(bits: int) -> int:
    """Round fp32 bits to hf32 (the low 12 bits zero), nearest even; inf beyond the range."""
    if bits & FP32_MAGNITUDE > FP32_INFINITY:
        # Quiet: a payload in the low bits alone would otherwise turn into inf.
        return ((bits | FP32_QUIET) >> HF32_SHIFT) << HF32_SHIFT
    return shift_right_to_nearest_even(bits, HF32_SHIFT) << HF32_SHIFT


def is_arm() -> bool:
    """Return whether code is compiled for 64-bit ARM."""
    return platform.machine().lower() in ("aarch64", "arm64")


def has_features(*names: str) -> bool:
    """Return whether the code generator may use all of these, by LLVM's names such as ``avx2``."""
    return {f"+{name}" for name in names} <= _features()


@cache
def _features() -> frozenset[str]:
    """Return the features, cached: the query takes a third of a millisecond."""
    names = config.CPU_FEATURES
    if names is None:
        names = binding.get_host_cpu_features().flatten()
    return frozenset(names.split(","))


_HALF, _FLOAT, _I16, _I32 = (ir.HalfType(), ir.FloatType(), ir.IntType(16), ir.IntType(32))
_SIXTEEN_BITS = (types.int16, types.uint16)


def has_half_conversions() -> bool:
    """Return whether the code generator may use fp16 conversion instructions."""
    return is_arm() or has_features("f16c")  # part of ARM's base instruction set


# --- Reference implementations on scalars ---


def _bits_of(value: np.float32) -> int:
    if not isinstance(value, np.float32):
        raise TypeError(
            Text(
                "rounding needs a float32 value, not {type_name}: it would round twice",
                type_name=type(value).__name__,
            )
        )
    return int(value.view(np.uint32))


def _float_of(bits: int) -> np.float32:
    return np.uint32(bits).view(np.float32)


def fp16_to_fp32(bits: np.int16) -> np.float32:
    """Widen a stored fp16 element (its 16 bits, signed or unsigned); exact."""
    return _float_of(fp16_to_fp32_bits(int(bits) & 0xFFFF))


def fp32_to_fp16(value: np.float32) -> np.int16:
    """Round to fp16, nearest even, and return its bits; inf beyond the range, subnormals kept."""
    return np.uint16(fp32_to_fp16_bits(_bits_of(value))).view(np.int16)


def bf16_to_fp32(bits: np.uint16) -> np.float32:
    """Widen a stored bf16 element (its 16 bits, signed or unsigned); exact."""
    return _float_of(bf16_to_fp32_bits(int(bits) & 0xFFFF))


def fp32_to_bf16(value: np.float32) -> np.uint16:
    """Round to bf16, nearest even, and return its bits; inf beyond the range, subnormals kept."""
    return np.uint16(fp32_to_bf16_bits(_bits_of(value)))


def fp32_to_hf32(value: np.float32) -> np.float32:
    """Round to hf32, nearest even: 11 explicit mantissa bits remain."""
    return _float_of(fp32_to_hf32_bits(_bits_of(value)))


def widen(stored: Any) -> np.float32:
    """Return a stored element as fp32: int16 is fp16, uint16 is bf16, float32 is itself."""
    if isinstance(stored, np.float32):
        return stored
    if isinstance(stored, np.int16):
        return fp16_to_fp32(stored)
    if isinstance(stored, np.uint16):
        return bf16_to_fp32(stored)
    raise TypeError(
        Text(
            "not a stored element: {type_name}; int16, uint16 or float32",
            type_name=type(stored).__name__,
        )
    )


def narrow(value: np.float32, out: np.ndarray[Any, Any]) -> Any:
    """Return a fp32 value as an element of ``out``: int16 is fp16, uint16 bf16, float32 itself."""
    kind = out.dtype.type
    if kind is np.int16:
        return fp32_to_fp16(value)
    if kind is np.uint16:
        return fp32_to_bf16(value)
    if kind is np.float32:
        _bits_of(value)  # refuses fp64, like the other formats
        return value
    raise TypeError(Text("not a storage dtype: {dtype}; int16, uint16 or float32", dtype=out.dtype))


# --- Compiled versions ---


def _compiled(arguments: tuple[Any, ...], result: Any) -> Callable[..., Any]:
    """Return a decorator that makes an intrinsic of one argument from a function that emits it."""

    def decorate(emit: Callable[[ir.IRBuilder, ir.Value], ir.Value]) -> Any:
        def typed(typing_context: Any, value: Any) -> Any:
            if value not in arguments:
                return None

            def generate(
                _context: Any, builder: ir.IRBuilder, _signature: Any, values: Any
            ) -> ir.Value:
                return emit(builder, values[0])

            return result(value), generate

        typed.__name__ = emit.__name__
        return intrinsic(typed)

    return decorate


@_compiled(_SIXTEEN_BITS, types.float32)
def _half_to_float(builder: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    return builder.fpext(builder.bitcast(bits, _HALF), _FLOAT)


@_compiled((types.float32,), types.uint32)
def _bits_of_float(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    return builder.bitcast(value, _I32)


@_compiled((types.uint32,), types.float32)
def _float_of_bits(builder: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    return builder.bitcast(bits, _FLOAT)


@_compiled((types.float32,), types.int16)
def _float_to_half(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    return builder.bitcast(builder.fptrunc(value, _HALF), _I16)


@_compiled(_SIXTEEN_BITS, types.float32)
def _bfloat_to_float(builder: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    return builder.bitcast(builder.shl(builder.zext(bits, _I32), _I32(BF16_SHIFT)), _FLOAT)


def _emit_round(builder: ir.IRBuilder, bits: ir.Value, shift: int) -> ir.Value:
    """Emit an addition after which truncation at ``shift`` rounds to nearest even."""
    odd = builder.and_(builder.lshr(bits, _I32(shift)), _I32(1))
    return builder.add(bits, builder.add(odd, _I32((1 << (shift - 1)) - 1)))


@_compiled((types.float32,), types.uint16)
def _float_to_bfloat(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    bits = builder.bitcast(value, _I32)
    rounded = _emit_round(builder, bits, BF16_SHIFT)
    nan = builder.or_(builder.and_(bits, _I32(FP32_SIGN)), _I32(BF16_NAN << BF16_SHIFT))
    chosen = builder.select(builder.fcmp_unordered("uno", value, value), nan, rounded)
    return builder.trunc(builder.lshr(chosen, _I32(BF16_SHIFT)), _I16)


@_compiled((types.float32,), types.float32)
def _float_to_hf32(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    bits = builder.bitcast(value, _I32)
    finite, nan = _emit_round(builder, bits, HF32_SHIFT), _I32(FP32_QUIET)
    is_nan = builder.fcmp_unordered("uno", value, value)
    return builder.bitcast(
        builder.and_(
            builder.select(is_nan, builder.or_(bits, nan), finite),
            _I32(0xFFFF_FFFF >> HF32_SHIFT << HF32_SHIFT),
        ),
        _FLOAT,
    )


for _definition in (shift_right_to_nearest_even, fp16_to_fp32_bits, fp32_to_fp16_bits):
    register_jitable(_definition)


def _overload(function: Callable[..., Any], compiled: Any, argument_types: tuple[Any, ...]) -> None:
    """Let compiled code run ``compiled`` for ``function``; other types are compile errors."""

    @overload(function)
    def choose(value):  # type: ignore[no-untyped-def]
        return (lambda value: compiled(value)) if value in argument_types else None


_overload(bf16_to_fp32, _bfloat_to_float, _SIXTEEN_BITS)
_overload(fp32_to_bf16, _float_to_bfloat, (types.float32,))
_overload(fp32_to_hf32, _float_to_hf32, (types.float32,))


@overload(fp16_to_fp32)
def _choose_fp16_to_fp32(bits):  # type: ignore[no-untyped-def]
    if bits not in _SIXTEEN_BITS:
        return None
    if has_half_conversions():
        return lambda bits: _half_to_float(bits)
    return lambda bits: _float_of_bits(
        np.uint32(fp16_to_fp32_bits(np.int64(bits) & 0xFFFF))  # type: ignore[arg-type]
    )


@overload(fp32_to_fp16)
def _choose_fp32_to_fp16(value):  # type: ignore[no-untyped-def]
    if value != types.float32:
        return None
    if has_half_conversions():
        return lambda value: _float_to_half(value)
    return lambda value: np.int16(
        fp32_to_fp16_bits(np.int64(_bits_of_float(value)))  # type: ignore[arg-type]
    )


@overload(widen)
def _choose_widen(stored):  # type: ignore[no-untyped-def]
    if stored == types.float32:
        return lambda stored: stored
    if stored == types.int16:
        return lambda stored: fp16_to_fp32(stored)
    if stored == types.uint16:
        return lambda stored: bf16_to_fp32(stored)
    return None


@overload(narrow)
def _choose_narrow(value, out):  # type: ignore[no-untyped-def]
    if value != types.float32 or not isinstance(out, types.Array):
        return None
    if out.dtype == types.float32:
        return lambda value, out: value
    if out.dtype == types.int16:
        return lambda value, out: fp32_to_fp16(value)
    if out.dtype == types.uint16:
        return lambda value, out: fp32_to_bf16(value)
    return None

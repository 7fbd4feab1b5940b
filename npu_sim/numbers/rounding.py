"""Reference implementation of rounding between formats, on bit patterns in plain integers.

`npu_sim.numbers.scalars` calls it where the compiler is off and where a processor has no fp16
conversion instructions; its compiled versions are tested against this one, ml_dtypes and NumPy.

Every function also compiles under Numba with 64-bit integers.

nan
---
Widening and fp16 narrowing behave like the conversion instructions of common processors: sign and
leading payload bits stay and the nan becomes quiet (NumPy's software conversion leaves a signalling
fp16 nan signalling). bf16 narrowing returns the nan 0x7fc0 with the sign, as ml_dtypes does. hf32
rounding keeps sign and leading payload bits, and the nan becomes quiet. The payload of the device's
nan is not published: compare nan as nan.
"""

from __future__ import annotations

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

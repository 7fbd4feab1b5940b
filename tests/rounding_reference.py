"""Reference rounding in fp64 arithmetic, and samples that hit every boundary."""

import numpy as np

from npu_sim.numbers.formats import FORMATS

EVERY_16_BITS = np.arange(1 << 16, dtype=np.uint16)


def to_fp64(values):
    """Convert exactly, without NumPy's warning about signalling nan."""
    with np.errstate(invalid="ignore"):
        return values.astype(np.float64)


def unit(values, number_format):
    """Return the distance of neighbours of a format at each fp64 value."""
    _, exponent = np.frexp(values)  # values = fraction * 2**exponent, 0.5 <= fraction < 1
    lowest = 1 - number_format.bias
    return np.ldexp(1.0, np.maximum(exponent - 1, lowest) - number_format.mantissa_bits)


def round_to(values, name):
    """Round fp32 values to a format; the result is fp32, which holds every format exactly."""
    number_format, wide = FORMATS[name], to_fp64(values)
    with np.errstate(invalid="ignore", over="ignore"):
        step = unit(wide, number_format)
        rounded = np.rint(wide / step) * step  # rint: ties to even
        rounded = np.where(np.isfinite(wide), rounded, wide)
        overflow = np.isfinite(wide) & (np.abs(rounded) > number_format.largest_finite)
        return np.where(overflow, np.copysign(np.inf, wide), rounded).astype(np.float32)


def around(bits):
    """Return every given fp32 pattern with its predecessor and successor."""
    return np.concatenate([bits - np.uint32(1), bits, bits + np.uint32(1)])


def fp32_sample(random_size, seed=20260):
    """Return random fp32 patterns and those around all 16-bit and hf32 values and midpoints."""
    random = np.random.default_rng(seed)
    wide = EVERY_16_BITS.astype(np.uint32)
    bf16 = wide << 16
    finite = wide[(wide & 0x7FFF) < 0x7C00]
    with np.errstate(over="ignore"):
        fp16 = finite.astype(np.uint16).view(np.float16).astype(np.float32)
        after = (finite + 1).astype(np.uint16).view(np.float16).astype(np.float32)
    after = np.where(
        np.isinf(after), np.copysign(np.float32(65536), fp16), after
    )  # 65520 is the last midpoint
    midpoints = ((fp16 + after) / np.float32(2)).view(np.uint32)
    hf32 = random.integers(0, 1 << 20, max(random_size // 8, 1 << 10), dtype=np.uint32) << 12
    borders = np.array(
        [0, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF],
        np.uint32,
    )
    overflow = np.array([[0x7F7F_0000], [0x477F_0000]], np.uint32) + random.integers(
        0, 1 << 16, (2, 4096), dtype=np.uint32
    )
    borders = np.concatenate([borders, overflow.ravel()])
    values = np.concatenate([bf16, bf16 + np.uint32(0x8000), fp16.view(np.uint32), midpoints])
    values = np.concatenate(
        [values, hf32, hf32 + np.uint32(0x800), borders, borders | np.uint32(1 << 31)]
    )
    return np.concatenate(
        [around(values), random.integers(0, 1 << 32, random_size, dtype=np.uint32)]
    ).view(np.float32)

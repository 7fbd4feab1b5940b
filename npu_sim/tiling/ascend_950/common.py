"""Integer arithmetic of several planners of Ascend 950."""

UINT32_MASK = 0xFFFFFFFF
"""Low 32 bits: values that a planner computes or stores in unsigned 32 bits."""
UB_RESERVED_BYTES = 1024
"""Unified Buffer that RmsNorm leaves free (page ``rms_norm_950``, "u")."""


def largest_power(number: int) -> int:
    """Return the largest power of two that is at most ``number``; 1 for numbers below 2."""
    power = 1
    while 2 * power <= number:
        power *= 2
    return power

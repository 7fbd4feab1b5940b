"""Vector instructions on fp32 numbers by name, ``times`` times each, for the programs of operators.

Kinds are those of the published rates (:mod:`npu_sim.timelines.schedule`).
"""

from npu_sim.timelines.program import Instruction, Work

BYTES = 4


def combine(elements: int, times: int = 1) -> Work:
    """Return an addition, subtraction, multiplication, maximum or minimum of two vectors."""
    return Instruction("add_sub_mul_max_min", "float32", elements, times)


def combine_scalar(elements: int) -> Work:
    """Return such an operation on a vector and a scalar."""
    return Instruction("adds_muls_maxs_mins", "float32", elements)


def exp_root_or_quotient(elements: int) -> Work:
    """Return an exponential, logarithm, square root or division."""
    return Instruction("exp_ln_sqrt_div", "float32", elements)


def fill(elements: int) -> Work:
    """Return the fill of a vector with one number."""
    return Instruction("duplicate_create_index", "float32", elements)


def add_up(elements: int, times: int = 1) -> Work:
    """Return the sum of the lanes of every repeat."""
    return Instruction("reduce_repeat", "float32", elements, times)


def copy(elements: int) -> Work:
    """Return a copy inside the Unified Buffer, whose rate is not published."""
    return Instruction("copy", "float32", elements)


def widen(elements: int, element_bytes: int = 2, times: int = 1) -> tuple[Work, ...]:
    """Return the cast of 16-bit elements to fp32; nothing for fp32 elements."""
    return (
        ()
        if element_bytes == BYTES
        else (Instruction("cast_16_to_32", "float32", elements, times),)
    )


def narrow(elements: int, element_bytes: int = 2) -> tuple[Work, ...]:
    """Return the cast of fp32 numbers to 16-bit elements; nothing for fp32 elements."""
    return () if element_bytes == BYTES else (Instruction("cast_32_to_16", "float32", elements),)

"""Vector instructions on fp32 numbers by name, ``times`` times each, for the programs of operators.

Kinds are those of the published rates (:mod:`npu_sim.timelines.schedule`). Instructions take the
number of elements, and ``times``: ``fp32.combine(64, 3)`` is three additions of 64 elements. Casts
also take the size of the elements that they convert: fp32 elements need none.
"""

from functools import partial

from npu_sim.timelines.program import Instruction, Work

BYTES = 4
"""Bytes of an fp32 element."""

combine = partial(Instruction, "add_sub_mul_max_min", "float32")
"""Addition, subtraction, multiplication, maximum or minimum of two vectors."""
combine_scalar = partial(Instruction, "adds_muls_maxs_mins", "float32")
"""Such an operation on a vector and a scalar."""
exp_root_or_quotient = partial(Instruction, "exp_ln_sqrt_div", "float32")
"""Exponential, logarithm, square root or division."""
fill = partial(Instruction, "duplicate_create_index", "float32")
"""Fill of a vector with one number."""
add_up = partial(Instruction, "reduce_repeat", "float32")
"""Sum of the lanes of every repeat."""
copy = partial(Instruction, "copy", "float32")
"""Copy inside the Unified Buffer, whose rate is not published."""


def widen(elements: int, element_bytes: int = 2, times: int = 1) -> tuple[Work, ...]:
    """Return the cast of 16-bit elements to fp32, ``times`` times; nothing for fp32 elements.

    ``elements`` is their number, ``element_bytes`` the size of each.
    """
    return (
        ()
        if element_bytes == BYTES
        else (Instruction("cast_16_to_32", "float32", elements, times),)
    )


def narrow(elements: int, element_bytes: int = 2) -> tuple[Work, ...]:
    """Return the cast of fp32 numbers to 16-bit elements; nothing for fp32 elements."""
    return () if element_bytes == BYTES else (Instruction("cast_32_to_16", "float32", elements),)

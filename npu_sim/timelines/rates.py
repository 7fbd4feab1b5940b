"""Cycles of one piece of work at the published rates; 0 where none is published.

Source: specification page ``timeline``; rates are the ``throughput`` table and the chip facts of the profile.
"""

from collections.abc import Iterable

from npu_sim.cores import Profile
from npu_sim.numbers.formats import TensorSpec
from npu_sim.product import Chip, Throughput
from npu_sim.tiling.integers import align, ceil_div
from npu_sim.timelines.program import COPY_BLOCK_BYTES, Copy, Instruction, Multiply, Work

REPEAT_BYTES = 256
"""A vector instruction works on whole repeats: 64 fp32 lanes, 128 of 16 bits (page, "V")."""
CUBE_BLOCK = 16
"""Rows and columns of one block of the cube unit (page, "M")."""


def cycles(work: Work, profile: Profile) -> float | None:
    """Return the cycles of a piece of work; None when its rate is not published."""
    if isinstance(work, Copy):
        return _copy_cycles(work, profile.chip)
    throughput = profile.product.throughput or Throughput()
    if isinstance(work, Instruction):
        return _instruction_cycles(work, throughput)
    return _multiply_cycles(work, throughput)


def known_cycles(works: Iterable[Work], profile: Profile) -> float:
    """Return the cycles of the work of one pipe for one tile, unknown rates counted 0."""
    return sum(cycles(work, profile) or 0.0 for work in works)


def rate_name(work: Work) -> str:
    """Return what a piece of work is called where its rate is missing."""
    if isinstance(work, Instruction):
        return f"{work.kind} {work.dtype}"
    return f"cube product {work.dtype}" if isinstance(work, Multiply) else work.rate


def copied_bytes(work: Work) -> int:
    """Return the bytes that a copy moves, padded to whole blocks; 0 for other work."""
    return work.times * align(work.bytes, COPY_BLOCK_BYTES) if isinstance(work, Copy) else 0


def elements(work: Work) -> int:
    """Return the elements that a piece of work touches."""
    return work.times * (work.m * work.n if isinstance(work, Multiply) else work.elements)


def _copy_cycles(copy: Copy, chip: Chip) -> float:
    rate: float = getattr(chip, copy.rate)
    return copy.times * align(copy.bytes, COPY_BLOCK_BYTES) / rate


def _instruction_cycles(instruction: Instruction, throughput: Throughput) -> float | None:
    rates = throughput.vector_elements_per_cycle.get(instruction.kind)
    rate = rates.get(instruction.dtype) if isinstance(rates, dict) else rates
    if rate is None:
        return None
    lanes = REPEAT_BYTES // TensorSpec((), instruction.dtype).itemsize
    padded = align(instruction.elements, lanes)
    return float(instruction.times * -(-padded // rate))


def _multiply_cycles(multiply: Multiply, throughput: Throughput) -> float | None:
    rate = throughput.cube_macs_per_cycle.get(multiply.dtype)
    if rate is None:
        return None
    m, n = align(multiply.m, CUBE_BLOCK), align(multiply.n, CUBE_BLOCK)
    k = align(multiply.k, rate.block_k)
    return float(multiply.times * ceil_div(m * n * k, rate.m * rate.n * rate.k))

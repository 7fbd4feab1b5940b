"""Cycles that a piece of work takes on its pipe at published rates.

Source: specification page ``timeline``. The rates are the ``throughput`` table and the chip facts
of the profile.
"""

from collections.abc import Iterable
from fractions import Fraction
from functools import cache
from math import ceil

from npu_sim.cores import Profile
from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.product import Chip, Throughput
from npu_sim.status import closest
from npu_sim.tiling.common import align, ceil_div
from npu_sim.timelines.program import (
    COPY_BLOCK_BYTES,
    WRITING_PIPES,
    Copy,
    Instruction,
    Multiply,
    Work,
)

REPEAT_BYTES = 256
"""Bytes of a repeat: 64 fp32 lanes or 128 lanes of 16 bits (page, "V")."""
CUBE_BLOCK = 16
"""Rows and columns of one block of the cube unit (page, "M")."""
MEASURED_ELEMENTS_PER_CYCLE = {"cast_32_to_16": 128}
"""Rates measured above the published ones; bounds use the larger (page, "V")."""


def clock_mhz(profile: Profile) -> float:
    """Return the clock of bounds in MHz: that of vector cores if published, else of cube cores."""
    return profile.chip.vector_clock_mhz or profile.chip.cube_clock_mhz


def cycles(work: Work, profile: Profile, pipe: str) -> float | None:
    """Return the cycles of a piece of work on a pipe; None when its rate is not published."""
    if isinstance(work, Copy):
        return _copy_cycles(work, profile.chip, pipe)
    throughput = profile.product.throughput or Throughput()
    if isinstance(work, Instruction):
        return _instruction_cycles(work, throughput)
    return _multiply_cycles(work, throughput)


def known_cycles(works: Iterable[Work], profile: Profile, pipe: str) -> float:
    """Return the cycles of one pipe for one tile; unknown rates count as 0."""
    return sum(cycles(work, profile, pipe) or 0.0 for work in works)


def moving_cycles(chip: Chip, moved_bytes: int, tensor_bytes: int, *, writes: bool) -> float:
    """Return the cycles in which one core moves a part of a tensor in the first pass over it.

    Whatever the L2 holds, at least ``1 - l2_bytes / tensor_bytes`` of the tensor comes from global
    memory (page, "MTE2, MTE3"); the rest may be answered by the L2.
    """
    rate = chip.l2_write_bytes_per_cycle if writes else chip.l2_read_bytes_per_cycle
    from_memory = max(0.0, 1 - chip.l2_bytes / tensor_bytes) if tensor_bytes else 0.0
    return moved_bytes * ((1 - from_memory) / rate + from_memory / chip.ddr_bytes_per_cycle)


def work_kind(work: Work) -> str:
    """Return the kind of a computation: of an instruction its key in the throughput table."""
    return work.kind if isinstance(work, Instruction) else "cube product"


def rate_name(work: Work, profile: Profile) -> str:
    """Return how a missing rate is listed, such as ``exp float16``, with a similar known kind."""
    if isinstance(work, Instruction):
        known = (profile.product.throughput or Throughput()).vector_elements_per_cycle
        similar = "" if work.kind in known else closest(work.kind, known)
        return Text("{kind} {dtype}{similar}", work, similar=similar)
    if isinstance(work, Multiply):
        return Text("cube product {dtype}", dtype=work.dtype)
    return work.rate


def copied_bytes(work: Work) -> int:
    """Return the bytes that a copy moves, padded to whole blocks; 0 for other work."""
    return work.times * align(work.bytes, COPY_BLOCK_BYTES) if isinstance(work, Copy) else 0


def elements(work: Work) -> int:
    """Return the number of elements of a piece of work."""
    return work.times * (work.m * work.n if isinstance(work, Multiply) else work.elements)


def _copy_cycles(copy: Copy, chip: Chip, pipe: str) -> float:
    moved = copied_bytes(copy)
    if copy.rate == "memory":
        return moving_cycles(chip, moved, copy.tensor_bytes, writes=pipe in WRITING_PIPES)
    rate: float = getattr(chip, copy.rate)
    return moved / rate


def _instruction_cycles(instruction: Instruction, throughput: Throughput) -> float | None:
    rates = throughput.vector_elements_per_cycle.get(instruction.kind)
    rate = rates.get(instruction.dtype) if isinstance(rates, dict) else rates
    if rate is None:
        return None
    lanes = REPEAT_BYTES // TensorSpec((), instruction.dtype).itemsize
    padded = align(instruction.elements, lanes)
    return float(
        instruction.times
        * ceil(padded / _exact(max(rate, MEASURED_ELEMENTS_PER_CYCLE.get(instruction.kind, rate))))
    )


@cache
def _exact(rate: float) -> Fraction:
    """Return a published rate as a fraction: 9.142857 is 64 elements in seven cycles."""
    return Fraction(rate).limit_denominator(1000)


def _multiply_cycles(multiply: Multiply, throughput: Throughput) -> float | None:
    rate = throughput.cube_macs_per_cycle.get(multiply.dtype)
    if rate is None:
        return None
    m, n = align(multiply.m, CUBE_BLOCK), align(multiply.n, CUBE_BLOCK)
    k = align(multiply.k, rate.block_k)
    return float(multiply.times * ceil_div(m * n * k, rate.m * rate.n * rate.k))

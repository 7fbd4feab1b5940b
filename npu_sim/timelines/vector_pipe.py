"""Cycles of vector instructions on architecture 2201: start-up, repeats and bank conflicts.

Source: specification page ``estimate``, "Vector pipe". All of it is published except two rules that
the page calls a model: the slowdown is proportional to the overlap of bank groups, and an operand
read twice counts as equal alignment.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from math import gcd
from types import MappingProxyType

from npu_sim.cores import NPU_ARCH_A2_A3
from npu_sim.tiling.common import ceil_div

LANES = 64
"""fp32 lanes of a repeat."""
LONGEST_RUN = 255
"""Largest repeat count of one instruction (page, "Instruction lists")."""
GROUP_BYTES = 32
"""Bytes of a block; a block lies in one bank group (page, "Bank groups")."""
BANK_GROUPS = 16
BLOCKS_OF_REPEAT = 8
HALVES = "the halves of a row"
LANE_ROWS = "rows and the lanes they are summed in"
COPIED_ROWS = "the blocks of rows written at a time"
"""Captions of conflicts in instructions that several operators use."""
ESTIMATED_ARCHITECTURES = (NPU_ARCH_A2_A3,)
"""Architectures with published start-ups."""
WIDENING = "cast 16 to 32 bits"
NARROWING = "cast 32 to 16 bits"
"""Least certain entry: devices took 0.83 to 1.37 cycles per repeat (page, "Residuals")."""

SUM_OF_BLOCKS = "sum of blocks"
"""A sum or maximum of every 8 neighbours. Its start-up is not published; that of the sum of a
repeat stands for it, which is a model."""

COMPARED_DEVICE = ("Ascend910B", 40, "8.3")
"""Short SoC version, vector cores and release of the device in the page's table."""

START_UP = MappingProxyType(
    {
        "add": 23.22,
        "mul": 23.23,
        "sub": 22.13,
        "muls": 23.10,
        "adds": 22.09,
        "max": 20.13,
        WIDENING: 20.12,
        NARROWING: 20.44,
        "duplicate": 17.00,
        "sum of a repeat": 32.00,
        SUM_OF_BLOCKS: 32.00,
        "broadcast to blocks": 13.07,
        "copy": 13.00,
        "or": 12.40,
        "div": 29.09,
        "square root": 29.00,
        "exp": 28.04,
        "ln": 28.0,
        "abs": 20.0,
        "shift": 20.0,
        "compare": 20.0,
        "select": 20.0,
    }
)
"""Cycles before the first repeat, from the cost table of the vendor's public fusion compiler (page,
"Start-up, cycles"). Casts of bf16 use the value of fp16, which is a model, as are the
last five entries (page ``apply_adam_w_v2``, "Vector instructions of a tile")."""
CYCLES_PER_REPEAT = MappingProxyType(
    {"sum of a repeat": 7, "div": 2, "square root": 2, "exp": 2, "ln": 2}
)
"""Published rates other than one cycle per repeat (page, "Cycles per repeat")."""


@dataclass(frozen=True, slots=True)
class Issue:
    """A vector instruction, issued ``times`` times."""

    kind: str
    """A key of ``START_UP``."""
    repeats: int
    """Repeats of one instruction."""
    conflict: float = 1.0
    """Slowdown of a repeat by bank conflicts; 1 without conflicts."""
    times: int = 1
    """Number of issues."""
    between: str = ""
    """Caption of the conflicting operands; empty when no conflict is possible."""

    @property
    def start_up(self) -> float:
        """Cycles of all start-ups."""
        return self.times * START_UP[self.kind]

    @property
    def cycles(self) -> float:
        """Busy cycles of the pipe."""
        cycles = self.times * self.repeats * CYCLES_PER_REPEAT.get(self.kind, 1)
        return self.start_up + cycles * self.conflict

    @property
    def conflict_cycles(self) -> float:
        """Cycles added by bank conflicts."""
        return self.times * self.repeats * CYCLES_PER_REPEAT.get(self.kind, 1) * (self.conflict - 1)


Issues = tuple[Issue, ...]


@dataclass(frozen=True, slots=True)
class InstructionLists:
    """Vector instructions of a kernel."""

    cores: Mapping[int, Issues]
    """Instructions of every working core."""
    compared: bool
    """Whether this path was compared with the device ``COMPARED_DEVICE`` (page, "Residuals")."""

    @property
    def kinds(self) -> set[str]:
        """Kinds of the instructions."""
        return {issue.kind for issues in self.cores.values() for issue in issues}


def repeated(issues: Iterable[Issue], count: int) -> Issues:
    """Return the instructions issued ``count`` times."""
    return tuple(replace(issue, times=issue.times * count) for issue in issues if count)


def source_conflict(first: int, second: int) -> float:
    """Return the slowdown of a repeat by two sources that start at the given bytes.

    It is 2 at equal alignment, 1 at 256 bytes apart, and linear in the overlap in between (page,
    "Bank groups").
    """
    apart = (first // GROUP_BYTES - second // GROUP_BYTES) % BANK_GROUPS
    return 1 + max(0, BLOCKS_OF_REPEAT - min(apart, BANK_GROUPS - apart)) / BLOCKS_OF_REPEAT


def strided_conflict(stride: int, blocks: int = BLOCKS_OF_REPEAT) -> float:
    """Return the slowdown by a destination with stride: blocks over bank groups hit."""
    return blocks / min(blocks, BANK_GROUPS // gcd(stride, BANK_GROUPS))


def row_conflicts(
    rows: int, first: tuple[int, int], second: tuple[int, int]
) -> list[tuple[float, int]]:
    """Return slowdowns and their numbers of rows for two sources (start, bytes per row)."""
    counts: dict[float, int] = {}
    # Starts are multiples of a block, so conflicts repeat after BANK_GROUPS rows.
    for row in range(min(rows, BANK_GROUPS)):
        conflict = source_conflict(first[0] + row * first[1], second[0] + row * second[1])
        counts[conflict] = counts.get(conflict, 0) + (rows - row + BANK_GROUPS - 1) // BANK_GROUPS
    return list(counts.items())


def by_rows(
    kind: str, rows: int, first: tuple[int, int], second: tuple[int, int], between: str
) -> Issue:
    """Return one instruction with a repeat for every row and the mean conflict of the rows."""
    mean = sum(conflict * count for conflict, count in row_conflicts(rows, first, second)) / rows
    return Issue(kind, rows, mean, between=between)


def full_repeats(kind: str, elements: int, *sources: int, between: str = "") -> Issue:
    """Return an instruction on ``elements``; ``sources`` are the starts of two sources, if any."""
    conflict = source_conflict(*sources) if sources else 1.0
    return Issue(kind, ceil_div(elements, LANES), conflict, between=between)


def halving(elements: int) -> Issues:
    """Return a sum: fold to a power of two, halve down to 64 lanes, sum these in one repeat."""
    front = 1 << (max(elements, LANES).bit_length() - 1)
    adds = (
        [full_repeats("add", elements - front, 0, 4 * front, between=HALVES)]
        if elements > front
        else []
    )
    while front > LANES:
        front //= 2
        adds.append(full_repeats("add", front, 0, 4 * front, between=HALVES))
    return (*adds, Issue("sum of a repeat", 1))


def spread(rows: int, columns: int) -> Issues:
    """Return the library's broadcast of one value per row to all elements of the padded row."""
    return (
        Issue("broadcast to blocks", ceil_div(rows, BLOCKS_OF_REPEAT)),
        *(Issue("copy", run * ceil_div(columns, LANES)) for run in _runs(rows)),
    )


def copied_rows(rows: int, columns: int, element_bytes: int) -> Issues:
    """Return the library's broadcast of one row to ``rows`` rows."""
    stride = columns * element_bytes // GROUP_BYTES
    eights, rest = divmod(rows, BLOCKS_OF_REPEAT)
    issues = [Issue("duplicate", 1)]
    if eights:
        issues.append(Issue("or", stride, strided_conflict(stride), eights, COPIED_ROWS))
    if rest:
        issues.append(Issue("or", stride, strided_conflict(stride, rest), between=COPIED_ROWS))
    return tuple(issues)


def lane_sums(rows: int, columns: int, row_bytes: int, values: int, scratch: int) -> Issues:
    """Return row sums in 64 lanes each; ``values`` and ``scratch`` are starts of rows and lanes."""
    issues: list[Issue] = []
    for run in _runs(rows):
        issues.append(full_repeats("duplicate", LANES * run))
        lanes = scratch, 4 * LANES
        issues += [
            by_rows("add", run, (values + 4 * LANES * step, row_bytes), lanes, LANE_ROWS)
            for step in range(ceil_div(columns, LANES))
        ]
        issues.append(Issue("sum of a repeat", run))
    return tuple(issues)


def _runs(rows: int) -> list[int]:
    return [min(LONGEST_RUN, rows - start) for start in range(0, rows, LONGEST_RUN)]


def in_groups(rows: int, most: int, group: Callable[[int], Issues]) -> Issues:
    """Return the instructions of ``rows`` rows in groups of at most ``most``."""
    whole_groups, rest = divmod(rows, most)
    issues = repeated(group(most), whole_groups)
    return (*issues, *group(rest)) if rest else issues


def starts_of(sizes: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the starts of adjacent buffers by name, the first at 0."""
    lengths = dict(sizes)
    return dict(zip(lengths, accumulate(lengths.values(), initial=0), strict=False))

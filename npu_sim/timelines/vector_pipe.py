"""Cycles that vector instructions keep the vector pipe of architecture 2201 busy: start-up, repeats and bank groups.

Source: specification page ``estimate``, "Vector pipe". Everything is a published fact but two readings, which the page calls a model:
that a partial overlap of bank groups costs its share, and that one operand read twice counts as equal alignment.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import gcd
from types import MappingProxyType

from npu_sim.cores import NPU_ARCH_A2_A3
from npu_sim.tiling.common import ceil_div

LANES = 64
"""fp32 lanes of a repeat."""
LONGEST_RUN = 255
"""Most repeats of one instruction with mask and repeat count (page, "Instruction lists")."""
GROUP_BYTES = 32
"""Bytes of a block, which lies in one bank group (page, "Bank groups")."""
BANK_GROUPS = 16
BLOCKS_OF_REPEAT = 8
HALVES, LANE_ROWS, COPIED_ROWS = (
    "the halves of a row",
    "rows and the lanes they are summed in",
    "the blocks of rows written at a time",
)
"""What conflicts in instructions that operators share, in words."""
ESTIMATED_ARCHITECTURES = (NPU_ARCH_A2_A3,)
"""Architectures that the start-ups are published for."""
NARROWING = "cast 32 to 16 bits"
"""The least sure entry: devices needed from 0.83 to 1.37 cycles a repeat (page, "Residuals")."""

COMPARED_DEVICE = ("Ascend910B", 40, "8.3")
"""Short SoC version, vector cores and release of the device of the page's table."""

START_UP = MappingProxyType(
    {
        "add": 23.22,
        "mul": 23.23,
        "sub": 22.13,
        "muls": 23.10,
        "adds": 22.09,
        "cast 16 to 32 bits": 20.12,
        NARROWING: 20.44,
        "duplicate": 17.00,
        "sum of a repeat": 32.00,
        "broadcast to blocks": 13.07,
        "copy": 13.00,
        "or": 12.40,
        "div": 29.09,
        "square root": 29.00,
    }
)
"""Cycles before the first repeat, from the cost table of the vendor's public fusion compiler (page, "Start-up, cycles"); bf16 casts take
the value of fp16, which is a model."""
CYCLES_PER_REPEAT = MappingProxyType({"sum of a repeat": 7, "div": 2, "square root": 2})
"""Published rates that are not one cycle a repeat (page, "Cycles per repeat")."""


@dataclass(frozen=True, slots=True)
class Issue:
    """A vector instruction, issued ``times`` times.

    Attributes
    ----------
    kind
        A key of ``START_UP``.
    repeats
        Repeats of one instruction.
    conflict
        What the bank groups multiply the cycles of a repeat by; 1 without conflicts.
    times
        How often it is issued.
    between
        What conflicts, in words; empty where nothing can.
    """

    kind: str
    repeats: int
    conflict: float = 1.0
    times: int = 1
    between: str = ""

    @property
    def start_up(self) -> float:
        """Cycles of all start-ups."""
        return self.times * START_UP[self.kind]

    @property
    def cycles(self) -> float:
        """Cycles that the pipe is busy."""
        return (
            self.start_up
            + self.times * self.repeats * CYCLES_PER_REPEAT.get(self.kind, 1) * self.conflict
        )

    @property
    def conflict_cycles(self) -> float:
        """Cycles that bank groups add."""
        return self.times * self.repeats * CYCLES_PER_REPEAT.get(self.kind, 1) * (self.conflict - 1)


Issues = tuple[Issue, ...]


@dataclass(frozen=True, slots=True)
class InstructionLists:
    """What the cores of a kernel issue.

    Attributes
    ----------
    cores
        For every working core, its instructions.
    compared
        Whether such a path was compared with a device of ``COMPARED_DEVICE`` (page, "Residuals").
    """

    cores: Mapping[int, Issues]
    compared: bool


def repeated(issues: Iterable[Issue], count: int) -> Issues:
    """Return instructions issued ``count`` times as often."""
    return tuple(replace(issue, times=issue.times * count) for issue in issues if count)


def source_conflict(first: int, second: int) -> float:
    """Return what two sources multiply the cycles of a repeat by, given where they start in bytes.

    2 at equal alignment, 1 at 256 bytes apart, the share of the overlap in between (page, "Bank groups").
    """
    apart = (first // GROUP_BYTES - second // GROUP_BYTES) % BANK_GROUPS
    nearer = min(apart, BANK_GROUPS - apart)
    return 1 + max(0, BLOCKS_OF_REPEAT - nearer) / BLOCKS_OF_REPEAT


def strided_conflict(stride: int, blocks: int = BLOCKS_OF_REPEAT) -> float:
    """Return what a destination multiplies the cycles of a repeat by whose blocks lie ``stride`` blocks apart: blocks over groups hit."""
    return blocks / min(blocks, BANK_GROUPS // gcd(stride, BANK_GROUPS))


def row_conflicts(
    rows: int, first: tuple[int, int], second: tuple[int, int]
) -> list[tuple[float, int]]:
    """Return what two sources, each given by its start and its bytes from row to row, multiply by, and on how many of the rows."""
    found: dict[float, int] = {}
    for row in range(
        min(rows, BANK_GROUPS)
    ):  # starts are whole blocks, so that they repeat after as many rows as there are groups
        conflict = source_conflict(first[0] + row * first[1], second[0] + row * second[1])
        found[conflict] = found.get(conflict, 0) + (rows - row + BANK_GROUPS - 1) // BANK_GROUPS
    return list(found.items())


def by_rows(
    kind: str, rows: int, first: tuple[int, int], second: tuple[int, int], between: str
) -> Issue:
    """Return one instruction of a repeat for every row, its conflict averaged over the rows."""
    counted = row_conflicts(rows, first, second)
    return Issue(
        kind, rows, sum(conflict * count for conflict, count in counted) / rows, between=between
    )


def whole(kind: str, elements: int, *sources: int, between: str = "") -> Issue:
    """Return an instruction on ``elements``, of one source or of two that start at ``sources``."""
    return Issue(
        kind,
        ceil_div(elements, LANES),
        source_conflict(*sources) if sources else 1.0,
        between=between,
    )


def halving(elements: int) -> Issues:
    """Add what lies beyond a power of two to the front, halve it down to 64 lanes, and sum these in one repeat."""
    front = 1 << (max(elements, LANES).bit_length() - 1)
    adds = (
        [whole("add", elements - front, 0, 4 * front, between=HALVES)] if elements > front else []
    )
    while front > LANES:
        front //= 2
        adds.append(whole("add", front, 0, 4 * front, between=HALVES))
    return (*adds, Issue("sum of a repeat", 1))


def spread(rows: int, columns: int) -> Issues:
    """Give one value a row to all elements of its padded row, as the library's broadcast does."""
    blocks = Issue("broadcast to blocks", ceil_div(rows, BLOCKS_OF_REPEAT))
    return (blocks, *(Issue("copy", run * ceil_div(columns, LANES)) for run in _runs(rows)))


def copied_rows(rows: int, columns: int, element_bytes: int) -> Issues:
    """Give one row to ``rows`` rows, as the library's broadcast does."""
    stride = columns * element_bytes // GROUP_BYTES
    eights, rest = divmod(rows, BLOCKS_OF_REPEAT)
    found = [Issue("duplicate", 1)]
    if eights:
        found.append(Issue("or", stride, strided_conflict(stride), eights, COPIED_ROWS))
    if rest:
        found.append(Issue("or", stride, strided_conflict(stride, rest), between=COPIED_ROWS))
    return tuple(found)


def lane_sums(rows: int, columns: int, row_bytes: int, values: int, scratch: int) -> Issues:
    """Sum rows in 64 lanes side by side and these as a tree; ``values`` and ``scratch`` are where rows and lanes start."""
    found: list[Issue] = []
    for run in _runs(rows):
        found.append(whole("duplicate", LANES * run))
        lanes = scratch, 4 * LANES
        found += [
            by_rows("add", run, (values + 4 * LANES * step, row_bytes), lanes, LANE_ROWS)
            for step in range(ceil_div(columns, LANES))
        ]
        found.append(Issue("sum of a repeat", run))
    return tuple(found)


def _runs(rows: int) -> list[int]:
    return [min(LONGEST_RUN, rows - start) for start in range(0, rows, LONGEST_RUN)]


def in_groups(rows: int, most: int, group: Callable[[int], Issues]) -> Issues:
    """Return the instructions of ``rows`` rows that pass through the buffer ``most`` at a time."""
    whole_groups, rest = divmod(rows, most)
    return (
        (*repeated(group(most), whole_groups), *group(rest))
        if rest
        else repeated(group(most), whole_groups)
    )


def starts_of(sizes: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return where buffers start that lie one after the other, the first at 0."""
    found, start = {}, 0
    for name, size in sizes:
        found[name] = start
        start += size
    return found

"""What a tile of a timeline holds and adds, in the words with which every operator declares it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class View:
    """A tensor as rows and columns, and which axes of the program walk them.

    Attributes
    ----------
    name
        Of the tensor.
    rows, columns
        Its size, all dimensions but the last ones taken together as the kernel does.
    by_row, by_column
        Axes of the program that walk it, outermost first, each with the rows or columns of one step of length 1. The first one
        counts from the start of the tensor, the others from where the one before stands; axes that a tile is not in are skipped.
        A tile without any of them holds what the plan gives its core of such an axis, or everything.
    """

    name: str
    rows: int
    columns: int = 1
    by_row: Mapping[str, float] = field(default_factory=dict)
    by_column: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """What a tile does.

    Attributes
    ----------
    says
        What is added to what, one sentence; ``{axis}`` stands for the range that the tile has of an axis.
    reads, writes, holds
        Names of views: parts of them come in, go out, or lie in on-chip memory since an earlier tile.
    by_data
        Those of these views whose rows the data decides.
    live
        Allocations of on-chip memories that hold something while the tile is worked on; names that a plan lacks are left out.
    """

    says: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    by_data: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepTable:
    """The steps of an operator's program.

    Attributes
    ----------
    views
        Tensors, in the order in which they are drawn.
    steps
        By phase and note of a tile.
    memories
        For a phase, the phase of the plan's memories, where these have another name.
    """

    views: tuple[View, ...]
    steps: Mapping[tuple[str, str], Step]
    memories: Mapping[str, str] = field(default_factory=dict)

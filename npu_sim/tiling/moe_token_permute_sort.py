"""How MoeTokenPermute splits a sort over cores, pieces and merges.

Source: specification page ``moe_token_permute``, "Tiling" and "Kernel". The ids are sorted first,
then the positions that come out of it; both sorts are split alike.
"""

from typing import Annotated, NamedTuple

from npu_sim.cores import Device
from npu_sim.tiling.fields import Field
from npu_sim.tiling.integers import align, align_down, ceil_div

MOST_ENTRIES = 16777214
"""Entries that the product sorts at most: fp32 holds every position and one number more (page,
"Contract" 5)."""
SORT_ENTRIES = 32
"""Entries that one sort instruction puts in order: pieces are padded to a multiple of it."""
SORT_STEP_BYTES = 1024
"""Unified Buffer for so many entries while they are sorted."""
SORTER_BYTES = 32
"""Unified Buffer set aside for every core that may sort."""
ONE_SORTER_ENTRIES = 32
"""Up to so many entries are planned for a single core."""
MERGE_WAYS = 4
"""Lists that are merged at a time."""
MERGE_PIECE_ENTRIES = 1024
"""Entries of one list that a merge loads at a time."""
MERGE_ENTRIES = MERGE_WAYS * MERGE_PIECE_ENTRIES
"""Entries in each buffer of a merge."""
ENTRY_BYTES = 8
"""A score and its position; also an id, whatever its dtype."""
POSITION_BYTES = 4
MERGE_UB_BYTES = 4 * MERGE_ENTRIES * ENTRY_BYTES
"""Unified Buffer that a merge needs: four buffers (page, "What-if SoC")."""

_ENTRIES = str(MOST_ENTRIES)


class Sort(NamedTuple):
    """Cores that sort, and the pieces of each: ``core`` of every core but the last, ``last`` of the last one."""

    cores: Annotated[int, Field("cores that sort", "vector_cores", vendor="needCoreNum")]
    core_entries: Annotated[
        int, Field("entries that a core sorts", _ENTRIES, vendor="perCoreElements")
    ]
    core_loops: Annotated[
        int, Field("pieces that a core sorts by themselves", _ENTRIES, vendor="perCoreLoops")
    ]
    core_piece: Annotated[
        int, Field("entries of a piece", _ENTRIES, vendor="perCorePerLoopElements")
    ]
    core_last_piece: Annotated[
        int, Field("entries of a core's last piece", _ENTRIES, vendor="perCoreLastLoopElements")
    ]
    last_entries: Annotated[
        int, Field("entries that the last core sorts", _ENTRIES, vendor="lastCoreElements")
    ]
    last_loops: Annotated[int, Field("pieces of the last core", _ENTRIES, vendor="lastCoreLoops")]
    last_piece: Annotated[
        int,
        Field("entries of a piece of the last core", _ENTRIES, vendor="lastCorePerLoopElements"),
    ]
    last_last_piece: Annotated[
        int,
        Field("entries of the last core's last piece", _ENTRIES, vendor="lastCoreLastLoopElements"),
    ]
    most_entries: Annotated[
        int, Field("entries that fit a core at a time", "ub_bytes", vendor="oneLoopMaxElements")
    ]
    last_half: Annotated[
        int,
        Field(
            "1 when the last core's list ends in the other half of the workspace",
            "1",
            vendor="lastCoreWSindex",
        ),
    ]


def sorters(entries: int, cores: int) -> int:
    """Cores that may sort."""
    return 1 if entries <= ONE_SORTER_ENTRIES else cores


def most_entries(entries: int, device: Device) -> int:
    """Entries that a core sorts at a time; not above 0 when the Unified Buffer is too small for any."""
    return (
        (device.ub_bytes - SORTER_BYTES * sorters(entries, device.vector_cores))
        // SORT_STEP_BYTES
        * SORT_ENTRIES
    )


def merge_rounds(lists: int) -> int:
    """Rounds of merging four lists at a time until one is left; a single list is copied, in one round."""
    rounds = 1
    lists = ceil_div(lists, MERGE_WAYS)
    while lists > 1:
        lists = ceil_div(lists, MERGE_WAYS)
        rounds += 1
    return rounds


def split_sort(entries: int, device: Device) -> Sort:
    """Split a sort over cores and pieces.

    Parameters
    ----------
    entries
        Ids: tokens * experts of a token.
    device
        The SoC; :func:`most_entries` is above 0.
    """
    most = most_entries(entries, device)
    if entries <= most:
        return Sort(1, entries, 1, entries, entries, entries, 1, entries, entries, most, 0)
    cores = 1
    while cores < ceil_div(entries, most):
        cores *= MERGE_WAYS
    cores = min(cores, device.vector_cores)
    each = align_down(entries // cores, SORT_ENTRIES)
    if entries - (cores - 1) * each > each + SORT_ENTRIES:
        each += SORT_ENTRIES
        cores = ceil_div(entries, each)
    last = entries - (cores - 1) * each
    loops, last_loops = ceil_div(each, most), ceil_div(last, most)
    piece, last_piece = min(each, most), min(last, most)
    return Sort(
        cores=cores,
        core_entries=each,
        core_loops=loops,
        core_piece=piece,
        core_last_piece=each - (loops - 1) * piece,
        last_entries=last,
        last_loops=last_loops,
        last_piece=last_piece,
        last_last_piece=last - (last_loops - 1) * last_piece,
        most_entries=most,
        last_half=abs(merge_rounds(last_loops) % 2 - merge_rounds(loops) % 2),
    )


def sorts_at_once(sort: Sort) -> bool:
    """Whether one core sorts everything in one piece: keys 1, 3, 5 and 7."""
    return sort.cores == 1 and sort.core_loops == 1


def sort_range(sort: Sort, core: int) -> tuple[int, int]:
    """Return the half-open range of entries that a core sorts."""
    start = core * sort.core_entries
    return start, start + (sort.last_entries if core == sort.cores - 1 else sort.core_entries)


def merging_cores(sort: Sort) -> int:
    """Cores that merge the lists of four neighbours each; 0 when the last core merges them all."""
    return ceil_div(sort.cores, MERGE_WAYS) if sort.cores > MERGE_WAYS else 0


class SortBuffers(NamedTuple):
    """Bytes in the Unified Buffer of a core that sorts."""

    ids: int
    positions: int
    result: int
    sorted: int


def sort_buffers(sort: Sort) -> SortBuffers:
    """Return the bytes in the Unified Buffer of the core that needs most (page, "Unified Buffer of a core")."""
    if sorts_at_once(sort):
        entries = align(sort.core_entries, SORT_ENTRIES)
        return SortBuffers(
            ENTRY_BYTES * entries,
            POSITION_BYTES * entries,
            ENTRY_BYTES * entries,
            ENTRY_BYTES * entries,
        )
    entries = ENTRY_BYTES * align(
        max(MERGE_ENTRIES, sort.core_piece, sort.last_piece), SORT_ENTRIES
    )
    return SortBuffers(entries, entries, entries, entries)

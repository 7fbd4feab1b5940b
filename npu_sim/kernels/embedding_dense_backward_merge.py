"""EmbeddingDenseBackward: in which order the chunks of several cores reach one output row.

Every core's own chunks keep their order; between cores the order is open, and this module draws it.

Source: specification page ``numerics``, "Atomic addition to global memory".
"""

import numpy as np
from numba import get_num_threads, prange
from numpy.typing import NDArray

from npu_sim.kernels._compile import device_function, kernel
from npu_sim.kernels.embedding_dense_backward_chunks import Cut, Integers

SEQUENTIAL = 0
REVERSE = 1
ROUND_ROBIN = 2
RANDOM = 3
GIVEN = 4
"""The caller lists, for every row, the core of each chunk in the order of arrival."""

ORDER_CODES = {"sequential": SEQUENTIAL, "reverse": REVERSE, "round_robin": ROUND_ROBIN, "random": RANDOM}

Lines = NDArray[np.int64]
"""(cores, 4): a line for each core that contributes to a run, cores ascending; see the columns."""
CORE, NEXT, STOP, LEFT = 0, 1, 2, 3
"""The core, its next slot, the end of its slots, and how many chunks it has left."""
LINE_COLUMNS = 4

# Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): ten rounds on four 32-bit words of
# counter and two of key. 32-bit words in uint64, so that no product overflows, compiled or not.
_ROUNDS = 10
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _WORD = np.uint64(0xFFFFFFFF), np.uint64(32)


def seed_words(seed: int) -> tuple[int, int]:
    """Return a seed as the two key words of the generator; seeds that differ by 2^64 are the same."""
    return seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF


@device_function
def philox(counter_0, counter_1, counter_2, counter_3, key_0, key_1):  # type: ignore[no-untyped-def]
    """Return the four words of Philox4x32-10; arguments and results are uint64 below 2^32."""
    for _ in range(_ROUNDS):
        product_0, product_1 = _MULTIPLIER_0 * counter_0, _MULTIPLIER_1 * counter_2
        counter_0 = (product_1 >> _WORD) ^ counter_1 ^ key_0
        counter_2 = (product_0 >> _WORD) ^ counter_3 ^ key_1
        counter_1, counter_3 = product_1 & _LOW, product_0 & _LOW
        key_0, key_1 = (key_0 + _WEYL_0) & _LOW, (key_1 + _WEYL_1) & _LOW
    return counter_0, counter_1, counter_2, counter_3


@device_function
def draw_below(bound: int, seed: tuple[int, int], row: int, step: int) -> int:
    """Draw an integer in 0..bound-1, keyed on the seed, the output row and the number of the draw.

    64 random bits modulo the bound: no value is favoured by more than bound / 2^64.
    """
    wide_row, wide_step = np.uint64(row), np.uint64(step)
    word_0, word_1, _, _ = philox(
        wide_step & _LOW, wide_step >> _WORD, wide_row & _LOW, wide_row >> _WORD, np.uint64(seed[0]), np.uint64(seed[1])
    )
    return np.int64((word_0 | (word_1 << _WORD)) % np.uint64(bound))


@device_function
def open_lines(
    core_starts: NDArray[np.int64], by_slot: bool, marked: Integers, begin: int, stop: int, lines: Lines
) -> int:
    """Write a line for each core that contributes to the run begin..stop; return how many."""
    count, core = 0, 0
    for slot in range(begin, stop):
        place = slot if by_slot else max(np.int64(marked[slot]), ~np.int64(marked[slot]))
        while core_starts[core + 1] <= place:
            core += 1
        if count == 0 or lines[count - 1, CORE] != core:
            lines[count, CORE], lines[count, NEXT], lines[count, STOP], lines[count, LEFT] = core, slot, slot, 0
            count += 1
        lines[count - 1, STOP] += 1
        lines[count - 1, LEFT] += marked[slot] < 0
    return count


@device_function
def pick_line(
    order: int, seed: tuple[int, int], given: Integers, row: int, step: int, left: int, last: int, count: int, lines: Lines
) -> int:
    """Return the line whose next chunk arrives; -1 when the core that is given for it has none left.

    ``left`` chunks of ``count`` lines remain; ``last`` is the line before this one, -1 at first.
    """
    if order == RANDOM:
        # Choosing a core with probability proportional to its chunks left makes every merge equally likely.
        drawn, line = draw_below(left, seed, row, step), 0
        while drawn >= lines[line, LEFT]:
            drawn -= lines[line, LEFT]
            line += 1
        return line
    if order == GIVEN:
        for line in range(count):
            if lines[line, CORE] == given[step] and lines[line, LEFT] > 0:
                return line
        return -1
    direction = -1 if order == REVERSE else 1
    line = last
    if last < 0:
        line = count - 1 if order == REVERSE else 0
    elif order == ROUND_ROBIN:
        line = (last + 1) % count
    while lines[line, LEFT] == 0:
        line = (line + direction) % count
    return line


@device_function
def merge_run(
    core_starts: NDArray[np.int64],
    by_slot: bool,
    order: int,
    seed: tuple[int, int],
    given: Integers,
    row: int,
    marked: Integers,
    begin: int,
    stop: int,
    merged: Integers,
    target: int,
    lines: Lines,
) -> bool:
    """Write the slots begin..stop, chunk by chunk in the order of arrival, to ``merged`` from ``target`` on.

    Returns False, with the rest unwritten, when the given merge is not one of this run.
    """
    count = open_lines(core_starts, by_slot, marked, begin, stop, lines)
    left = np.int64(0)
    for line in range(count):
        left += lines[line, LEFT]
    if order == GIVEN and given.size != left:
        return False
    line, step = -1, 0
    while left > 0:
        line = pick_line(order, seed, given, row, step, left, line, count, lines)
        if line < 0:
            return False
        slot = lines[line, NEXT]
        while marked[slot] >= 0:
            merged[target] = marked[slot]
            slot, target = slot + 1, target + 1
        merged[target] = marked[slot]
        lines[line, NEXT], target = slot + 1, target + 1
        lines[line, LEFT] -= 1
        left, step = left - 1, step + 1
    return True


@kernel
def _merge_all(
    core_starts: NDArray[np.int64],
    by_slot: bool,
    order: int,
    seed: tuple[int, int],
    given: Integers,
    given_starts: Integers,
    rows: Integers,
    starts: Integers,
    marked: Integers,
    merged_starts: Integers,
    merged: Integers,
    lines: NDArray[np.int64],
    accepted: NDArray[np.bool_],
) -> None:
    threads = lines.shape[0]
    for thread in prange(threads):
        for target in range(thread, rows.size, threads):
            row = rows[target]
            given_row = given[given_starts[target] : given_starts[target + 1]] if order == GIVEN else given
            accepted[target] = merge_run(
                core_starts, by_slot, order, seed, given_row, row, marked, np.int64(starts[row]), np.int64(starts[row + 1]), merged, np.int64(merged_starts[target]), lines[thread]
            )


def merge_rows(
    cut: Cut,
    starts: Integers,
    marked: Integers,
    rows: NDArray[np.int64],
    merged_starts: Integers,
    merged: Integers,
    order: int,
    seed: int,
    given: NDArray[np.int64] | None = None,
    given_starts: NDArray[np.int64] | None = None,
) -> NDArray[np.bool_]:
    """Write the runs of some weight rows in an order of arrival.

    Parameters
    ----------
    cut, starts, marked
        The grouped and marked call.
    rows : int64 (n,)
        Weight rows.
    merged_starts : (n,) or more
        Where the run of each goes in ``merged``, whose dtype is that of ``marked``.
    order, seed
        Code of the order; the seed matters for RANDOM.
    given, given_starts : int64
        GIVEN: the core of each chunk, row after row, and where each row's part starts (n + 1,).

    Returns
    -------
    bool (n,)
        False where the given merge is not one of that row.
    """
    none = np.empty(0, np.int64)
    threads = get_num_threads()
    accepted = np.empty(rows.size, np.bool_)
    _merge_all(
        cut.core_starts(),
        cut.splits_slots,
        order,
        seed_words(seed),
        none if given is None else given,
        none if given_starts is None else given_starts,
        rows,
        starts,
        marked,
        merged_starts,
        merged,
        np.empty((threads, cut.cores, LINE_COLUMNS), np.int64),
        accepted,
    )
    return accepted

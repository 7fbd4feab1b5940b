"""MoeTokenPermute: a stable sort of ids. Rows are copied by `npu_sim.kernels.shared.row_copies`.

The product sorts fp32 scores of the ids and always obtains the stable order. This is a stable radix
sort of the scores as integers: one counting sort per digit, from the lowest on. Experts are few,
and one pass is enough for up to 2048 of them.

Slow reference with the order of additions: ``tests/reference/moe_token_permute.py``.

Source: specification page ``moe_token_permute``, "Kernel".
"""

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel

Ids = NDArray[np.int32] | NDArray[np.int64]
Places = NDArray[np.int32]

MANTISSA_BITS = 24
"""Significant bits of fp32."""
INT64_MAX = 2**63 - 1
DIGIT_BITS = 11
"""Bits of a digit; its counters take 8 KiB, which stay in the L1 cache."""


def fp32_scores(ids: Ids) -> NDArray[np.int64]:
    """Return the sort keys of ids: rounded to fp32, ties away from zero (page, "Ids as fp32").

    Parameters
    ----------
    ids : int32 or int64 (entries,)

    Returns
    -------
    int64 (entries,)
        The fp32 values. 2^63 exceeds the range and becomes the largest int64, which is not an fp32
        value and sorts in the same place.
    """
    scores = ids.astype(np.int64)
    (large,) = np.nonzero((scores > 1 << MANTISSA_BITS) | (scores < -(1 << MANTISSA_BITS)))
    if not large.size:
        return scores
    values = scores[large]
    # abs of the smallest int64 overflows to itself, whose bits are those of 2^63.
    sizes = np.abs(values).view(np.uint64)
    # Exact, because the shift drops only bits below the mantissa.
    _, exponents = np.frexp((sizes >> np.uint64(MANTISSA_BITS)).astype(np.float64))
    dropped = exponents.astype(np.uint64)
    half = np.uint64(1) << (dropped - np.uint64(1))
    rounded = (sizes + half) >> dropped << dropped
    positive = np.minimum(rounded, np.uint64(INT64_MAX)).view(np.int64)
    scores[large] = np.where(values < 0, -rounded.view(np.int64), positive)
    return scores


def are_rounded(ids: Ids) -> NDArray[np.bool_]:
    """Return the mask of ids that are not exact in fp32."""
    scores = fp32_scores(ids)
    return (scores != ids) | (scores == INT64_MAX)


def sort_ids(ids: Ids, places: Places) -> None:
    """Write the place of each copy: its rank in the stable ascending order of the scores.

    Parameters
    ----------
    ids : int32 or int64 (entries,)
        Fewer than 2^31.
    places : int32 (entries,)
        To be written.
    """
    if not ids.size:
        return
    scores = fp32_scores(ids)
    # The difference may overflow int64; as uint64 it is correct.
    above = (scores - scores.min()).view(np.uint64)
    bits = int(above.max()).bit_length()
    order = np.arange(ids.size, dtype=np.int32)
    other = np.empty_like(order)
    starts = np.empty(1 << min(bits, DIGIT_BITS), np.int32)
    shift = 0
    while bits - shift > DIGIT_BITS:
        _sort_by_digit.over(1, above, order, shift, False, starts, other)
        order, other = other, order
        shift += DIGIT_BITS
    _sort_by_digit.over(1, above, order, shift, True, starts, places)


@device_function
def _digit(scores: NDArray[np.uint64], entry: int, shift: int, starts: Places) -> np.uint64:
    """Return the digit of a score at bit ``shift``; ``starts.size`` is the radix."""
    return (scores[entry] >> np.uint64(shift)) & np.uint64(starts.size - 1)


@kernel
def _sort_by_digit(
    chunk: int,
    scores: NDArray[np.uint64],
    order: Places,
    shift: int,
    is_last: bool,
    starts: Places,
    result: Places,
) -> None:
    """Sort entries by one digit; entries with the same digit keep their order.

    For the last digit write ranks by entry, not entries by rank.
    """
    starts[:] = 0
    for entry in range(scores.size):
        starts[_digit(scores, entry, shift, starts)] += 1
    begin = np.int32(0)
    for digit in range(starts.size):  # the first place of each digit
        count = starts[digit]
        starts[digit] = begin
        begin += count
    for entry in order:
        place = _digit(scores, entry, shift, starts)
        slot = starts[place]
        starts[place] = slot + 1
        if is_last:
            result[entry] = slot
        else:
            result[slot] = entry

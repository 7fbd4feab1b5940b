"""Finding the whole numbers for which a test holds, when all one can do is ask.

Nothing is assumed about the test being monotone. Small domains are asked through. Large ones are probed at points that lie dense
around zero and given landmarks and thin out in proportion to the distance; every change between neighbouring probes is bisected, and
around every change all numbers are asked, as far as further changes follow closely. What the result rests on for large domains:
between two neighbouring probes the answer changes once, apart from changes close to each other.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise

Interval = tuple[int, int]
"""First and last number, both included."""

EXHAUSTIVE = 4096
"""Domains of up to this many numbers are asked through."""
NEAR = 64
"""Numbers around zero, the ends and the landmarks that are all asked."""


def legal_ranges(
    legal: Callable[[int], bool],
    low: int,
    high: int,
    landmarks: Iterable[int] = (),
    per_octave: int = 16,
    window: int = NEAR,
) -> list[Interval]:
    """Return the intervals of ``low .. high`` on which ``legal`` holds, in ascending order.

    Parameters
    ----------
    legal
        The test.
    low, high
        Domain, both ends included.
    landmarks
        Numbers around which to look closely, such as the current value.
    per_octave
        Probes between two powers of two.
    window
        How many numbers around a change are asked for further changes; twice the number of cores finds what depends on remainders.
    """
    if high - low < EXHAUSTIVE:
        return _runs((number, legal(number)) for number in range(low, high + 1))
    answers = {point: legal(point) for point in probe_points(low, high, landmarks, per_octave)}
    points = sorted(answers)
    for left, right in pairwise(points):
        if answers[left] != answers[right] and right - left > 1:
            last_same = _bisect(legal, left, right, answers[left])
            answers[last_same], answers[last_same + 1] = answers[left], answers[right]
            _look_around(legal, answers, last_same, max(low, points[0]), high, window)
    return _runs(sorted(answers.items()))


def _look_around(
    legal: Callable[[int], bool],
    answers: dict[int, bool],
    change: int,
    low: int,
    high: int,
    window: int,
) -> None:
    """Ask every number near a change, and near every further change found on the way."""
    for step, end in ((-1, low), (1, high)):
        number, left = change + (step > 0), window
        while left and number != end:
            number, left = number + step, left - 1
            if number not in answers:
                answers[number] = legal(number)
            if answers[number] != answers[number - step]:
                left = window


def probe_points(low: int, high: int, landmarks: Iterable[int], per_octave: int) -> list[int]:
    """Return the numbers to ask in a large domain, in ascending order; both ends are among them."""
    points = {low, high}
    for center in (0, low, high, *landmarks):
        points.update(range(center - NEAR, center + NEAR + 1))
    power = NEAR
    while power <= max(abs(low), abs(high)):
        for step in range(per_octave):
            magnitude = power + power * step // per_octave
            points.update((magnitude, -magnitude, magnitude - 1, magnitude + 1))
        power *= 2
    return sorted(point for point in points if low <= point <= high)


def _bisect(legal: Callable[[int], bool], left: int, right: int, answer: bool) -> int:
    """Return the last number from ``left`` on with the same answer; ``right`` has the other one."""
    while right - left > 1:
        middle = (left + right) // 2
        if legal(middle) == answer:
            left = middle
        else:
            right = middle
    return left


def _runs(answers: Iterable[tuple[int, bool]]) -> list[Interval]:
    """Join numbers in ascending order with the same answer; a gap between two legal ones belongs to them."""
    ranges: list[Interval] = []
    open_range = False
    for number, answer in answers:
        if answer and open_range:
            ranges[-1] = (ranges[-1][0], number)
        elif answer:
            ranges.append((number, number))
        open_range = answer
    return ranges

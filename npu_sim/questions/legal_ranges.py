"""Search for the integers that pass a test.

The test need not be monotone. Small domains are tested completely. Large domains are probed at
points that are dense around zero and given landmarks, and sparser in proportion to the distance.
Every change between adjacent probes is bisected, and all integers around a change are tested.
The result for a large domain assumes that the test changes once between adjacent probes, apart from
changes close to each other.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise

Interval = tuple[int, int]
"""First and last integer, both included."""

EXHAUSTIVE = 4096
"""Domains of up to this size are tested completely."""
NEAR = 64
"""Distance around zero, the ends and the landmarks within which every integer is tested."""


def legal_ranges(
    legal: Callable[[int], bool],
    low: int,
    high: int,
    landmarks: Iterable[int] = (),
    per_octave: int = 16,
    window: int = NEAR,
) -> list[Interval]:
    """Return the intervals of ``low .. high`` on which ``legal`` holds, in ascending order.

    - ``legal``: the test.
    - ``low``, ``high``: domain, both ends included.
    - ``landmarks``: integers with dense probes around them, such as the current value.
    - ``per_octave``: probes between two powers of two.
    - ``window``: distance around a change within which every integer is tested; twice the number of
      cores finds changes that depend on remainders.
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
    """Test every integer near a change, and near every further change found on the way."""
    for step, end in ((-1, low), (1, high)):
        number, left = change + (step > 0), window
        while left and number != end:
            number, left = number + step, left - 1
            if number not in answers:
                answers[number] = legal(number)
            if answers[number] != answers[number - step]:
                left = window


def probe_points(low: int, high: int, landmarks: Iterable[int], per_octave: int) -> list[int]:
    """Return the integers to test in a large domain, ascending, including both ends."""
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
    """Return the last integer from ``left`` on with ``answer``; ``right`` has the other answer."""
    while right - left > 1:
        middle = (left + right) // 2
        if legal(middle) == answer:
            left = middle
        else:
            right = middle
    return left


def _runs(answers: Iterable[tuple[int, bool]]) -> list[Interval]:
    """Return the intervals of legal integers; a gap between two legal ones counts as legal."""
    ranges: list[Interval] = []
    open_range = False
    for number, answer in answers:
        if answer and open_range:
            ranges[-1] = (ranges[-1][0], number)
        elif answer:
            ranges.append((number, number))
        open_range = answer
    return ranges

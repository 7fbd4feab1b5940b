"""The sum by folding: numbers are folded to a power of two, which is summed as a tree of neighbours.

Source: specification page ``moe_token_unpermute_grad``, "reduce(v, m)". The functions of whole numbers are compiled by kernels as they are.
"""

from collections.abc import Sequence

from npu_sim.orders.trees import Tree, join, tree64

FOLD_STEP = 8
"""Half of the numbers, rounded up to a multiple of this, stays in place."""


def width_of(count: int) -> int:
    """Return how many numbers are left for the tree; 0 for fewer than 64, which are not folded."""
    return 4096 if count >= 4096 else 512 if count >= 512 else 64 if count >= 64 else 0


def half_of(count: int) -> int:
    """Return how many of so many numbers stay in place while the others are added to them."""
    return ((count + 1) // 2 + FOLD_STEP - 1) // FOLD_STEP * FOLD_STEP


def fold_adds(count: int) -> list[int]:
    """Return how many numbers every addition of a fold adds."""
    width, adds = width_of(count), []
    while width and count > 2 * width:
        half = half_of(count)
        adds.append(count - half)
        count = half
    return [*adds, count - width] if width and count > width else adds


def folded(terms: Sequence[Tree | None]) -> Tree | None:
    """Return the sum of some terms by folding."""
    values, width = list(terms), width_of(len(terms))
    if width == 0:
        return tree64(values)
    while len(values) > width:
        front = half_of(len(values)) if len(values) > 2 * width else width
        values = [
            join(value, values[front + place] if front + place < len(values) else None)
            for place, value in enumerate(values[:front])
        ]
    while len(values) > 1:
        values = [join(left, right) for left, right in zip(values[::2], values[1::2], strict=True)]
    return values[0]

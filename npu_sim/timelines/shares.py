"""What operators that split rows over cores have in common."""

from collections.abc import Callable

from npu_sim.plans.model import Plan
from npu_sim.timelines.program import Node, ranged


def rows_of_cores(plan: Plan) -> dict[int, tuple[int, int]]:
    """Return the rows of every core: the first of its ranges."""
    return {work.core: next(iter(work.ranges.values())) for work in plan.cores}


def row_pieces(
    length: int, count: int, tail: int, body: Callable[[int], tuple[Node, ...]]
) -> tuple[Node, ...]:
    """Cut a row into ``count`` pieces of ``length`` columns and a tail; a row in one piece needs no range."""
    if count == 0 or (count == 1 and tail == 0):
        return body(length if count else tail)
    return ranged("columns", 0, count * length + tail, length, body)

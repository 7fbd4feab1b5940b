"""Summation trees: the order in which the terms of one output element are added.

A tree is a leaf (the number of a term) or a pair of trees that one fp32 addition joins. Zeros that
a kernel starts from or fills lanes with are not terms, because adding them changes no value.
Addition is commutative bit for bit: a tree states which terms are added, not on which side.

The sums of Ascend 950 (from `largest_power` on) take values, which are trees, or None for a zero; a
register is 64 consecutive values. Source: specification page ``ascend_950``, "Sums used by several
kernels".
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import reduce
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from npu_sim.language import Text
from npu_sim.numbers.arrays import Array

Result = TypeVar("Result")
Tree = int | tuple[Any, Any]
LANES = 64
"""fp32 lanes of one vector instruction (specification page ``numerics``)."""

FOLD_WIDTHS = (4096, 512, 64)
"""Numbers that a fold may end with."""
FOLD_STEP = 8
"""Half of the numbers, rounded up to a multiple of this, stays in place."""


def left_fold(parts: Sequence[Tree | None]) -> Tree | None:
    """Return ``((part0 + part1) + part2) + ...``; parts without terms are skipped."""
    return reduce(join, parts, None)


def join(left: Tree | None, right: Tree | None) -> Tree | None:
    """Return the sum of two trees; None stands for a zero."""
    if left is None or right is None:
        return right if left is None else left
    return (left, right)


def tree64(lanes: Sequence[Tree | None]) -> Tree | None:
    """Return the tree of neighbours over 64 lanes; missing lanes are 0 (page ``numerics``)."""
    return ntree(padded(lanes, LANES))


def reduce_sum(terms: Sequence[Tree | None]) -> Tree | None:
    """Return the A2/A3 sum: tree64 of each block of 64, blocks in order (page ``numerics``)."""
    return left_fold([tree64(block) for block in cut(terms, LANES)])


def halving(terms: Sequence[Tree | None]) -> Tree | None:
    """Return the sum by halving of specification page ``rms_norm_grad``."""
    values = list(terms)
    while len(values) > LANES:
        values = fold(values, largest_power(len(values) - 1))
    return tree64(values)


def lane_sum(terms: Sequence[Tree | None]) -> Tree | None:
    """Return tree64 of 64 lane accumulators over steps of 64 (page ``rms_norm_grad``)."""
    return tree64([left_fold(list(terms[lane::LANES])) for lane in range(min(LANES, len(terms)))])


def fold_tree(
    tree: Tree, leaf: Callable[[int], Result], both: Callable[[Result, Result], Result]
) -> Result:
    """Return the value of a tree: ``leaf(term)`` of a term, ``both(left, right)`` of a sum.

    Iterative, because left folds of thousands of terms are deep.
    """
    done: list[Result] = []
    stack: list[tuple[Tree, bool]] = [(tree, False)]
    while stack:
        node, visited = stack.pop()
        if not isinstance(node, tuple):
            done.append(leaf(node))
        elif visited:
            right = done.pop()
            done.append(both(done.pop(), right))
        else:
            stack += [(node, True), (node[1], False), (node[0], False)]
    return done[0]


def evaluate(tree: Tree | None, terms: Array) -> Array:
    """Return the fp32 sum that a tree computes.

    ``terms``, float32 of shape (terms, ...), has the value of every term; further axes are summed
    independently.
    """
    assert tree is not None
    return fold_tree(tree, terms.__getitem__, np.add)


def leaves(tree: Tree | None) -> list[int]:
    """Return the terms of a tree from left to right."""
    terms: list[int] = []
    stack: list[Tree | None] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack += [node[1], node[0]]
        elif node is not None:
            terms.append(node)
    return terms


def canonical(tree: Tree | None) -> Tree | None:
    """Return the tree with operands ordered by their smallest term."""
    if tree is None:
        return None

    def ordered(left: tuple[int, Tree], right: tuple[int, Tree]) -> tuple[int, Tree]:
        first, second = sorted((left, right), key=itemgetter(0))
        return first[0], (first[1], second[1])

    # Parts carry their smallest term.
    return fold_tree(tree, lambda term: (term, term), ordered)[1]


def shape_hash(tree: Tree | None) -> str:
    """Return a hash of a tree with its terms renumbered in order."""
    numbers: dict[int, int] = {leaf: position for position, leaf in enumerate(sorted(leaves(tree)))}

    def digest(term: int | None) -> bytes:
        return hashlib.sha256(f"leaf{None if term is None else numbers[term]}".encode()).digest()

    def sum_digest(left: bytes, right: bytes) -> bytes:
        return hashlib.sha256(b"sum" + left + right).digest()

    ordered = canonical(tree)
    found = digest(None) if ordered is None else fold_tree(ordered, digest, sum_digest)
    return found.hex()[:16]


def text(tree: Tree | None, name: Callable[[int], str] = str) -> str:
    """Return a tree as a formula; left folds have no parentheses: ``a + b + c + (d + e)``."""
    if tree is None:
        return "0"

    def added(left: tuple[str, bool], right: tuple[str, bool]) -> tuple[str, bool]:
        formula, is_sum = right
        return f"{left[0]} + ({formula})" if is_sum else f"{left[0]} + {formula}", True

    return fold_tree(tree, lambda term: (name(term), False), added)[0]


def as_lists(tree: Tree | None) -> Any:
    """Return a tree for JSON: a left fold of its operands is ``{"fold": [a, b, c]}``."""
    if not isinstance(tree, tuple):
        return tree
    terms: list[Any] = []
    node: Tree = tree
    while isinstance(node, tuple):
        terms.append(as_lists(node[1]))
        node = node[0]
    return {"fold": [node, *reversed(terms)]}


def meeting_sizes(tree: Tree, terms: int) -> Array:
    """Return the size of the smallest part that holds both terms of every pair: (terms, terms)."""
    sizes = np.eye(terms, dtype=np.int32)

    def meet(left: list[int], right: list[int]) -> list[int]:
        both = [*left, *right]
        sizes[np.ix_(left, right)] = len(both)
        sizes[np.ix_(right, left)] = len(both)
        return both

    fold_tree(tree, lambda term: [term], meet)
    return sizes


def from_meeting_sizes(sizes: Array) -> Tree:
    """Rebuild the tree from the size of the smallest part that holds each pair of terms.

    Raises ValueError when no tree of two-term additions has these sizes.
    """
    trees: dict[int, Tree] = {term: term for term in range(sizes.shape[0])}
    members = {term: [term] for term in trees}
    owner = list(trees)
    for size, i, j in sorted(
        (int(sizes[a, b]), a, b) for a in range(sizes.shape[0]) for b in range(a)
    ):
        left, right = owner[i], owner[j]
        if left == right:
            continue
        if len(members[left]) + len(members[right]) != size:
            raise ValueError(
                Text(
                    "terms {j} and {i} meet in a part of {size} terms, which no two parts make",
                    j=j,
                    i=i,
                    size=size,
                )
            )
        trees[left] = (trees[left], trees.pop(right))
        members[left] += members.pop(right)
        for term in members[left]:
            owner[term] = left
    tree = canonical(next(iter(trees.values())))
    assert tree is not None
    return tree


def width_of(count: int) -> int:
    """Return the numbers left after folding; 0 for fewer than 64 numbers, which are not folded."""
    return next((width for width in FOLD_WIDTHS if count >= width), 0)


def half_of(count: int) -> int:
    """Return how many of ``count`` numbers stay in place while the others are added to them."""
    return ((count + 1) // 2 + FOLD_STEP - 1) // FOLD_STEP * FOLD_STEP


def fold_adds(count: int) -> list[int]:
    """Return the lengths of the vector additions of a fold."""
    width, adds = width_of(count), []
    while width and count > 2 * width:
        half = half_of(count)
        adds.append(count - half)
        count = half
    return [*adds, count - width] if width and count > width else adds


def folded(terms: Sequence[Tree | None]) -> Tree | None:
    """Return the sum by folding of specification page ``moe_token_unpermute_grad``, "reduce(v, m)".

    Terms are folded to a power of two, which is summed as a tree of neighbours.
    """
    values, width = list(terms), width_of(len(terms))
    if width == 0:
        return tree64(values)
    while len(values) > width:
        front = half_of(len(values)) if len(values) > 2 * width else width
        values = fold(values, front)
    return ntree(values)


SLOTS = 256
Values = Sequence[Tree | None]


def largest_power(number: int) -> int:
    """Return the largest power of two that is at most ``number``, which is at least 1."""
    return 1 << (number.bit_length() - 1)


def padded(values: Values, count: int) -> list[Tree | None]:
    """Return ``count`` values, zeros behind the given ones."""
    return [*values, *[None] * (count - len(values))]


def added(first: Values, second: Values) -> list[Tree | None]:
    """Return the sums of two registers, or of two rows of columns, element by element."""
    return [join(left, other) for left, other in zip(first, second, strict=True)]


def fold(values: Values, power: int) -> list[Tree | None]:
    """Return the first ``power`` values; each receives the one that lies ``power`` further on."""
    return added(values[:power], padded(values[power:], power))


def cut(values: Values, size: int) -> list[Values]:
    """Return runs of ``size`` values; the last one may be shorter."""
    return [values[begin : begin + size] for begin in range(0, len(values), size)]


def registers(values: Values) -> list[list[Tree | None]]:
    """Cut values into registers."""
    return [list(register) for register in cut(values, LANES)]


def ntree(values: Values) -> Tree | None:
    """Return the tree of neighbours of a power of two of values."""
    level = list(values)
    while len(level) > 1:
        level = [join(left, right) for left, right in zip(level[::2], level[1::2], strict=True)]
    return level[0]


def fours(values: Values, start: Tree | None) -> Tree | None:
    """Return ``start`` plus every four values as pairs of pairs; those left one by one."""
    whole = len(values) // 4 * 4
    groups = [ntree(four) for four in cut(values[:whole], 4)]
    return left_fold([start, *groups, *values[whole:]])


def halve(rows: Sequence[Values]) -> Values:
    """Add the second half of a power of two of rows to the first, down to one row."""
    while len(rows) > 1:
        half = len(rows) // 2
        rows = [added(left, other) for left, other in zip(rows[:half], rows[half:], strict=True)]
    return rows[0]


def groups16(rows: Sequence[Values]) -> Values:
    """Replace every 16 rows by their `halve` while there are as many; `halve` the others."""
    while len(rows) >= 16:
        rows = [halve(rows[begin : begin + 16]) for begin in range(0, len(rows), 16)]
    return halve(rows)


def rows_sum(rows: Sequence[Values], width: int) -> Values:
    """Return the sum of rows of padded ``width``, which selects the order and nothing else."""
    power = largest_power(len(rows))
    front = [
        added(row, rows[power + position]) if power + position < len(rows) else row
        for position, row in enumerate(rows[:power])
    ]
    return groups16(front) if LANES // 2 < width <= LANES else halve(front)


def cols_sum(values: Values) -> Tree | None:
    """Return the sum of a row whose length is a multiple of 128."""
    return tree64(groups16(registers(fold(values, largest_power(len(values))))))


def row_sum(values: Values) -> Tree | None:
    """Return the sum ``rs(v)`` of page ``cross_entropy_loss_grad_950``: the library's row sum."""
    count = len(values)
    if count in (8, 16, 24):
        total = list(values[:8])
        for begin in range(8, count, 8):
            total = added(total, values[begin : begin + 8])
        return ntree(total)
    if count <= LANES:
        return tree64(values)
    registers_of_row = registers(fold(values, largest_power(count)))
    return tree64(groups16(registers_of_row) if count % 8 == 0 else halve(registers_of_row))


def paired(values: Values, count: int, power: int) -> Tree | None:
    """Return the sum ``paired(v, c, P)`` of the page."""
    registers_of_row = registers(fold(padded(values, count), power))
    pairs = zip(registers_of_row[::2], registers_of_row[1::2], strict=True)
    return tree64([tree64(added(left, other)) for left, other in pairs])


def level(slots: Values) -> Tree | None:
    """Return the sum of a power of two of slots in lists of 256."""
    while True:
        slots = [_list_sum(padded(part, SLOTS)) for part in cut(slots, SLOTS)]
        if len(slots) == 1:
            return slots[0]


def _list_sum(slots: Values) -> Tree | None:
    first, second, third, fourth = registers(slots)
    return tree64(added(added(first, second), added(third, fourth)))

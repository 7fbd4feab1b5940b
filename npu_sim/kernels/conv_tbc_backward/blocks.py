"""ConvTbcBackward: how gradWeight is cut into blocks that threads own. The cut changes no bit of the result."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.conv_tbc_backward.tile import TILE_COLUMNS, TILE_ROWS, TILE_SIZE

MOST_TAPS = 16
MOST_ROW_TILES = 8
MOST_COLUMN_TILES = 8
BLOCK_SUMS = 1 << 18
"""Most sums of one block, 1 MiB: they stay in the second-level cache from visit to visit."""
KEPT_SUMS = 1 << 22
"""Most sums a thread keeps in the random order, 16 MiB, unless a register tile for each core needs
more."""


class Blocking(NamedTuple):
    """Taps and tiles of one block, at most."""

    taps: int
    row_tiles: int
    column_tiles: int


def blocking(kept: int) -> Blocking:
    """Return the largest block whose sums, kept once for each of ``kept`` cores, fit their scratch."""
    room = min(BLOCK_SUMS, KEPT_SUMS // max(kept, 1)) // TILE_SIZE
    columns = max(min(MOST_COLUMN_TILES, room), 1)
    rows = max(min(MOST_ROW_TILES, room // columns), 1)
    return Blocking(max(min(MOST_TAPS, room // (columns * rows)), 1), rows, columns)


def even_ranges(size: int, unit: int, pieces: int) -> list[tuple[int, int]]:
    """Cut 0..size into pieces of whole units, as even as possible."""
    units = -(-size // unit)
    bounds = [units * piece // pieces * unit for piece in range(pieces + 1)]
    return [(start, min(stop, size)) for start, stop in pairwise(bounds) if start < stop]


def cut_output(shape: tuple[int, int, int], most: Blocking, threads: int) -> NDArray[np.int64]:
    """Cut gradWeight (K, Cin, Cout) into blocks, one a line, such that the busiest thread has as little as possible.

    Smaller blocks load operands more often, which the cost below counts as a fraction of a product.
    """
    taps, in_channels, out_channels = shape
    in_tiles, out_tiles = -(-in_channels // TILE_ROWS), -(-out_channels // TILE_COLUMNS)
    fewest = (
        -(-taps // most.taps),
        -(-in_tiles // most.row_tiles),
        -(-out_tiles // most.column_tiles),
    )
    candidates = []
    for in_pieces in range(fewest[1], min(2 * fewest[1] + threads, in_tiles) + 1):
        for out_pieces in range(fewest[2], min(2 * fewest[2] + threads, out_tiles) + 1):
            for tap_pieces in {fewest[0], min(2 * fewest[0], taps), taps}:
                rounds = -(-in_pieces * out_pieces * tap_pieces // threads)
                size = (
                    -(-taps // tap_pieces),
                    -(-in_tiles // in_pieces),
                    -(-out_tiles // out_pieces),
                )
                cost = rounds * (16 * size[0] * size[1] * size[2] + size[1] + size[2])
                candidates.append((cost, tap_pieces, in_pieces, out_pieces))
    _, tap_pieces, in_pieces, out_pieces = min(candidates)
    lines = [
        (*tap_range, *in_range, *out_range)
        for tap_range in even_ranges(taps, 1, tap_pieces)
        for in_range in even_ranges(in_channels, TILE_ROWS, in_pieces)
        for out_range in even_ranges(out_channels, TILE_COLUMNS, out_pieces)
    ]
    return np.array(lines, np.int64)


def block_sizes(blocks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many sums every block of :func:`cut_output` has, in whole tiles."""
    taps, inputs, outputs = (blocks[:, column + 1] - blocks[:, column] for column in (0, 2, 4))
    sizes: NDArray[np.int64] = (
        taps * -(-inputs // TILE_ROWS) * -(-outputs // TILE_COLUMNS) * TILE_SIZE
    )
    return sizes

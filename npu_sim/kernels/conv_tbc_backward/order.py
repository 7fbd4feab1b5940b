"""ConvTbcBackward: in which order the partial sums of gradWeight reach memory.

In default mode a core has one accumulator: it starts at 0 and takes sample after sample (of its share), each over its share of the
time axis, ascending. Where several cores share an output, their sums arrive in any order. In deterministic mode on A2 and A3 one core
computes a tile, its accumulator starts anew with every sample, and what it has summed is added to memory sample after sample.

Source: specification pages ``conv_tbc_backward``, "Execution", and ``numerics``, "Atomic addition to global memory".
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.random_order import RANDOM, SEQUENTIAL, arrivals

Integers = NDArray[np.int64]

SAMPLE, START, STOP = 0, 1, 2
"""Columns of a list of visits: the sample and its half-open range of output time."""


class Shares(NamedTuple):
    """How the reduction of every output tile is shared by cores: plain integers out of the plan.

    ``samples`` in groups of ``group_samples``, output time 0..``steps`` in pieces of ``piece_steps``: one core each. ``anew`` is 1 when
    the accumulator starts anew with every sample; there is one core then.
    """

    samples: int
    group_samples: int
    steps: int
    piece_steps: int
    anew: int = 0

    @property
    def cores(self) -> int:
        """How many cores share a tile."""
        return -(-self.samples // self.group_samples) * -(-self.steps // self.piece_steps)


class TailTiles(NamedTuple):
    """Output tiles whose samples are split over cores with private slots ("stream-K"): the tiles from ``first`` on.

    Tiles are ``m_edge`` output channels x ``n_edge`` input channels with all taps; ``m_tiles`` x ``n_tiles`` of them, M
    running fastest when ``m_fastest``. ``slot_samples`` consecutive samples share a slot; 0 when no tile is split.
    """

    slot_samples: int
    first: int
    m_edge: int
    n_edge: int
    m_tiles: int
    n_tiles: int
    m_fastest: int


NO_TAIL = TailTiles(0, 0, 1, 1, 1, 1, 1)
NO_MASK = np.zeros((0, 0), np.bool_)


def tail_mask(tiles: TailTiles, in_channels: int, out_channels: int) -> NDArray[np.bool_]:
    """Return which (input channel, output channel) pairs lie in tiles with slots."""
    n, m = (
        np.arange(in_channels)[:, None] // tiles.n_edge,
        np.arange(out_channels)[None, :] // tiles.m_edge,
    )
    number = n * tiles.m_tiles + m if tiles.m_fastest else m * tiles.n_tiles + n
    mask: NDArray[np.bool_] = number >= tiles.first
    return mask


def visits_by_core(shares: Shares) -> list[list[tuple[int, int, int]]]:
    """Return which samples, over which output time, each core that shares a tile visits in its program order; cores ascending."""
    cores = []
    for first in range(0, shares.samples, shares.group_samples):
        for start in range(0, shares.steps, shares.piece_steps):
            samples = range(first, min(first + shares.group_samples, shares.samples))
            cores.append(
                [
                    (sample, start, min(start + shares.piece_steps, shares.steps))
                    for sample in samples
                ]
            )
    return cores


def arrival(shares: Shares, order: int) -> tuple[Integers, Integers]:
    """Return all visits, core after core as their sums arrive, and for each whether it is the last one of its core (1 or 0).

    ``RANDOM`` draws for every output row, so cores come in ascending order.
    """
    cores = visits_by_core(shares)
    fixed = SEQUENTIAL if order == RANDOM else order
    arrived = [cores[number] for number in arrivals(np.ones(len(cores), np.int64), fixed, 0, 1)[0]]
    last = [int(visit == own[-1]) for own in arrived for visit in own]
    return np.array([visit for own in arrived for visit in own], np.int64), np.array(last, np.int64)

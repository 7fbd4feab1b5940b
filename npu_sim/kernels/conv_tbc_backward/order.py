"""ConvTbcBackward: the order in which the partial sums of gradWeight are added up.

Default mode: each core has one accumulator per output element. It starts at 0 and takes the core's
samples in order, each over the core's range of the time axis, ascending. If several cores reduce
the same output, their sums arrive in any order. Deterministic mode on A2 and A3: one core computes
a tile, its accumulator restarts with every sample, and the sums are added to memory sample by
sample. A *visit* is one sample on one core's range of the time axis.

Sources: specification pages ``conv_tbc_backward``, "Execution", and ``numerics``, "Atomic addition
to global memory".
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.random_order import RANDOM, SEQUENTIAL, arrivals

Integers = NDArray[np.int64]

SAMPLE, START, STOP = 0, 1, 2
"""Columns of a list of visits: sample, and half-open range of output time."""


class ReductionSplit(NamedTuple):
    """Division of the reduction of every output tile among cores, as integers from the plan.

    Each core takes a group of ``group_samples`` of the ``samples``, and a piece of ``piece_steps``
    of the ``steps`` of output time.
    """

    samples: int
    group_samples: int
    steps: int
    piece_steps: int
    restarts: int = 0
    """1 if the accumulator restarts with every sample; there is one core then."""

    @property
    def cores(self) -> int:
        """Number of cores that reduce a tile."""
        return -(-self.samples // self.group_samples) * -(-self.steps // self.piece_steps)


class TailTiles(NamedTuple):
    """Output tiles, from ``first`` on, whose samples are split over cores with private slots.

    This is "stream-K". Tiles are ``m_edge`` output channels x ``n_edge`` input channels with all
    taps; there are ``m_tiles`` x ``n_tiles``, M running fastest if ``m_fastest``. ``slot_samples``
    consecutive samples are summed in one slot; 0 if no tile is split.
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
    """Return the mask (input channels, output channels) of the tiles with slots."""
    n = np.arange(in_channels)[:, None] // tiles.n_edge
    m = np.arange(out_channels)[None, :] // tiles.m_edge
    number = n * tiles.m_tiles + m if tiles.m_fastest else m * tiles.n_tiles + n
    mask: NDArray[np.bool_] = number >= tiles.first
    return mask


def visits_by_core(split: ReductionSplit) -> list[list[tuple[int, int, int]]]:
    """Return the visits (sample, start, stop) of each core of a tile, in its program order."""
    cores = []
    for first in range(0, split.samples, split.group_samples):
        for start in range(0, split.steps, split.piece_steps):
            samples = range(first, min(first + split.group_samples, split.samples))
            stop = min(start + split.piece_steps, split.steps)
            cores.append([(sample, start, stop) for sample in samples])
    return cores


def arrival(split: ReductionSplit, order: int) -> tuple[Integers, Integers]:
    """Return all visits in the order of the cores' arrival, and a flag: last visit of its core.

    For ``RANDOM``, cores are in ascending order, because the order is drawn for every output row.
    """
    cores = visits_by_core(split)
    fixed = SEQUENTIAL if order == RANDOM else order
    arrived = [cores[number] for number in arrivals(np.ones(len(cores), np.int64), fixed, 0, 1)[0]]
    last = [
        int(visit == visits_of_part[-1]) for visits_of_part in arrived for visit in visits_of_part
    ]
    visits = [visit for visits_of_part in arrived for visit in visits_of_part]
    return np.array(visits, np.int64), np.array(last, np.int64)

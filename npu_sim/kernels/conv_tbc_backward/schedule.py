"""ConvTbcBackward: what gradWeight works out before anything is multiplied, from sizes alone, and the memory it works in."""

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.conv_tbc_backward.blocks import block_sizes, blocking, cut_output
from npu_sim.kernels.conv_tbc_backward.folds import Integers, Shares, arrival
from npu_sim.kernels.conv_tbc_backward.tile import TILE_COLUMNS, TILE_ROWS, TILE_STRIDE, Floats
from npu_sim.kernels.engine.scratch import SMALL_BYTES, aligned, kept, thread_scratch

Flags = NDArray[np.bool_]

GROUP_BYTES = 1 << 23
"""Packed operands held at a time, when one visit is not larger by itself."""

PLAIN, MIXED, SLOTS = 0, 1, 2
"""Whether what a block sums goes to memory, to both, or only to what runs beside it (slots, the
accumulators of a core)."""


class Schedule(NamedTuple):
    """In which order visits are added to which blocks. Arrays are kept from call to call, and not to be changed.

    ``visits`` with ``ends``, 1 where a slot or a core ends; ``blocks`` of the output, whose sums,
    ``size`` together, begin at ``starts`` and go where ``kinds`` says when no tile has slots;
    ``group`` visits are packed at a time, each in ``x_shape`` and ``grad_shape``; ``part_size``
    sums are kept by every thread.
    """

    visits: Integers
    ends: Integers
    blocks: Integers
    starts: Integers
    kinds: Integers
    size: int
    group: int
    x_shape: tuple[int, int, int]
    grad_shape: tuple[int, int, int]
    part_size: int


@lru_cache(maxsize=64)
def schedule(
    shape: tuple[int, int, int],
    tap_stride: int,
    shares: Shares,
    slot_samples: int,
    core_order: int,
    threads: int,
    drawn: bool,
) -> Schedule:
    """Return the schedule of gradWeight (K, Cin, Cout); arguments as for :func:`npu_sim.kernels.conv_tbc_backward.weight.grad_weight`.

    ``drawn`` says whether the order of cores is drawn for every row, which needs all their sums.
    """
    visits, ends = arrival(shares, core_order)
    blocks = cut_output(shape, blocking(shares.cores if drawn else 0), threads)
    sizes = block_sizes(blocks)
    if slot_samples:
        ends = np.zeros(len(visits), np.int64)
        ends[slot_samples - 1 :: slot_samples] = 1
        ends[-1] = 1
    elif shares.cores == 1 and not shares.anew:
        ends = np.zeros_like(ends)  # the one accumulator is what is added to the zeroed output
    steps, halo = min(shares.piece_steps, shares.steps), (shape[0] - 1) * tap_stride
    x_shape = (-(-shape[1] // TILE_ROWS), steps + halo, TILE_STRIDE)
    grad_shape = (-(-shape[2] // TILE_COLUMNS), steps, TILE_COLUMNS)
    group = (
        len(visits)
        if drawn
        else min(max(GROUP_BYTES // (4 * (prod(x_shape) + prod(grad_shape))), 1), len(visits))
    )
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    kinds = np.full(len(blocks), PLAIN if shares.anew else SLOTS, np.int64)
    part_size = int(sizes.max()) * (shares.cores if drawn else shares.anew)
    return Schedule(
        visits, ends, blocks, starts, kinds, int(sizes.sum()), group, x_shape, grad_shape, part_size
    )


def slotted_kinds(blocks: Integers, tail: Flags) -> Integers:
    """Return for each block where its sums go when the pairs of channels in ``tail`` have slots."""
    parts = [
        tail[first_in:stop_in, first_out:stop_out]
        for _, _, first_in, stop_in, first_out, stop_out in blocks
    ]
    return np.array(
        [SLOTS if part.all() else MIXED if part.any() else PLAIN for part in parts], np.int64
    )


class Scratch(NamedTuple):
    """Memory that gradWeight works in: packed operands of a group, sums, what runs beside them, what is finished, parts of threads."""

    packed_x: Floats
    packed_grad: Floats
    sums: Floats
    running: Floats
    finished: Floats
    parts: Floats


def scratch_of(plan: Schedule, threads: int, running: int, finished: int) -> Scratch:
    """Return the memory for a call, with all sums at 0; ``running`` and ``finished`` of them run beside those of the output."""
    packed = plan.group * (prod(plan.x_shape) + prod(plan.grad_shape))
    is_small = (
        4 * (packed + plan.size + running + finished + threads * plan.part_size) <= SMALL_BYTES
    )
    make, sizes = _kept_scratch if is_small else _scratch, (plan.size, running, finished)
    scratch = make(
        (plan.group, *plan.x_shape),
        (plan.group, *plan.grad_shape),
        sizes,
        (threads, plan.part_size),
    )
    for cleared in (scratch.sums, scratch.running, scratch.finished):
        cleared.fill(0)
    return scratch


def _scratch(
    x_shape: tuple[int, ...],
    grad_shape: tuple[int, ...],
    sizes: tuple[int, int, int],
    parts: tuple[int, int],
) -> Scratch:
    sums, running, finished = map(aligned, sizes)
    return Scratch(
        aligned(*x_shape), aligned(*grad_shape), sums, running, finished, thread_scratch(*parts)
    )


_kept_scratch = kept(_scratch)

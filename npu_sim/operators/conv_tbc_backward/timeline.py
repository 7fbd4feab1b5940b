"""Timeline of ConvTbcBackward: what every cube core does, gradInput first, then gradWeight.

Source: specification page ``conv_tbc_backward``, "Tiling model" and "Planner of deterministic
gradWeight". The program is a lower bound: inside a block every operand is loaded to L1 once. Copies
run at the rates of L2, because cores share operands: 24 cube cores at the rate of global memory
would be slower than the fastest published operator. The blocks of a core are sorted by size, not by
the order of the kernel.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from math import gcd

import numpy as np

from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec, itemsize
from npu_sim.operators.conv_tbc_backward.plan import INPUT_KERNEL, WEIGHT_KERNEL
from npu_sim.plans.model import Plan
from npu_sim.tiling.common import ceil_div
from npu_sim.tiling.conv_tbc_backward import CubeTiling
from npu_sim.tiling.conv_tbc_backward.grad_weight_deterministic import CHANNEL_BLOCK_BYTES
from npu_sim.timelines.program import (
    CUBE_PIPES,
    Copy,
    Hold,
    Loop,
    Multiply,
    Node,
    Phase,
    Program,
    Step,
    Tile,
    View,
    Work,
    ranged,
)

ACCUMULATOR_BYTES = 4
L0_BUFFERS = 2
KERNELS = {"gradInput": INPUT_KERNEL, "gradWeight": WEIGHT_KERNEL}
OUTPUT_GRADIENT = "grad_output"
"""Name of the tensor ``self`` of the product document."""


@dataclass(frozen=True)
class Shape:
    """Sizes of the call that both gradients use."""

    time: int
    output_time: int
    taps: int
    dtype: str

    @property
    def element_bytes(self) -> int:
        """Bytes of the compute dtype."""
        return itemsize(self.dtype)

    @property
    def channel_block(self) -> int:
        """Channels of one block of the cube layout."""
        return CHANNEL_BLOCK_BYTES // self.element_bytes


@dataclass(frozen=True)
class Blocking:
    """Blocking of a gradient: base blocks, buffers, and bytes of operands and output."""

    name: str
    """Name of the gradient."""
    base_m: int
    """Rows of one L0 load."""
    base_n: int
    """Columns of one L0 load."""
    base_k: int
    """Reduction of one L0 load."""
    length_l1: int
    """Length of the reduction that L1 holds."""
    l1_buffers: int
    """Number of buffers in L1."""
    l0c_buffers: int
    """Number of buffers in L0C."""
    self_bytes: Callable[[int, int], int]
    """Bytes of self copied to L1 for a number of rows and a length of the reduction."""
    other_bytes: Callable[[int, int], int]
    """Bytes of the other operand for a number of columns and a length of the reduction."""
    out_bytes: int
    """Bytes of an output element."""
    out_every_sample: bool
    """Whether the accumulator is written after every sample, not only after the last."""
    dtype: str

    def holds(self) -> tuple[Hold, ...]:
        """Buffers between the pipes."""
        return Hold(0, 1, self.l1_buffers), Hold(1, 2, L0_BUFFERS), Hold(2, 3, self.l0c_buffers)


def program(plan: Plan) -> Program:
    """Return the program of every cube core."""
    shape = _shape(plan)
    if "gradInput" not in plan.tiling:
        return Program(())
    phases = [_model_phase(_grad_input(plan, shape), CubeTiling(**plan.tiling["gradInput"]))]
    if "baseM" in plan.tiling["gradWeight"]:
        phases.append(_planner_phase(plan, shape))
        others = (
            ("adding the slots of split tiles",) if plan.tiling["gradWeight"]["streamKType"] else ()
        )
    else:
        tiling = CubeTiling(**plan.tiling["gradWeight"])
        blocking = _grad_weight(shape, _sizes(plan.tiling["gradWeight"]), out_every_sample=False)
        phases.append(_model_phase(blocking, tiling))
        splits = tiling.sample_blocks * tiling.time_blocks > 1
        others = ("clearing gradWeight",) if splits and plan.deterministic else ()
    return Program(tuple(phases), others, ("copies at the rates of L2",), views=_views(plan))


def _shape(plan: Plan) -> Shape:
    names = "input", OUTPUT_GRADIENT, "weight"
    time, output_time, taps = (TensorSpec.parse(plan.arguments[name]).shape[0] for name in names)
    values = (decision.values for decision in plan.decisions)
    dtype = next(value["computed in"] for value in values if "computed in" in value)
    return Shape(time, output_time, taps, str(dtype))


def _sizes(tiling: dict[str, int]) -> dict[str, int]:
    """Return the sizes of a :class:`Blocking` from the tiling of the model."""
    names = "base_m", "base_n", "base_k", "length_l1", "l1_buffers", "l0c_buffers"
    return {name: tiling[name] for name in names}


def _grad_input(plan: Plan, shape: Shape) -> Blocking:
    return Blocking(
        name="gradInput",
        **_sizes(plan.tiling["gradInput"]),
        # The halo of the rows is left out: at the ends self has fewer time steps than the rows
        # and their halo.
        self_bytes=lambda rows, length: (
            min(rows, shape.output_time) * shape.element_bytes * ceil_div(length, shape.taps)
        ),
        other_bytes=lambda columns, length: columns * length * shape.element_bytes,
        out_bytes=shape.element_bytes,
        out_every_sample=False,
        dtype=shape.dtype,
    )


def _grad_weight(shape: Shape, sizes: dict[str, int], *, out_every_sample: bool) -> Blocking:
    channels = shape.channel_block
    return Blocking(
        name="gradWeight",
        **sizes,
        self_bytes=lambda rows, length: rows * min(length, shape.output_time) * shape.element_bytes,
        other_bytes=lambda columns, length: (
            min(length, shape.time)
            * channels
            * shape.element_bytes
            * ceil_div(columns, shape.taps * channels)
        ),
        out_bytes=ACCUMULATOR_BYTES,
        out_every_sample=out_every_sample,
        dtype=shape.dtype,
    )


Extents = tuple[int, int, int, int]
"""Rows, columns, samples and reduction of a block."""
Sizes = tuple[int, int, int]
"""Rows, columns and reduction of a part of a sample."""


def _model_phase(blocking: Blocking, tiling: CubeTiling) -> Phase:
    extents = {core: tuple(_extents(tiling, core)) for core in range(tiling.block_dim)}
    blocks = {distinct: _blocks(blocking, distinct) for distinct in set(extents.values())}
    cores = {core: blocks[counts] for core, counts in extents.items()}
    return Phase(blocking.name, CUBE_PIPES, blocking.holds(), cores, KERNELS[blocking.name])


def _extents(tiling: CubeTiling, core: int) -> Iterator[tuple[Extents, int]]:
    """Yield the distinct extents of a core's blocks and their counts.

    This is :func:`block_range` for all blocks at once.
    """
    inner = tiling.n_blocks * tiling.m_blocks * tiling.time_blocks
    count = ceil_div(tiling.blocks - core, tiling.block_dim)
    # With one sample a block, extents repeat with the position inside a sample.
    period = inner // gcd(inner, tiling.block_dim) if tiling.single_samples == 1 else count
    positions = np.arange(min(period, count), dtype=np.int64)
    repeats = (count - positions + period - 1) // period
    block = core + tiling.block_dim * positions
    n, m = block % tiling.n_blocks, block // tiling.n_blocks % tiling.m_blocks
    time, sample = block // (tiling.n_blocks * tiling.m_blocks) % tiling.time_blocks, block // inner
    parts = [
        np.minimum((index + 1) * size, total) - index * size
        for index, size, total in (
            (m, tiling.single_m, tiling.m),
            (n, tiling.single_n, tiling.n),
            (sample, tiling.single_samples, tiling.samples),
            (time, tiling.single_reduction, tiling.reduction),
        )
    ]
    counts: Counter[Extents] = Counter()
    for rows, columns, samples, reduction, number in np.stack([*parts, repeats], axis=1).tolist():
        counts[rows, columns, samples, reduction] += number
    yield from sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _planner_phase(plan: Plan, shape: Shape) -> Phase:
    """Return the phase of the published planner.

    Tiles are dealt to cores round robin; the samples of tail tiles are split over cores.
    """
    fields = plan.tiling["gradWeight"]
    sizes = {
        "base_m": fields["baseM"],
        "base_n": fields["baseN"],
        "base_k": fields["baseK"],
        "length_l1": fields["stepKa"] * fields["baseK"],
        "l1_buffers": fields["al1Pbuffer"],
        "l0c_buffers": fields["cl0Pbuffer"],
    }
    blocking = _grad_weight(shape, sizes, out_every_sample=True)
    batch = TensorSpec.parse(plan.arguments["input"]).shape[1]
    cores = {}
    for work in plan.cores:
        blocks: list[tuple[Extents, int]] = []
        if "gradWeight tiles" in work.ranges:
            _, count = work.ranges["gradWeight tiles"]
            tiles = work.core + fields["usedCoreNum"] * np.arange(count)
            blocks += _planner_tiles(fields, tiles, batch)
        if "gradWeight tail tile" in work.ranges:
            start, stop = work.ranges["gradWeight tail samples"]
            if stop > start:
                tiles = np.array([work.ranges["gradWeight tail tile"][0]])
                blocks += _planner_tiles(fields, tiles, stop - start)
        if blocks:
            cores[work.core] = _blocks(blocking, blocks)
    return Phase(blocking.name, CUBE_PIPES, blocking.holds(), cores, KERNELS[blocking.name])


def _planner_tiles(
    fields: dict[str, int], tiles: np.ndarray, samples: int
) -> list[tuple[Extents, int]]:
    """Return the distinct extents of some tiles and their counts."""
    single_m, single_n = fields["singleCoreM"], fields["singleCoreN"]
    m_tiles = ceil_div(fields["mValue"], single_m)
    n_tiles = ceil_div(fields["nValue"], single_n)
    if fields["iterateOrder"]:  # columns run fastest
        m, n = tiles // n_tiles, tiles % n_tiles
    else:
        m, n = tiles % m_tiles, tiles // m_tiles
    rows = np.minimum((m + 1) * single_m, fields["mValue"]) - m * single_m
    columns = np.minimum((n + 1) * single_n, fields["nValue"]) - n * single_n
    different, counts = np.unique(np.stack([rows, columns]), axis=1, return_counts=True)
    return [
        ((int(r), int(c), samples, fields["kValue"]), int(count))
        for (r, c), count in zip(different.T, counts, strict=True)
    ]


def _blocks(blocking: Blocking, blocks: Iterable[tuple[Extents, int]]) -> tuple[Node, ...]:
    nodes: list[Node] = []
    start = 0
    axis = Text("{name} block", name=blocking.name)
    for extents, count in blocks:
        nodes.append(Loop(_block(blocking, extents), count, axis, 1, start))
        start += count
    return tuple(nodes)


def _block(blocking: Blocking, extents: Extents) -> tuple[Node, ...]:
    """Return the tiles of a block.

    The first row of tiles loads the other operand, the first tile of a row loads self.
    """
    rows, columns, samples, reduction = extents

    def row(m: int, *, load_other: bool) -> tuple[Node, ...]:
        def tile(n: int, load_self: bool) -> tuple[Node, ...]:
            return _tile(blocking, (m, n, samples, reduction), (load_self, load_other))

        first = min(blocking.base_n, columns)
        head = ranged("n", 0, first, first, lambda n: tile(n, True))
        return head + ranged("n", first, columns, blocking.base_n, lambda n: tile(n, False))

    first = min(blocking.base_m, rows)
    head = ranged("m", 0, first, first, lambda m: row(m, load_other=True))
    return head + ranged("m", first, rows, blocking.base_m, lambda m: row(m, load_other=False))


def _tile(blocking: Blocking, extents: Extents, loads: tuple[bool, bool]) -> tuple[Node, ...]:
    """Return the nodes of a tile of the output: sample after sample, then the output."""
    m, n, samples, reduction = extents
    out = (Copy(m * n * blocking.out_bytes, m * n),)
    last = _sample(blocking, (m, n, reduction), loads, out)
    if samples == 1:
        return last
    earlier = last if blocking.out_every_sample else _sample(blocking, (m, n, reduction), loads, ())
    return Loop(earlier, samples - 1, "sample", 1), Loop(last, 1, "sample", 1, samples - 1)


def _sample(
    blocking: Blocking, extents: Sizes, loads: tuple[bool, bool], out: tuple[Work, ...]
) -> tuple[Node, ...]:
    """Return the nodes of one sample: its reduction in the parts that L1 holds."""
    m, n, reduction = extents
    length = blocking.length_l1
    whole = ceil_div(reduction, length) - 1
    rest = reduction - whole * length
    last = Loop(_part(blocking, (m, n, rest), loads, out), 1, "k", rest, whole * length)
    if not whole:
        return (last,)
    return Loop(_part(blocking, (m, n, length), loads, ()), whole, "k", length), last


def _part(
    blocking: Blocking, extents: Sizes, loads: tuple[bool, bool], out: tuple[Work, ...]
) -> tuple[Node, ...]:
    """Return the base blocks of a part in L1: the first one loads, the last one may write out."""
    m, n, length = extents
    sizes = (
        blocking.self_bytes(m, length) if loads[0] else 0,
        blocking.other_bytes(n, length) if loads[1] else 0,
    )
    load = tuple(Copy(size, size // itemsize(blocking.dtype)) for size in sizes if size)
    steps = ceil_div(length, blocking.base_k)
    last = length - (steps - 1) * blocking.base_k
    if steps == 1:
        return (_step(blocking, (m, n, last), load, out),)
    whole = m, n, blocking.base_k
    middle: tuple[Node, ...] = ()
    if steps > 2:
        middle = (Loop((_step(blocking, whole, (), ()),), steps - 2),)
    return _step(blocking, whole, load, ()), *middle, _step(blocking, (m, n, last), (), out)


def _step(
    blocking: Blocking, extents: Sizes, load: tuple[Work, ...], out: tuple[Work, ...]
) -> Tile:
    m, n, k = extents
    size = itemsize(blocking.dtype)
    to_l0 = (
        Copy(m * k * size, m * k, rate="l1_to_l0a_bytes_per_cycle"),
        Copy(n * k * size, n * k, rate="l1_to_l0b_bytes_per_cycle"),
    )
    step = _description(blocking.name, loads=bool(load), writes=bool(out))
    return Tile((load, to_l0, (Multiply(blocking.dtype, m, n, k),), out), step)


@cache
def _description(gradient: str, *, loads: bool, writes: bool) -> Step:
    other = OTHERS[gradient]
    factors, result = _blocks_drawn(gradient, other)
    text = Text(
        "block rows {{m}}, columns {{n}}: the accumulator in L0C += self x {other} over "
        "{{k}} of the reduction, one base block of it",
        other=other,
    )
    if loads:
        text += "; both are copied to L1 first"
    if writes:
        text += "; the accumulator is copied out"
    read, held = (factors, ()) if loads else ((), factors)
    live = ("self", other, "self tile", Text("{other} tile", other=other), "accumulator")
    note = ", ".join(word for word, done in (("load", loads), ("out", writes)) if done)
    return Step(note, text, read, (result,) if writes else (), held, live)


OTHERS = {"gradInput": "weight", "gradWeight": "input"}
"""The other operand of the product with self, by gradient."""


def _views(plan: Plan) -> tuple[View, ...]:
    """Return operands and result of the largest block of every gradient."""
    views: list[View] = []
    for gradient, other in OTHERS.items():
        if gradient in plan.tiling:
            m, n, k = _largest_block(plan.tiling[gradient])
            by_m, by_n, by_k = {"m": 1.0}, {"n": 1.0}, {"k": 1.0}
            (self_block, factor), result = _blocks_drawn(gradient, other)
            views += [
                View(self_block, m, k, by_m, by_k),
                View(factor, k, n, by_k, by_n),
                View(result, m, n, by_m, by_n),
            ]
    return tuple(views)


def _blocks_drawn(gradient: str, other: str) -> tuple[tuple[str, str], str]:
    """Return the names of the operands and of the result of a block."""
    return (
        Text("self of a {gradient} block", gradient=gradient),
        Text("{other} of a {gradient} block", other=other, gradient=gradient),
    ), Text("{gradient} block", gradient=gradient)


def _largest_block(tiling: dict[str, int]) -> tuple[int, int, int]:
    """Return rows, columns and reduction of the largest block of a core."""
    if "baseM" in tiling:
        return tiling["singleCoreM"], tiling["singleCoreN"], tiling["kValue"]
    return tiling["single_m"], tiling["single_n"], tiling["single_reduction"]

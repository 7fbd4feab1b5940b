"""Timeline of ConvTbcBackward: what every cube core does, gradInput first, then gradWeight.

Source: specification page ``conv_tbc_backward``, "Tiling model" and "Planner of deterministic
gradWeight". The program is a lower bound: inside a block every operand is loaded to L1 once. Copies
run at the rates of L2, because cores read the same operands: 24 cube cores at the rate of global
memory would be slower than the fastest published operator. The blocks of a core are sorted by size,
not by the order of the kernel.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from math import gcd

import numpy as np

from npu_sim.framework.vocabulary import Plan, TensorSpec, Text, ceil_div, itemsize
from npu_sim.operators.conv_tbc_backward.plan import INPUT_KERNEL, WEIGHT_KERNEL
from npu_sim.tiling.conv_tbc_backward import CubeTiling
from npu_sim.tiling.conv_tbc_backward.grad_weight_deterministic import (
    ACCUMULATOR_BYTES,
    CHANNEL_BLOCK_BYTES,
    L0_BUFFERS,
)
from npu_sim.timelines import (
    CUBE_PIPES,
    Copy,
    Hold,
    Loop,
    Multiply,
    Node,
    Nodes,
    Phase,
    Program,
    Step,
    Tile,
    View,
    Works,
    ranged,
)

KERNELS = {"gradInput": INPUT_KERNEL, "gradWeight": WEIGHT_KERNEL}
OTHERS = {"gradInput": "weight", "gradWeight": "input"}
"""The other operand of the product with self, by gradient."""
Extents = tuple[int, int, int, int]
"""Rows, columns, samples and reduction of a block."""
Sizes = tuple[int, int, int]
"""Rows, columns and reduction of a part of a sample."""


def program(plan: Plan) -> Program:
    """Return the program of every cube core."""
    if "gradInput" not in plan.tiling:
        return Program(())
    gradients = Gradient(plan, "gradInput"), Gradient(plan, "gradWeight")
    tiling, others = plan.tiling["gradWeight"], ""
    if gradients[1].is_published:
        others = "adding the slots of split tiles" if tiling["streamKType"] else ""
    elif tiling["sample_blocks"] * tiling["time_blocks"] > 1 and plan.deterministic:
        others = "clearing gradWeight"
    phases, rates = tuple(gradient.phase() for gradient in gradients), "copies at the rates of L2"
    return Program(phases, (others,) if others else (), (rates,), views=_views(plan))


class Gradient:
    """A gradient of a plan: its base block, buffers, and bytes of operands and output."""

    def __init__(self, plan: Plan, name: str) -> None:
        fields = plan.tiling[name]
        self.plan, self.name, self.fields = plan, name, fields
        self.time, self.output_time, self.taps = (
            TensorSpec.parse(plan.arguments[tensor]).shape[0]
            for tensor in ("input", "grad_output", "weight")
        )
        self.dtype = str(
            next(
                decision.values["computed in"]
                for decision in plan.decisions
                if "computed in" in decision.values
            )
        )
        self.size = itemsize(self.dtype)
        self.out_bytes = self.size if name == "gradInput" else ACCUMULATOR_BYTES
        self.is_published = "baseM" in fields  # the output is written after every sample
        names = (
            ("baseM", "baseN", "baseK", "stepKa", "al1Pbuffer", "cl0Pbuffer")
            if self.is_published
            else ("base_m", "base_n", "base_k", "length_l1", "l1_buffers", "l0c_buffers")
        )
        self.base_m, self.base_n, self.base_k, self.length_l1, *buffers = (
            fields[field] for field in names
        )
        if self.is_published:
            self.length_l1 *= self.base_k
        self.holds = Hold(0, 1, buffers[0]), Hold(1, 2, L0_BUFFERS), Hold(2, 3, buffers[1])

    def copied_bytes(self, rows: int, columns: int, length: int) -> tuple[int, int]:
        """Return the bytes of grad_output and of the other operand of a part, as copied to L1."""
        if self.name == "gradInput":
            # The halo of the rows is left out: at the ends grad_output has fewer time steps than
            # the rows and their halo.
            own = min(rows, self.output_time) * self.size * ceil_div(length, self.taps)
            return own, columns * length * self.size
        channels = CHANNEL_BLOCK_BYTES // self.size
        row_bytes = channels * self.size * ceil_div(columns, self.taps * channels)
        own = rows * min(length, self.output_time) * self.size
        return own, min(length, self.time) * row_bytes

    def phase(self) -> Phase:
        """Return the work of every core."""
        if self.is_published:
            extents = self._planned_tiles()
        else:
            tiling = CubeTiling(**self.fields)
            extents = {core: tuple(_extents(tiling, core)) for core in range(tiling.block_dim)}
        blocks = {distinct: self._blocks(distinct) for distinct in set(extents.values())}
        cores = {core: blocks[counts] for core, counts in extents.items()}
        return Phase(self.name, CUBE_PIPES, self.holds, cores, KERNELS[self.name])

    def _planned_tiles(self) -> dict[int, tuple[tuple[Extents, int], ...]]:
        """Return the distinct extents of the tiles of every core, and their counts.

        Tiles are dealt to cores round robin; the samples of tail tiles are split over cores.
        """
        fields, cores = self.fields, {}
        batch = TensorSpec.parse(self.plan.arguments["input"]).shape[1]
        for work in self.plan.cores:
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
                cores[work.core] = tuple(blocks)
        return cores

    def _blocks(self, blocks: Iterable[tuple[Extents, int]]) -> Nodes:
        nodes: list[Node] = []
        start, axis = 0, Text("{name} block", name=self.name)
        for extents, count in blocks:
            nodes.append(Loop(self._block(extents), count, axis, 1, start))
            start += count
        return tuple(nodes)

    def _block(self, extents: Extents) -> Nodes:
        """Return the tiles of a block.

        The first row of tiles loads the other operand, the first tile of a row loads self.
        """
        rows, columns, samples, reduction = extents

        def row(m: int, load_other: bool) -> Nodes:
            def tile(n: int, load_self: bool) -> Nodes:
                return self._tile((m, n, samples, reduction), (load_self, load_other))

            return _first_apart("n", columns, self.base_n, tile)

        return _first_apart("m", rows, self.base_m, row)

    def _tile(self, extents: Extents, loads: tuple[bool, bool]) -> Nodes:
        """Return the nodes of a tile of the output: sample after sample, then the output."""
        m, n, samples, reduction = extents
        last = self._sample((m, n, reduction), loads, (Copy(m * n * self.out_bytes, m * n),))
        if samples == 1:
            return last
        earlier = last if self.is_published else self._sample((m, n, reduction), loads, ())
        return Loop(earlier, samples - 1, "sample", 1), Loop(last, 1, "sample", 1, samples - 1)

    def _sample(self, extents: Sizes, loads: tuple[bool, bool], out: Works) -> Nodes:
        """Return the nodes of one sample: its reduction in the parts that L1 holds."""
        m, n, reduction = extents
        length = self.length_l1
        whole = ceil_div(reduction, length) - 1
        rest = reduction - whole * length
        last = Loop(self._part((m, n, rest), loads, out), 1, "k", rest, whole * length)
        if not whole:
            return (last,)
        return Loop(self._part((m, n, length), loads, ()), whole, "k", length), last

    def _part(self, extents: Sizes, loads: tuple[bool, bool], out: Works) -> Nodes:
        """Return the base blocks of a part in L1: the first loads, the last may write out."""
        m, n, length = extents
        load = tuple(
            Copy(size, size // self.size)
            for size, loaded in zip(self.copied_bytes(*extents), loads, strict=True)
            if loaded and size
        )
        steps = ceil_div(length, self.base_k)
        last = length - (steps - 1) * self.base_k
        if steps == 1:
            return (self._step((m, n, last), load, out),)
        whole = m, n, self.base_k
        middle: Nodes = (Loop((self._step(whole, (), ()),), steps - 2),) if steps > 2 else ()
        return self._step(whole, load, ()), *middle, self._step((m, n, last), (), out)

    def _step(self, extents: Sizes, load: Works, out: Works) -> Tile:
        m, n, k = extents
        to_l0 = (
            Copy(m * k * self.size, m * k, rate="l1_to_l0a_bytes_per_cycle"),
            Copy(n * k * self.size, n * k, rate="l1_to_l0b_bytes_per_cycle"),
        )
        return Tile(
            (load, to_l0, (Multiply(self.dtype, m, n, k),), out),
            _description(self.name, loads=bool(load), writes=bool(out)),
        )


def _first_apart(axis: str, size: int, step: int, body: Callable[[int, bool], Nodes]) -> Nodes:
    """Return ``body(size, is_first)`` for the pieces of an axis, the first one by itself."""
    first = min(step, size)
    head = ranged(axis, 0, first, first, lambda piece: body(piece, True))
    return head + ranged(axis, first, size, step, lambda piece: body(piece, False))


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


@cache
def _description(gradient: str, *, loads: bool, writes: bool) -> Step:
    other = OTHERS[gradient]
    factors, result = _blocks_drawn(gradient, other)
    text = Text(
        "block rows {{m}}, columns {{n}}: the accumulator in L0C += grad_output x {other} over "
        "{{k}} of the reduction, one base block of it",
        other=other,
    )
    if loads:
        text += "; both are copied to L1 first"
    if writes:
        text += "; the accumulator is copied out"
    read, held = (factors, ()) if loads else ((), factors)
    live = (
        "grad_output",
        other,
        "grad_output tile",
        Text("{other} tile", other=other),
        "accumulator",
    )
    note = ", ".join(word for word, done in (("load", loads), ("out", writes)) if done)
    return Step(note, text, read, (result,) if writes else (), held, live)


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
        Text("grad_output of a {gradient} block", gradient=gradient),
        Text("{other} of a {gradient} block", other=other, gradient=gradient),
    ), Text("{gradient} block", gradient=gradient)


def _largest_block(tiling: dict[str, int]) -> tuple[int, int, int]:
    """Return rows, columns and reduction of the largest block of a core."""
    if "baseM" in tiling:
        return tiling["singleCoreM"], tiling["singleCoreN"], tiling["kValue"]
    return tiling["single_m"], tiling["single_n"], tiling["single_reduction"]

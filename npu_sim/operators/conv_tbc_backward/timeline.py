"""What the cube cores do in ConvTbcBackward, from the plan's tiling: gradInput, then gradWeight.

Source: specification page ``conv_tbc_backward``, "Tiling model" and "Planner of deterministic
gradWeight". Inside a block every operand is taken to be loaded to L1 once, whatever the walk over
its tiles: a lower bound. Cores share operands, which then come from L2, and 24 cube cores at the
rate of global memory could not move what the fastest published operator does: copies are counted at
the rates of L2. The blocks of a core are taken by size, not in the order in which it meets them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import gcd

import numpy as np

from npu_sim.numbers.formats import TensorSpec, itemsize
from npu_sim.operators.conv_tbc_backward.workspace import INPUT_KERNEL, WEIGHT_KERNEL
from npu_sim.plans.model import Plan
from npu_sim.tiling.common import ceil_div
from npu_sim.tiling.conv_tbc_backward.cube_tiling import CubeTiling
from npu_sim.tiling.conv_tbc_backward.problem import CHANNEL_BLOCK_BYTES
from npu_sim.timelines.program import (
    CUBE_PIPES,
    Copy,
    Hold,
    Loop,
    Multiply,
    Node,
    Phase,
    Program,
    Tile,
    Work,
    ranged,
)
from npu_sim.timelines.steps import Step, StepTable, View

ACCUMULATOR_BYTES = 4
L0_BUFFERS = 2
KERNELS = {"gradInput": INPUT_KERNEL, "gradWeight": WEIGHT_KERNEL}
OUTPUT_GRADIENT = "grad_output"
"""Name of the tensor that the product document calls self."""


@dataclass(frozen=True)
class Shape:
    """What both gradients need of the call."""

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
    """How one block of a gradient is computed.

    Attributes
    ----------
    name
        Of the gradient.
    base_m, base_n, base_k
        Block of one L0 load.
    length_l1
        Part of the reduction that L1 holds.
    l1_buffers, l0c_buffers
        Buffers there.
    own_bytes, other_bytes
        Bytes to L1 of so many rows (or columns) and so long a part of the reduction.
    out_bytes
        Bytes of an output element.
    out_every_sample
        Whether the accumulator leaves after every sample, not after the last.
    """

    name: str
    base_m: int
    base_n: int
    base_k: int
    length_l1: int
    l1_buffers: int
    l0c_buffers: int
    own_bytes: Callable[[int, int], int]
    other_bytes: Callable[[int, int], int]
    out_bytes: int
    out_every_sample: bool
    dtype: str

    def holds(self) -> tuple[Hold, ...]:
        """Buffers between the pipes."""
        return Hold(0, 1, self.l1_buffers), Hold(1, 2, L0_BUFFERS), Hold(2, 3, self.l0c_buffers)


def program(plan: Plan) -> Program:
    """Return what every cube core does."""
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
        sizes = (
            tiling.base_m,
            tiling.base_n,
            tiling.base_k,
            tiling.length_l1,
            tiling.l1_buffers,
            tiling.l0c_buffers,
        )
        phases.append(_model_phase(_grad_weight(shape, sizes, out_every_sample=False), tiling))
        others = ("clearing gradWeight",) if tiling.sample_blocks * tiling.time_blocks > 1 else ()
    return Program(tuple(phases), others, ("copies at the rates of L2",))


def _shape(plan: Plan) -> Shape:
    tensors = {
        name: TensorSpec.parse(plan.arguments[name])
        for name in (OUTPUT_GRADIENT, "input", "weight")
    }
    computed = next(
        decision.values["computed in"]
        for decision in plan.decisions
        if "computed in" in decision.values
    )
    return Shape(
        tensors["input"].shape[0],
        tensors[OUTPUT_GRADIENT].shape[0],
        tensors["weight"].shape[0],
        str(computed),
    )


def _grad_input(plan: Plan, shape: Shape) -> Blocking:
    tiling = plan.tiling["gradInput"]
    return Blocking(
        name="gradInput",
        **{
            name: tiling[name]
            for name in ("base_m", "base_n", "base_k", "length_l1", "l1_buffers", "l0c_buffers")
        },
        # Time steps of self at the ends are fewer than the rows and their halo: the halo is left
        # out.
        own_bytes=lambda rows, length: (
            min(rows, shape.output_time) * shape.element_bytes * ceil_div(length, shape.taps)
        ),
        other_bytes=lambda columns, length: columns * length * shape.element_bytes,
        out_bytes=shape.element_bytes,
        out_every_sample=False,
        dtype=shape.dtype,
    )


def _grad_weight(
    shape: Shape, sizes: tuple[int, int, int, int, int, int], *, out_every_sample: bool
) -> Blocking:
    base_m, base_n, base_k, length_l1, l1_buffers, l0c_buffers = sizes
    channels = shape.channel_block
    return Blocking(
        name="gradWeight",
        base_m=base_m,
        base_n=base_n,
        base_k=base_k,
        length_l1=length_l1,
        l1_buffers=l1_buffers,
        l0c_buffers=l0c_buffers,
        own_bytes=lambda rows, length: rows * min(length, shape.output_time) * shape.element_bytes,
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


def _model_phase(blocking: Blocking, tiling: CubeTiling) -> Phase:
    cores = {core: _blocks(blocking, _extents(tiling, core)) for core in range(tiling.block_dim)}
    return Phase(blocking.name, CUBE_PIPES, blocking.holds(), cores, KERNELS[blocking.name])


def _extents(tiling: CubeTiling, core: int) -> Iterator[tuple[Extents, int]]:
    """Yield the different extents of a core's blocks and how many there are of each (:func:`block_range`, all at once)."""
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
    different, which = np.unique(np.stack(parts), axis=1, return_inverse=True)
    counts = np.bincount(which.ravel(), weights=repeats)
    for column in np.argsort(-counts, kind="stable"):
        rows, columns, samples, reduction = (int(value) for value in different[:, column])
        yield (rows, columns, samples, reduction), int(counts[column])


def _planner_phase(plan: Plan, shape: Shape) -> Phase:
    """Tiles round robin over cores; those of the tail with their samples split."""
    fields = plan.tiling["gradWeight"]
    sizes = (
        fields["baseM"],
        fields["baseN"],
        fields["baseK"],
        fields["stepKa"] * fields["baseK"],
        fields["al1Pbuffer"],
        fields["cl0Pbuffer"],
    )
    blocking = _grad_weight(shape, sizes, out_every_sample=True)
    batch = TensorSpec.parse(plan.arguments["input"]).shape[1]
    m_tiles = ceil_div(fields["mValue"], fields["singleCoreM"])
    n_tiles = ceil_div(fields["nValue"], fields["singleCoreN"])
    cores = {}
    for work in plan.cores:
        shares: list[tuple[Extents, int]] = []
        if "gradWeight tiles" in work.ranges:
            _, count = work.ranges["gradWeight tiles"]
            shares += _planner_tiles(
                fields,
                work.core + fields["usedCoreNum"] * np.arange(count),
                batch,
                m_tiles,
                n_tiles,
            )
        if "gradWeight tail tile" in work.ranges:
            start, stop = work.ranges["gradWeight tail samples"]
            if stop > start:
                shares += _planner_tiles(
                    fields,
                    np.array([work.ranges["gradWeight tail tile"][0]]),
                    stop - start,
                    m_tiles,
                    n_tiles,
                )
        if shares:
            cores[work.core] = _blocks(blocking, iter(shares))
    return Phase(blocking.name, CUBE_PIPES, blocking.holds(), cores, KERNELS[blocking.name])


def _planner_tiles(
    fields: dict[str, int], tile: np.ndarray, samples: int, m_tiles: int, n_tiles: int
) -> list[tuple[Extents, int]]:
    """Return extents and numbers of some tiles; with iterateOrder 1 columns run fastest."""
    m, n = (
        (tile // n_tiles, tile % n_tiles)
        if fields["iterateOrder"]
        else (tile % m_tiles, tile // m_tiles)
    )
    rows = np.minimum((m + 1) * fields["singleCoreM"], fields["mValue"]) - m * fields["singleCoreM"]
    columns = (
        np.minimum((n + 1) * fields["singleCoreN"], fields["nValue"]) - n * fields["singleCoreN"]
    )
    different, counts = np.unique(np.stack([rows, columns]), axis=1, return_counts=True)
    return [
        ((int(r), int(c), samples, fields["kValue"]), int(count))
        for (r, c), count in zip(different.T, counts, strict=True)
    ]


def _blocks(blocking: Blocking, shares: Iterator[tuple[Extents, int]]) -> tuple[Node, ...]:
    nodes: list[Node] = []
    start = 0
    for extents, count in shares:
        nodes.append(Loop(_block(blocking, extents), count, f"{blocking.name} block", 1, start))
        start += count
    return tuple(nodes)


def _block(blocking: Blocking, extents: Extents) -> tuple[Node, ...]:
    """Tiles of a block; the first row of tiles loads the other operand, the first tile of a row its own."""
    rows, columns, samples, reduction = extents

    def row(m: int, *, load_other: bool) -> tuple[Node, ...]:
        first = min(blocking.base_n, columns)
        head = ranged(
            "n",
            0,
            first,
            first,
            lambda n: _tile(blocking, (m, n, samples, reduction), (True, load_other)),
        )
        rest = ranged(
            "n",
            first,
            columns,
            blocking.base_n,
            lambda n: _tile(blocking, (m, n, samples, reduction), (False, load_other)),
        )
        return head + rest

    first = min(blocking.base_m, rows)
    head = ranged("m", 0, first, first, lambda m: row(m, load_other=True))
    return head + ranged("m", first, rows, blocking.base_m, lambda m: row(m, load_other=False))


def _tile(blocking: Blocking, extents: Extents, loads: tuple[bool, bool]) -> tuple[Node, ...]:
    """One tile of the output: samples and the reduction one after the other, then out."""
    m, n, samples, reduction = extents
    out = (Copy(m * n * blocking.out_bytes, m * n),)
    last = _sample(blocking, (m, n, reduction), loads, out)
    if samples == 1:
        return last
    before = last if blocking.out_every_sample else _sample(blocking, (m, n, reduction), loads, ())
    return Loop(before, samples - 1, "sample", 1), Loop(last, 1, "sample", 1, samples - 1)


def _sample(
    blocking: Blocking,
    extents: tuple[int, int, int],
    loads: tuple[bool, bool],
    out: tuple[Work, ...],
) -> tuple[Node, ...]:
    """The reduction of one sample, in the parts that L1 holds."""
    m, n, reduction = extents
    whole = ceil_div(reduction, blocking.length_l1) - 1
    length = reduction - whole * blocking.length_l1
    nodes: list[Node] = []
    if whole:
        nodes.append(
            Loop(
                _part(blocking, (m, n, blocking.length_l1), loads, ()),
                whole,
                "k",
                blocking.length_l1,
            )
        )
    nodes.append(
        Loop(
            _part(blocking, (m, n, length), loads, out), 1, "k", length, whole * blocking.length_l1
        )
    )
    return tuple(nodes)


def _part(
    blocking: Blocking,
    extents: tuple[int, int, int],
    loads: tuple[bool, bool],
    out: tuple[Work, ...],
) -> tuple[Node, ...]:
    """What L1 holds, base block after base block; the first one waits for the load, the last one may go out."""
    m, n, length = extents
    sizes = (
        blocking.own_bytes(m, length) if loads[0] else 0,
        blocking.other_bytes(n, length) if loads[1] else 0,
    )
    load = tuple(Copy(size, size // itemsize(blocking.dtype)) for size in sizes if size)
    steps = ceil_div(length, blocking.base_k)
    last = length - (steps - 1) * blocking.base_k
    if steps == 1:
        return (_step(blocking, (m, n, last), load, out),)
    middle: tuple[Node, ...] = (
        (Loop((_step(blocking, (m, n, blocking.base_k), (), ()),), steps - 2),) if steps > 2 else ()
    )
    return (
        _step(blocking, (m, n, blocking.base_k), load, ()),
        *middle,
        _step(blocking, (m, n, last), (), out),
    )


def _step(
    blocking: Blocking, extents: tuple[int, int, int], load: tuple[Work, ...], out: tuple[Work, ...]
) -> Tile:
    m, n, k = extents
    size = itemsize(blocking.dtype)
    to_l0 = (
        Copy(m * k * size, m * k, rate="l1_to_l0a_bytes_per_cycle"),
        Copy(n * k * size, n * k, rate="l1_to_l0b_bytes_per_cycle"),
    )
    note = ", ".join(word for word, done in (("load", load), ("out", out)) if done)
    return Tile((load, to_l0, (Multiply(blocking.dtype, m, n, k),), out), note)


OTHERS = {"gradInput": "weight", "gradWeight": "input"}
"""What self is multiplied by."""
NOTES = ("", "load", "out", "load, out")


def steps(plan: Plan) -> StepTable:
    """Return what every tile of the program holds and adds."""
    views: list[View] = []
    found: dict[tuple[str, str], Step] = {}
    for gradient, other in OTHERS.items():
        if gradient in plan.tiling:
            m, n, k = _largest_block(plan.tiling[gradient])
            own, factor, result = (
                f"self of a {gradient} block",
                f"{other} of a {gradient} block",
                f"{gradient} block",
            )
            by_m, by_n, by_k = {"m": 1.0}, {"n": 1.0}, {"k": 1.0}
            views += [
                View(own, m, k, by_m, by_k),
                View(factor, k, n, by_k, by_n),
                View(result, m, n, by_m, by_n),
            ]
            found |= {
                (gradient, note): _step_text(note, (own, factor), result, other) for note in NOTES
            }
    return StepTable(tuple(views), found)


def _largest_block(tiling: dict[str, int]) -> tuple[int, int, int]:
    """Return rows, columns and reduction of the largest block of a core."""
    if "baseM" in tiling:
        return tiling["singleCoreM"], tiling["singleCoreN"], tiling["kValue"]
    return tiling["single_m"], tiling["single_n"], tiling["single_reduction"]


def _step_text(note: str, factors: tuple[str, str], result: str, other: str) -> Step:
    says = (
        f"block rows {{m}}, columns {{n}}: the accumulator in L0C += self x {other} over {{k}} of "
        "the reduction, one base block of it"
    )
    if "load" in note:
        says += "; both come to L1 first"
    if "out" in note:
        says += "; the accumulator goes out"
    read = "load" in note
    live = ("self", other, "self tile", f"{other} tile", "accumulator")
    return Step(
        says,
        factors if read else (),
        (result,) if "out" in note else (),
        () if read else factors,
        live,
    )

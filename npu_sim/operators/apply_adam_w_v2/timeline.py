"""Timeline of ApplyAdamWV2 on A2 and A3.

The vector instructions of a tile are written once, as (kind, whether it has two sources); bound and
estimate read the same list.

Source: specification page ``apply_adam_w_v2``, section "Vector instructions of a tile".
"""

from collections.abc import Iterator
from functools import cache

from npu_sim.framework.vocabulary import Launch, Plan, Text, itemsize
from npu_sim.operators.shared.timelines import RATES
from npu_sim.tiling.apply_adam_w_v2 import TILE_ELEMENTS
from npu_sim.timelines import (
    NARROWING,
    WIDENING,
    Copy,
    Instruction,
    InstructionLists,
    Issue,
    Issues,
    Loop,
    Node,
    Program,
    Step,
    View,
    Work,
    full_repeats,
    repeated,
    vector_phase,
    vector_tile,
)

TWO_SOURCES = ("mul", "add", "sub", "max", "div")
"""Kinds with two sources; all buffers of a tile have equal alignment."""
SOURCES = "two buffers of a tile"
MOMENTS = ("muls", "sub", "muls", "add", "muls", "mul", "muls", "add")
"""var*decay; m' = (g - m)*c1 + m; v' = v*beta2 + g*g*c2."""
UPDATE = ("square root", "muls", "adds", "div", "muls", "sub")
"""var' = var*decay - m' / (root*inv_root + eps) * size."""
POWER = {
    "duplicate": 3,
    "abs": 6,
    "ln": 1,
    "mul": 2,
    "exp": 1,
    WIDENING: 4,
    "muls": 3,
    "sub": 2,
    "adds": 1,
    "shift": 1,
    "compare": 9,
    "or": 7,
    "select": 3,
}
"""Instructions of one repeat of the power function, and their number."""
POWERS = 2
WIDE_REPEATS, MIXED_REPEATS = 16, 9
"""Repeats of one further duplicate of the power function; the second with mixed dtypes."""
SHOWN_TILES = 40
"""Most tiles of a core that are listed in their order; more are only counted."""
STEP = Step(
    "tile",
    "m', v', then var' = var*decay - m' / (root(v')*inv_root + eps) * size",
    ("var", "m", "v", "grad"),
    ("var_out", "m_out", "v_out"),
    live=("inputs", "outputs"),
)


class _Tiles:
    """The tiles of a plan, with the dtypes that its kernel has."""

    def __init__(self, plan: Plan) -> None:
        tiling = plan.tiling
        self.cores, self.longer = plan.block_dim, tiling["handleExtraLoopCoreNum"]
        self.per_core, self.last = tiling["loopNumPerCore"], tiling["numLastLoop"]
        self.tiles = self.per_core * tiling["totalCoreNum"] + self.longer
        self.elements = (self.tiles - 1) * TILE_ELEMENTS + self.last
        self.amsgrad, self.maximize = bool(tiling["amsgrad"]), bool(tiling["maximize"])
        key = tiling["tilingKey"]
        self.is_native_16, self.is_mixed = key < 105, key > 106

    def of_core(self, core: int) -> range:
        """Return the numbers of a core's tiles."""
        return range(core, self.tiles, self.cores)

    def size(self, number: int) -> int:
        """Return the elements of a tile."""
        return self.last if number == self.tiles - 1 else TILE_ELEMENTS

    def instructions(self) -> tuple[str, ...]:
        """Return the kinds of the instructions of a tile, in their order."""
        widened = 4 if self.is_native_16 else int(self.is_mixed)
        narrows_norm = self.amsgrad and (self.is_native_16 or self.is_mixed)
        return (
            *(WIDENING,) * widened,
            *("muls",) * self.maximize,
            *MOMENTS,
            *(WIDENING,) * narrows_norm,
            *("max",) * self.amsgrad,
            *UPDATE[:3],
            *(NARROWING,) * narrows_norm,
            *UPDATE[3:],
            *(NARROWING,) * (3 * self.is_native_16),
        )


def _kernel(plan: Plan) -> Launch:
    return next(launch for launch in plan.launches if launch.kernel == plan.kernel)


def copies_of(plan: Plan, amsgrad: bool) -> tuple[dict[str, int], dict[str, int]]:
    """Return bytes of an element of what the kernel copies in, and out, by name.

    Tensors that Casts leave in the workspace have the names of the arguments.
    """
    kernel = _kernel(plan)
    names = ("var", "m", "v", "max_grad_norm", "grad")
    given = [name for name in names if plan.arguments.get(name) is not None]
    read = {
        name: itemsize(tensor.dtype) for name, tensor in zip(given, kernel.inputs, strict=False)
    }
    written = {name: read[name] for name in ("var", "m", "v")}
    if amsgrad:
        written["max_grad_norm"] = read["max_grad_norm"]
    else:
        read.pop("max_grad_norm", None)
    return read, {f"{name}_out": size for name, size in written.items()}


def copy_work(sizes: dict[str, int], elements: int, total: int) -> tuple[Work, ...]:
    """Return one copy of every tensor of a tile."""
    return tuple(
        Copy(size * elements, elements, tensor_bytes=size * total) for size in sizes.values()
    )


def views(read: dict[str, int], written: dict[str, int], elements: int) -> tuple[View, ...]:
    """Return the tensors in the order in which they are drawn."""
    return tuple(View(name, elements, 1, {"elements": 1}) for name in (*read, *written))


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    tiles = _Tiles(plan)
    read, written = copies_of(plan, tiles.amsgrad)
    kinds = tiles.instructions()

    @cache
    def tile(elements: int) -> tuple[Node, ...]:
        vector = tuple(Instruction(RATES[kind], "float32", elements) for kind in kinds)
        copies = (copy_work(sizes, elements, tiles.elements) for sizes in (read, written))
        return (vector_tile(next(copies), vector, next(copies), STEP),)

    def nodes(core: int) -> Iterator[Node]:
        numbers = tiles.of_core(core)
        if len(numbers) <= SHOWN_TILES:
            for number in numbers:
                size, start = tiles.size(number), number * TILE_ELEMENTS
                yield Loop(tile(size), 1, "elements", size, start)
            return
        has_last = numbers[-1] == tiles.tiles - 1
        yield Loop(tile(TILE_ELEMENTS), len(numbers) - has_last)
        if has_last:
            yield Loop(tile(tiles.last), 1)

    cores = {core: tuple(nodes(core)) for core in range(tiles.cores)}
    return Program(
        (vector_phase("tiles", cores, 2, 2),),
        not_counted=(Text("the two powers, once a core"),),
        views=views(read, written, tiles.elements),
    )


def instructions(plan: Plan) -> InstructionLists:
    """Return the vector instructions of every core; fp32 was compared with a device."""
    tiles = _Tiles(plan)
    repeats = MIXED_REPEATS if tiles.is_mixed else WIDE_REPEATS
    power = (
        *(Issue(kind, 1, times=times) for kind, times in POWER.items()),
        Issue("duplicate", repeats),
    )

    @cache
    def tile(elements: int) -> Issues:
        return tuple(
            full_repeats(kind, elements, 0, 0, between=SOURCES)
            if kind in TWO_SOURCES
            else full_repeats(kind, elements)
            for kind in tiles.instructions()
        )

    def of_core(core: int) -> Issues:
        numbers = tiles.of_core(core)
        has_last = numbers[-1] == tiles.tiles - 1
        whole = repeated(tile(TILE_ELEMENTS), len(numbers) - has_last)
        last = tile(tiles.last) if has_last else ()
        return (*repeated(power, POWERS), *whole, *last)

    compared = not (tiles.is_native_16 or tiles.is_mixed)
    return InstructionLists({core: of_core(core) for core in range(tiles.cores)}, compared)

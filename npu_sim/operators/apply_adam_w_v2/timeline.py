"""Timeline of ApplyAdamWV2 on A2 and A3.

The vector instructions of a tile are written once, as (kind, whether it has two sources); bound and
estimate read the same list.

Source: specification page ``apply_adam_w_v2``, section "Vector instructions of a tile".
"""

from collections.abc import Callable, Iterator
from functools import cache

from npu_sim.framework.vocabulary import FP32_BYTES, Plan, TensorSpec, Text, ceil_div
from npu_sim.operators.apply_adam_w_v2.compute import STATE
from npu_sim.operators.shared.timelines import RATES
from npu_sim.tiling.apply_adam_w_v2 import FP32_KEY, TILE_ELEMENTS
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
    ranged,
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


TileOf = Callable[[int], tuple[Node, ...]]
"""Function that returns the work of a tile of so many elements."""


def _kinds(plan: Plan) -> tuple[str, ...]:
    """Return the kinds of the instructions of a tile, in their order."""
    is_native_16, is_mixed = plan.tiling["tilingKey"] < FP32_KEY, plan.path == "mixed"
    amsgrad = plan.arguments["amsgrad"]
    narrows_norm = amsgrad and (is_native_16 or is_mixed)
    return (
        *(WIDENING,) * (4 if is_native_16 else is_mixed),
        *("muls",) * plan.arguments["maximize"],
        *MOMENTS,
        *(WIDENING,) * narrows_norm,
        *("max",) * amsgrad,
        *UPDATE[:3],
        *(NARROWING,) * narrows_norm,
        *UPDATE[3:],
        *(NARROWING,) * (3 * is_native_16),
    )


def elements_of(plan: Plan) -> int:
    """Return the elements of var."""
    return TensorSpec.parse(plan.arguments["var"]).numel


def _tiles_of_core(plan: Plan, core: int) -> tuple[range, int]:
    """Return the numbers of a core's tiles, and the elements of the last of all if it is one."""
    elements = elements_of(plan)
    tiles = ceil_div(elements, TILE_ELEMENTS)
    numbers = range(core, tiles, plan.block_dim)
    return numbers, (numbers[-1] == tiles - 1) * (elements - (tiles - 1) * TILE_ELEMENTS)


def program_of(
    plan: Plan, kinds: tuple[str, ...], nodes: Callable[[int, TileOf], Iterator[Node]], note: str
) -> Program:
    """Return the work of every core.

    - ``kinds``: instructions of a tile that are counted; ``note`` says which are not.
    - ``nodes(core, tile)``: work of a core, given the function that returns that of a tile.
    """
    total, is_cast = elements_of(plan), plan.path == "cast"
    read = {
        name: FP32_BYTES if is_cast else TensorSpec.parse(plan.arguments[name]).itemsize
        for name in (*STATE, "grad")
        if name in plan.arguments and (name != "max_grad_norm" or plan.arguments["amsgrad"])
    }
    written = {f"{name}_out": size for name, size in read.items() if name in STATE}

    def copies(sizes: dict[str, int], elements: int) -> tuple[Work, ...]:
        return tuple(
            Copy(size * elements, elements, tensor_bytes=size * total) for size in sizes.values()
        )

    @cache
    def tile(elements: int) -> tuple[Node, ...]:
        vector = tuple(Instruction(RATES[kind], "float32", elements) for kind in kinds)
        return (vector_tile(copies(read, elements), vector, copies(written, elements), STEP),)

    cores = {core: tuple(nodes(core, tile)) for core in range(plan.block_dim)}
    views = tuple(View(name, total, 1, {"elements": 1}) for name in (*read, *written))
    return Program((vector_phase("tiles", cores, 2, 2),), not_counted=(note,), views=views)


def program(plan: Plan) -> Program:
    """Return the work of every core."""

    def nodes(core: int, tile: TileOf) -> Iterator[Node]:
        numbers, last = _tiles_of_core(plan, core)
        if len(numbers) > SHOWN_TILES:
            yield Loop(tile(TILE_ELEMENTS), len(numbers) - bool(last))
            if last:
                yield Loop(tile(last), 1)
            return
        for start in (number * TILE_ELEMENTS for number in numbers):
            stop = min(start + TILE_ELEMENTS, elements_of(plan))
            yield from ranged("elements", start, stop, TILE_ELEMENTS, tile)

    return program_of(plan, _kinds(plan), nodes, Text("the two powers, once a core"))


def instructions(plan: Plan) -> InstructionLists:
    """Return the vector instructions of every core; fp32 was compared with a device."""
    repeats = MIXED_REPEATS if plan.path == "mixed" else WIDE_REPEATS
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
            for kind in _kinds(plan)
        )

    def of_core(core: int) -> Issues:
        numbers, last = _tiles_of_core(plan, core)
        whole = repeated(tile(TILE_ELEMENTS), len(numbers) - bool(last))
        return (*repeated(power, POWERS), *whole, *(tile(last) if last else ()))

    is_fp32 = plan.tiling["tilingKey"] in (FP32_KEY, FP32_KEY + 1)
    return InstructionLists({core: of_core(core) for core in range(plan.block_dim)}, is_fp32)

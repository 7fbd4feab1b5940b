"""Timeline of ApplyAdamWV2 on A2 and A3.

The vector instructions of a tile are written once, as (kind, whether it has two sources); bound and
estimate read the same list.

Source: specification page ``apply_adam_w_v2``, section "Vector instructions of a tile".
"""

from collections.abc import Callable
from functools import cache

from npu_sim.framework.vocabulary import FP32_BYTES, Plan, TensorSpec, Text
from npu_sim.operators.shared.instructions import SHOWN_TILES, in_fp32
from npu_sim.tiling.apply_adam_w_v2 import FP32_KEY, STATE, TILE_ELEMENTS
from npu_sim.timelines import (
    NARROWING,
    WIDENING,
    Copy,
    InstructionLists,
    Issue,
    Issues,
    Loop,
    Nodes,
    Program,
    Step,
    View,
    Works,
    full_repeats,
    repeated,
    vector_phase,
    vector_tile,
)

TWO_SOURCES = ("mul", "add", "sub", "max", "div")
"""Kinds with two sources; all buffers of a tile have equal alignment."""
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
WIDE_REPEATS, MIXED_REPEATS = 16, 9
"""Repeats of one further duplicate of the power function; the second with mixed dtypes."""
STEP = Step(
    "tile",
    "m', v', then var' = var*decay - m' / (root(v')*inv_root + eps) * size",
    ("var", "m", "v", "grad"),
    ("var_out", "m_out", "v_out"),
    live=("inputs", "outputs"),
)


TileOf = Callable[[int], Nodes]
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


def program_of(
    plan: Plan, kinds: tuple[str, ...], cores_of: Callable[[TileOf], dict[int, Nodes]], note: str
) -> Program:
    """Return the work of every core.

    - ``kinds``: instructions of a tile that are counted; ``note`` says which are not.
    - ``cores_of(tile)``: work of every core, given the function that returns that of a tile.
    """
    total = TensorSpec.parse(plan.arguments["var"]).numel
    read = {
        name: FP32_BYTES if plan.path == "cast" else TensorSpec.parse(plan.arguments[name]).itemsize
        for name in (*STATE, "grad")
        if name in plan.arguments and (name != "max_grad_norm" or plan.arguments["amsgrad"])
    }
    written = {f"{name}_out": size for name, size in read.items() if name in STATE}

    def copies(sizes: dict[str, int], elements: int) -> Works:
        return tuple(
            Copy(size * elements, elements, tensor_bytes=size * total) for size in sizes.values()
        )

    @cache
    def tile(elements: int) -> Nodes:
        return (
            vector_tile(
                copies(read, elements), in_fp32(kinds, elements), copies(written, elements), STEP
            ),
        )

    views = tuple(View(name, total, 1, {"elements": 1}) for name in (*read, *written))
    phase = vector_phase("tiles", cores_of(tile), 2, 2)
    return Program((phase,), not_counted=(note,), views=views)


def _sizes(plan: Plan, core: int) -> tuple[tuple[int, int], ...]:
    """Return the sizes of a core's tiles, with their number; the last of all may be shorter."""
    longer = plan.tiling["handleExtraLoopCoreNum"]
    has_last = core == longer - 1
    whole = plan.tiling["loopNumPerCore"] + (core < longer) - has_last
    return (TILE_ELEMENTS, whole), (plan.tiling["numLastLoop"], int(has_last))


def program(plan: Plan) -> Program:
    """Return the work of every core."""

    def nodes(core: int, tile: TileOf) -> Nodes:
        sizes = _sizes(plan, core)
        if sum(count for _, count in sizes) > SHOWN_TILES:
            return tuple(Loop(tile(size), count) for size, count in sizes if count)
        lengths = (size for size, count in sizes for _ in range(count))
        return tuple(
            Loop(
                tile(length), 1, "elements", length, TILE_ELEMENTS * (core + turn * plan.block_dim)
            )
            for turn, length in enumerate(lengths)
        )

    return program_of(
        plan,
        _kinds(plan),
        lambda tile: {core: nodes(core, tile) for core in range(plan.block_dim)},
        Text("the two powers, once a core"),
    )


def instructions(plan: Plan) -> InstructionLists:
    """Return the vector instructions of every core; fp32 was compared with a device."""
    power = (
        *(Issue(kind, 1, times=times) for kind, times in POWER.items()),
        Issue("duplicate", MIXED_REPEATS if plan.path == "mixed" else WIDE_REPEATS),
    )

    @cache
    def tile(elements: int) -> Issues:
        return tuple(
            full_repeats(kind, elements, 0, 0, between="two buffers of a tile")
            if kind in TWO_SOURCES
            else full_repeats(kind, elements)
            for kind in _kinds(plan)
        )

    cores = {
        core: sum(
            (repeated(tile(size), count) for size, count in _sizes(plan, core)), repeated(power, 2)
        )
        for core in range(plan.block_dim)
    }
    return InstructionLists(cores, plan.tiling["tilingKey"] in (FP32_KEY, FP32_KEY + 1))

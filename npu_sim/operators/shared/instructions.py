"""Vector instructions as timelines list them: their rates, and the places of their operands."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from npu_sim.framework.vocabulary import Plan, ceil_div, joined
from npu_sim.timelines import (
    LANES,
    NARROWING,
    SUM_OF_BLOCKS,
    WIDENING,
    Instruction,
    InstructionLists,
    Issue,
    Issues,
    Program,
    Works,
    full_repeats,
    rows_of_cores,
    weighted_work,
)

RATES = {
    **dict.fromkeys(("muls", "adds"), "adds_muls_maxs_mins"),
    **dict.fromkeys(("exp", "square root", "div"), "exp_ln_sqrt_div"),
    **dict.fromkeys(("mul", "add", "sub", "max"), "add_sub_mul_max_min"),
    "duplicate": "duplicate_create_index",
    WIDENING: "cast_16_to_32",
    NARROWING: "cast_32_to_16",
    "sum of a repeat": "reduce_repeat",
    "broadcast to blocks": "broadcast_block_out",
    "copy": "copy",
    "gather": "gather",
}
"""Rate by kind of instruction, of fp32 elements; those of copy and gather are not published."""

SHOWN_TILES = 40
"""Most tiles of a core that are listed in their order, with their place; more are only counted."""


def in_fp32(kinds: Iterable[str], elements: int) -> Works:
    """Return an instruction of each kind on fp32 elements, at its published rate."""
    return tuple(Instruction(RATES[kind], "float32", elements) for kind in kinds)


def placed(kind: str, elements: int, starts: Mapping[str, int], sources: Sequence[str]) -> Issue:
    """Return an instruction whose two sources are at the start of these buffers."""
    return full_repeats(
        kind, elements, *(starts[name] for name in sources), between=joined(sources, " and ")
    )


KINDS = {
    "adds_muls_maxs_mins": "adds",
    "exp_ln_sqrt_div": "exp",
    "add_sub_mul_max_min": "mul",
    "reduce_repeat": "sum of a repeat",
    "reduce_pair_or_block": SUM_OF_BLOCKS,
    "cast_16_to_32": WIDENING,
    "cast_32_to_16": NARROWING,
}
"""Kind of instruction by its rate; those of one rate start up alike, within two cycles."""


def instructions_of(program: Program) -> InstructionLists:
    """Return the vector instructions of a program, without bank conflicts."""
    cores: dict[int, Issues] = {}
    for phase in program.phases:
        for nodes, alike in phase.cores_by_work.items():
            issues = tuple(
                Issue(KINDS[work.kind], ceil_div(work.elements, LANES), times=times * work.times)
                for times, _, work in weighted_work(nodes)
                if isinstance(work, Instruction)
            )
            cores |= {core: (*cores.get(core, ()), *issues) for core in alike}
    return InstructionLists(cores, compared=False)


def buffer_sizes(plan: Plan) -> Mapping[str, int]:
    """Return the bytes of every buffer of a core by name."""
    return {buffer.name: buffer.bytes for buffer in plan.memories[0].allocations}


def instructions_by_core(
    plan: Plan, instructions_for: Callable[[int], Issues], compared: bool
) -> InstructionLists:
    """Return the instructions of every core, given those of a number of rows."""
    row_counts = {core: stop - start for core, (start, stop) in rows_of_cores(plan).items()}
    lists = {count: instructions_for(count) for count in set(row_counts.values())}
    return InstructionLists({core: lists[count] for core, count in row_counts.items()}, compared)

"""Timeline of MoeTokenPermute on Ascend 950.

Source: specification page ``moe_token_permute_950``.
"""

from npu_sim.framework.vocabulary import Plan, TensorSpec
from npu_sim.timelines import (
    Copy,
    Instruction,
    Nodes,
    Program,
    Step,
    View,
    fp32,
    ranged_cores,
    vector_phase,
    vector_tile,
)

NOT_COUNTED = ("the threads that write places", "barriers")
"""Work that the bound leaves out."""
IDS = Step(
    "ids", "ids are copied in and sorted; their places are copied out", ("indices",), live=("sort",)
)
ROWS = Step(
    "rows",
    "entries {rows}: rows of tokens are copied to their places",
    ("tokens",),
    ("permuted_tokens",),
    live=("move",),
)


def program(plan: Plan) -> Program:
    """Return the copies of every core, in a phase that sorts ids and one that moves rows.

    Each token is read once; dropped rows are not written.
    """
    tokens, indices = (TensorSpec.parse(plan.arguments[name]) for name in ("tokens", "indices"))
    columns, entries = tokens.shape[1], indices.numel
    written = (tensor for launch in plan.launches for tensor in launch.outputs)
    kept = next(tensor.shape[0] for tensor in written if tensor.name == "permuted_tokens")
    sort = plan.tiling["vbsComputeParamsOp"]
    size, entries_per_core = tokens.itemsize * columns, sort["perCoreElements"]
    cores: dict[int, Nodes] = {}
    for core in range(sort["needCoreNum"]):
        core_entries = max(min(entries_per_core, entries - core * entries_per_core), 0)
        cores[core] = (
            vector_tile(
                (Copy(indices.itemsize * core_entries, core_entries),),
                (Instruction("sort_and_merge", "float32", core_entries),),
                (Copy(fp32.BYTES * core_entries, core_entries),),
                IDS,
            ),
        )

    def rows(count: int) -> Nodes:
        places = Copy(fp32.BYTES * count, count)
        read = Copy(size, columns, max(1, count * tokens.shape[0] // entries), tokens.nbytes)
        written_rows = count * kept // entries
        out: tuple[Copy, ...] = (
            (Copy(size, columns, written_rows, kept * size),) if written_rows and columns else ()
        )
        return (vector_tile((places, read) if columns else (places,), (), out, ROWS),)

    moves = ranged_cores(plan, "rows", max(1, entries // plan.block_dim), rows)
    return Program(
        (vector_phase("sort", cores), vector_phase("move", moves)),
        NOT_COUNTED,
        ("dropped rows are spread evenly",),
        views=(
            View("tokens", tokens.shape[0], columns),
            View("indices", entries, by_row={"rows": 1}),
            View("permuted_tokens", entries, columns, by_row={"rows": 1}),
        ),
    )

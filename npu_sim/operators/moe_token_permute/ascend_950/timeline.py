"""Timeline of MoeTokenPermute on Ascend 950: copies of ids, places and rows by core.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``moe_token_permute_950``, "Stages".
"""

from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Plan
from npu_sim.timelines import fp32
from npu_sim.timelines.program import Copy, Node, Program, ranged_cores, vector_phase, vector_tile
from npu_sim.timelines.steps import Step, StepTable, View

NOT_COUNTED = ("sorting and merging", "the threads that write places", "barriers")
"""Work that the bound leaves out."""


def _specs(plan: Plan) -> tuple[TensorSpec, TensorSpec]:
    tokens, indices = (TensorSpec.parse(plan.arguments[name]) for name in ("tokens", "indices"))
    return tokens, indices


def program(plan: Plan) -> Program:
    """Return the copies of every core, in a phase that sorts ids and one that moves rows.

    Each token is read once; dropped rows are not written.
    """
    tokens, indices = _specs(plan)
    columns, entries = tokens.shape[1], indices.numel
    written = (tensor for launch in plan.launches for tensor in launch.outputs)
    kept = next(tensor.shape[0] for tensor in written if tensor.name == "permuted_tokens")
    sort = plan.tiling["vbsComputeParamsOp"]
    size, entries_per_core = tokens.itemsize * columns, sort["perCoreElements"]
    cores: dict[int, tuple[Node, ...]] = {}
    for core in range(sort["needCoreNum"]):
        core_entries = max(min(entries_per_core, entries - core * entries_per_core), 0)
        read, places = (
            Copy(indices.itemsize * core_entries, core_entries),
            Copy(fp32.BYTES * core_entries, core_entries),
        )
        cores[core] = (vector_tile((read,), (), (places,), note="ids"),)

    def rows(count: int) -> tuple[Node, ...]:
        places = Copy(fp32.BYTES * count, count)
        read = Copy(size, columns, max(1, count * tokens.shape[0] // entries), tokens.nbytes)
        written_rows = count * kept // entries
        out: tuple[Copy, ...] = ()
        if written_rows and columns:
            out = (Copy(size, columns, written_rows, kept * size),)
        return (vector_tile((places, read) if columns else (places,), (), out, note="rows"),)

    moves = ranged_cores(plan, "rows", max(1, entries // plan.block_dim), rows)
    phases = (vector_phase("sort", cores), vector_phase("move", moves))
    return Program(phases, NOT_COUNTED, ("dropped rows are spread evenly",))


def steps(plan: Plan) -> StepTable:
    """Return the descriptions of the tiles."""
    tokens, indices = _specs(plan)
    by_row = {"rows": 1}
    views = (
        View("tokens", tokens.shape[0], tokens.shape[1]),
        View("indices", indices.numel, by_row=by_row),
        View("permuted_tokens", indices.numel, tokens.shape[1], by_row=by_row),
    )
    ids = "ids are copied in and sorted; their places are copied out"
    rows = "entries {rows}: rows of tokens are copied to their places"
    table = {
        ("sort", "ids"): Step(ids, ("indices",), live=("sort",)),
        ("move", "rows"): Step(rows, ("tokens",), ("permuted_tokens",), live=("move",)),
    }
    return StepTable(views, table)

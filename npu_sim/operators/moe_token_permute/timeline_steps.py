"""What the tiles of MoeTokenPermute hold and move.

Source: specification page ``moe_token_permute``, "Instructions and copies, for the timeline".
"""

from npu_sim.plans.model import Plan
from npu_sim.timelines.steps import Step, StepTable, View

SORTING = ("ids", "positions", "result", "sorted")
KEYS = {"ids": "ids", "order": "places that the first sort has left"}
"""What is sorted: the experts' numbers, then the order that came out, which gives every copy its
place."""


def steps(plan: Plan) -> StepTable:
    """Return what every tile of the program holds and moves."""
    tokens, top_k, columns = plan.tiling["n"], plan.tiling["topK"], plan.tiling["cols"]
    kept = plan.tiling["indexCopyComputeParamsOp"]["numOutTokens"]
    entries = {"tokens": top_k, "rows": top_k, "ids": 1}
    views = (
        View("tokens", tokens, columns, {"tokens": 1, "rows": 1}, {"columns": 1}),
        View("indices", tokens * top_k, by_row={"ids": 1}),
        View("sorted_indices", tokens * top_k, by_row=entries),
        View("permuted_tokens", kept, columns, by_column={"columns": 1}),
    )
    out = ("permuted_tokens",)
    found = {
        ("move rows", "places"): Step(
            "tokens {tokens}: where each of their copies goes",
            ("sorted_indices",),
            live=("places",),
        ),
        ("move rows", "rows"): Step(
            "rows {rows} of these tokens, columns {columns}: in once, and out once for every expert of the token",
            ("tokens",),
            out,
            ("sorted_indices",),
            ("rows", "places"),
            out,
        ),
    }
    memories: dict[str, str] = {}
    for what, keys in KEYS.items():
        reads = ("indices",) if what == "ids" else ()
        written = ("sorted_indices",) if what == "order" else ()
        piece = f"{keys} {{ids}} become fp32 times -1 and are sorted, with their positions"
        found |= {
            (f"sort {what}", ""): Step(
                f"all {keys} become fp32 times -1 and are sorted in one piece",
                reads,
                written,
                live=SORTING,
            ),
            (f"sort {what}", "positions"): Step("positions are counted up", live=("positions",)),
            (f"sort {what}", "piece"): Step(piece, reads, live=SORTING),
            (f"sort {what}", "merge"): Step(
                "entries {entries}: up to four sorted pieces of this core are merged", live=SORTING
            ),
            (f"merge {what}", "merge"): Step(
                "entries {entries}: sorted lists of up to four cores are merged", live=SORTING
            ),
            (f"merge last {what}", "merge"): Step(
                "entries {entries}: the last lists are merged, positions go out",
                writes=written,
                live=SORTING,
                by_data=written,
            ),
        }
        memories |= {f"{kind} {what}": "sort" for kind in ("sort", "merge", "merge last")}
    return StepTable(views, found, memories)

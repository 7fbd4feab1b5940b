"""What the tiles of MoeTokenUnpermuteGrad hold and add.

Source: specification page ``moe_token_unpermute_grad``, "Instructions and copies of a tile".
"""

from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Plan
from npu_sim.timelines.steps import Step, StepTable, View

PROBS = ("probs", "probs in fp32", "probs gradients", "sums", "piece sums", "reserved")
ROWS = (
    "g rows",
    "token rows",
    "result rows",
    "token row in fp32",
    "g in fp32",
    "row products",
    *PROBS,
)


def steps(plan: Plan) -> StepTable:
    """Return what every tile of the program holds and adds."""
    grad = TensorSpec.parse(plan.arguments["unpermuted_tokens_grad"])
    top_k, (tokens, columns) = plan.tiling["topK"], grad.shape
    rows = TensorSpec.parse(plan.arguments["permuted_tokens"]).shape[0]
    by_token, by_column = {"tokens": 1, "entries": 1 / top_k, "token": 1}, {"columns": 1}
    views = [
        View("unpermuted_tokens_grad", tokens, columns, by_token, by_column),
        View("permuted_tokens", rows, columns, by_column=by_column),
        View(
            "sorted_indices",
            tokens * top_k,
            by_row={"tokens": top_k, "entries": 1, "token": top_k, "expert": 1},
        ),
        View("permuted_tokens_grad", rows, columns, by_column=by_column),
    ]
    if "probs" not in plan.arguments:
        return StepTable(tuple(views), _copies())
    by_entry = {"expert": 1}
    views += [
        View("probs", tokens, top_k, by_token, by_entry),
        View("probs_grad", tokens, top_k, by_token, by_entry),
    ]
    return StepTable(tuple(views), _sums())


def _copies() -> dict[tuple[str, str], Step]:
    written = ("permuted_tokens_grad",)
    moved = (
        "entries {entries}, columns {columns}: rows of the gradient go to where their indices say"
    )
    return {
        ("entries", "indices"): Step(
            "entries {entries}: where their rows are", ("sorted_indices",), live=("indices",)
        ),
        ("entries", "rows"): Step(
            moved,
            ("unpermuted_tokens_grad",),
            written,
            ("sorted_indices",),
            ("indices", "g rows"),
            written,
        ),
    }


def _sums() -> dict[tuple[str, str], Step]:
    where = "token {token} of entries {entries}, columns {columns}"
    held, read, written = (
        ("probs", "sorted_indices"),
        ("permuted_tokens",),
        ("permuted_tokens_grad",),
    )
    product = "the entry's sum += g * row of the experts, folded to one number"
    return {
        ("entries", "probs"): Step(
            "entries {entries}: their probs come in, the sums are cleared",
            ("probs", "sorted_indices"),
            live=PROBS,
        ),
        ("entries", "g"): Step(
            f"{where}: its row g of the gradient comes in",
            ("unpermuted_tokens_grad",),
            (),
            held,
            ROWS,
        ),
        ("entries", "row of the gradient"): Step(
            f"{where}, expert {{expert}}: g * probs goes out", (), written, held, ROWS, written
        ),
        ("entries", "row of the experts"): Step(
            f"{where}, expert {{expert}}: {product}", read, (), held, ROWS, read
        ),
        ("entries", "no row"): Step(
            f"{where}, expert {{expert}}: a dropped row, nothing goes out", (), (), held, ROWS
        ),
        ("entries", "zeros for a row"): Step(
            f"{where}, expert {{expert}}: a dropped row counts as zeros", (), (), held, ROWS
        ),
        ("entries", "sums"): Step(
            "entries {entries}: the sums of these columns are added to those of the columns before",
            (),
            (),
            held,
            PROBS,
        ),
        ("entries", "gradient of probs"): Step(
            "entries {entries}: their sums are rounded and go out", (), ("probs_grad",), held, PROBS
        ),
    }

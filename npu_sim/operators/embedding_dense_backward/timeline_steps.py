"""What the tiles of EmbeddingDenseBackward hold and add.

Source: specification page ``embedding_dense_backward``, "Tiling" and "Kernels and accumulation order".
"""

from math import prod

from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Plan
from npu_sim.timelines.step_table import Step, StepTable, View

BATCH = ("indices", "positions", "indices as fp32", "sort scratch", "sort result", "gradient rows")
LIST = ("sorted index", "position", "frequency")
SCALED = ("row in", "counter", "row out")
OLDER = ("indices", "counters", "gradient rows", "accumulator row")


def steps(plan: Plan) -> StepTable:
    """Return what every tile of the program holds and adds."""
    grad = TensorSpec.parse(plan.arguments["grad"])
    rows, dim, weights = prod(grad.shape[:-1]), grad.shape[-1], plan.arguments["num_weights"]
    by_row, by_column = {"rows": 1, "sorted rows": 1, "indices": 1, "row": 1}, {"columns": 1}
    views = (
        View("grad", rows, dim, by_row, by_column),
        View("indices", rows, by_row=by_row),
        View("grad_weight", weights, dim, {"weight rows": 1}, by_column),
    )
    if plan.kernel == "EmbeddingDenseGrad":
        found = _weights_split() if plan.tiling["splits_weights"] else _rows_split()
    else:
        found = _batches() if (plan.tiling_key or 0) >= 100 else _sorted_list()
    return StepTable(views, found | {("scale", ""): _scale()})


def _scale() -> Step:
    return Step(
        "weight row {weight rows}: grad_weight times 1 / how often its index occurs",
        ("grad_weight",),
        ("grad_weight",),
        live=SCALED,
    )


def _batches() -> dict[tuple[str, str], Step]:
    """A batch that fills the Unified Buffer; equal indices are neighbours once it is sorted."""
    come = "rows {rows} come in, their indices are sorted"
    add = "rows of one index are added up in the accumulator, which is added atomically to that row of grad_weight"
    written, live = ("grad_weight",), (*BATCH, "accumulator")
    return {
        ("rows", ""): Step(
            f"{come}; {add}", ("grad", "indices"), written, live=live, by_data=written
        ),
        ("rows", "widen"): Step(
            f"{come}, gradients are widened to fp32", ("grad", "indices"), live=BATCH
        ),
        ("rows", "add"): Step(
            f"rows {{rows}}: {add}", (), written, ("grad", "indices"), live, written
        ),
    }


def _sorted_list() -> dict[tuple[str, str], Step]:
    """Rows of a list that an earlier launch sorted by index: which row of grad it is, the list says."""
    held, row = (
        ("gradient row", "accumulators", "cache row"),
        "row {row} of sorted rows {sorted rows}, columns {columns}",
    )
    add = f"{row}: accumulator += its row of grad, in the order of the list"
    chosen = ("grad",)
    return {
        ("rows", "indices"): Step(
            "sorted rows {sorted rows}: their indices and positions come in, the accumulator is cleared",
            ("indices",),
            live=(*LIST, "accumulators", "cache row"),
        ),
        ("rows", "row"): Step(add, chosen, (), ("indices",), (*LIST, *held), chosen),
        ("rows", "widen"): Step(
            f"{row}: its row of grad comes in and is widened",
            chosen,
            (),
            ("indices",),
            (*LIST, *held),
            chosen,
        ),
        ("rows", "add"): Step(add, (), (), ("indices",), (*LIST, *held)),
        ("rows", "flush"): Step(
            "what was added up of one index, at most this many rows of it, goes to its row of grad_weight",
            (),
            ("grad_weight",),
            (),
            (*LIST, "accumulators", "cache row"),
            ("grad_weight",),
        ),
        ("rows", "stage rows"): Step(
            "the first and the last index may go on in another core: their sums go to the workspace",
            live=("accumulators", "cache row"),
        ),
    }


def _rows_split() -> dict[tuple[str, str], Step]:
    """EmbeddingDenseGrad: every row is an atomic copy of its own."""
    says = "rows {rows} come in; every row is added atomically to the row of grad_weight that its index names"
    return {
        ("rows", ""): Step(
            says, ("grad", "indices"), ("grad_weight",), live=OLDER, by_data=("grad_weight",)
        )
    }


def _weights_split() -> dict[tuple[str, str], Step]:
    """EmbeddingDenseGrad: a core owns rows of the result, and looks for their indices among all."""
    chosen = ("grad", "grad_weight")
    return {
        ("count", "scan"): Step(
            "indices {indices}: those of this core's weight rows {weight rows} are counted",
            ("indices",),
            live=("indices", "counters"),
        ),
        ("add", "scan"): Step(
            "indices {indices} are looked through for this core's weight rows {weight rows}",
            ("indices",),
            live=("indices", "counters"),
        ),
        ("add", "row"): Step(
            "a row with such an index, times 1 / its count, is added to its row of grad_weight",
            ("grad",),
            ("grad_weight",),
            live=OLDER,
            by_data=chosen,
        ),
    }

"""Tensors of rows of classes with labels, as reports draw them."""

from collections.abc import Mapping

from npu_sim.framework.vocabulary import Plan, TensorSpec
from npu_sim.timelines import View


def tensor_views(
    plan: Plan, logits: str, loss: str, result: str, by_weight: Mapping[str, float] | None = None
) -> tuple[View, ...]:
    """Return the tensors in the order in which they are drawn.

    - ``logits``, ``result``: names of the tensors (N, C) that are read and written.
    - ``loss``: name of the tensor of losses or of their gradients.
    - ``by_weight``: axis that steps over the weights of classes; None where labels look them up.
    """
    rows, columns = TensorSpec.parse(plan.arguments[logits]).shape
    by_row, by_column = {"rows": 1}, {"columns": 1}
    by_loss = by_row if plan.arguments["reduction"] == "none" else {}
    has_weight = plan.arguments.get("weight") is not None
    return (
        View(logits, rows, columns, by_row, by_column),
        View("target", rows, by_row=by_row),
        *((View("weight", 1, columns, by_column=by_weight or {}),) if has_weight else ()),
        View(loss, rows if by_loss else 1, by_row=by_loss),
        View(result, rows, columns, by_row, by_column),
    )

"""Sums over rows with labels, and the function of torch_npu that dumps have."""

from collections.abc import Callable, Iterable, Mapping

from npu_sim.framework.vocabulary import Range
from npu_sim.operators.shared.study import DumpedTensor, Function, Tree, Values, trees

CROSS_ENTROPY = Function(
    ("npu_cross_entropy_loss",),
    ("input", "target", "weight", "reduction", "ignore_index", "label_smoothing"),
    ("input",),
)
DEFAULTS = {"weight": None, "reduction": "mean", "ignore_index": -100, "label_smoothing": 0.0}
"""Arguments of that function that a call may leave out."""


def label_ranges(logits: str, arguments: Values) -> Mapping[str, tuple[int, tuple[int, ...]]]:
    """Return the number of classes and the label outside of them, where ``logits`` has a shape."""
    tensor = arguments.get(logits)
    if not isinstance(tensor, DumpedTensor) or not tensor.shape:
        return {}
    return {"target": (tensor.shape[-1], (arguments["ignore_index"],))}


def sums_in_passes(
    ranges: Iterable[Range], rows: int, add: Callable[[trees.Values], Tree | None]
) -> list[Tree | None]:
    """Return the tree of every core of Ascend 950, which adds so many of its rows at a time."""
    return [
        trees.left_fold([add(part) for part in trees.cut(range(*core), rows)]) for core in ranges
    ]

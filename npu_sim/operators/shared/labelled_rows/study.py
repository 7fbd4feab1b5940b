"""Function of torch_npu that calls CrossEntropyLoss, and its gradient, as dumps have it."""

from collections.abc import Mapping

from npu_sim.operators.shared.study import DumpedTensor, Function, Values

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

"""Function of torch_npu that calls CrossEntropyLoss, and its gradient, as dumps have it."""

from npu_sim.operators.shared.study import Function

CROSS_ENTROPY = Function(
    ("npu_cross_entropy_loss",),
    ("input", "target", "weight", "reduction", "ignore_index", "label_smoothing"),
    ("input",),
)
DEFAULTS = {"weight": None, "reduction": "mean", "ignore_index": -100, "label_smoothing": 0.0}
"""Arguments of that function that a call may leave out."""

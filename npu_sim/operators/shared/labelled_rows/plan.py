"""Path of a plan for rows of classes with labels.

Source: specification pages ``cross_entropy_loss`` and ``cross_entropy_loss_grad``.
"""

from npu_sim.framework.vocabulary import Case, Text, to_fp32


def path_of(case: Case, row: str) -> str:
    """Return the path of a plan; ``row`` describes how a row passes through the buffer."""
    return Text(
        "{row}, {reduction}, {weight}{smoothing}",
        row=row,
        reduction=case.arguments.reduction,
        weight="with weight" if case.row.weighted else "no weight",
        smoothing=Text(", label smoothing") if to_fp32(case.arguments.label_smoothing) > 0 else "",
    )

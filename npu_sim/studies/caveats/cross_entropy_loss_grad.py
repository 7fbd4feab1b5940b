"""Documented caveats of CrossEntropyLossGrad as experiments."""

from typing import Any

import numpy as np

from npu_sim.language import Text, joined
from npu_sim.operators import run
from npu_sim.studies.caveats.experiment import Caveat, Numbers

OPERATOR = "cross_entropy_loss_grad"
EXACT_INTEGERS = 16777216
"""2^24: from here on fp32 does not hold every integer."""


def _label_aliasing() -> Numbers:
    classes, ignored = EXACT_INTEGERS + 8, EXACT_INTEGERS
    log_prob, labels = (
        np.full((3, classes), -17.0, np.float32),
        np.array([ignored + 1, ignored + 2, 5]),
    )
    call: dict[str, Any] = {
        "grad_loss": np.float32(1),
        "log_prob": log_prob,
        "target": labels,
        "reduction": "sum",
        "ignore_index": ignored,
    }
    gradient = run(OPERATOR, **call).outputs["x_grad"]
    return {
        "ignore_index": ignored,
        "labels": labels.tolist(),
        "masked": [not row.any() for row in gradient],
    }


def _explain_label_aliasing(numbers: Numbers) -> list[str]:
    labels = joined(
        (
            Text("{label} {value}", label=label, value="masked" if masked else "kept")
            for label, masked in zip(numbers["labels"], numbers["masked"], strict=True)
        ),
        ", ",
    )
    return [
        Text(
            "ignore_index = {ignore_index}; labels: {said}",
            ignore_index=numbers["ignore_index"],
            said=labels,
        ),
        "labels and ignore_index are compared in fp32, where neighbours above 2^24 are one number",
    ]


def _all_ignored() -> Numbers:
    call: dict[str, Any] = {
        "grad_loss": np.float32(1),
        "log_prob": np.full((4, 3), -1.0, np.float32),
        "target": np.full(4, 2),
        "ignore_index": 2,
    }
    gradients = {
        reduction: run(OPERATOR, reduction=reduction, **call).outputs["x_grad"]
        for reduction in ("mean", "sum")
    }
    return {
        reduction: "nan" if np.isnan(values).all() else float(np.abs(values).max())
        for reduction, values in gradients.items()
    }


def _explain_all_ignored(numbers: Numbers) -> list[str]:
    return [
        Text(
            "every label ignored: mean gives {mean} everywhere (0 divided by a weight of 0), sum "
            "gives {sum}",
            mean=numbers["mean"],
            sum=numbers["sum"],
        )
    ]


CAVEATS: tuple[Caveat, ...] = (
    Caveat(
        "label-aliasing",
        "labels alias with ignoreIndex above 2^24",
        "CrossEntropyLossGrad, ignoreIndex",
        _label_aliasing,
        _explain_label_aliasing,
    ),
    Caveat(
        "all-ignored",
        "mean over no label is nan",
        "CrossEntropyLossGrad, mean",
        _all_ignored,
        _explain_all_ignored,
    ),
)

"""Documented caveats of CrossEntropyLossGrad as experiments."""

from typing import Any

import numpy as np

from npu_sim.language import Text, joined
from npu_sim.operators import run
from npu_sim.operators.shared.study import Caveat, Numbers
from npu_sim.status import AclnnError

OPERATOR = "cross_entropy_loss_grad"
LATER = "ascend_950"
USUAL_IGNORED = -100
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
            "ignore_index = {ignore_index}; labels: {labels}",
            ignore_index=numbers["ignore_index"],
            labels=labels,
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


def _negative_ignore_index() -> Numbers:
    call: dict[str, Any] = {
        "grad_loss": np.float32(1),
        "log_prob": np.full((2, 3), -1.0, np.float32),
        "target": np.array([1, USUAL_IGNORED]),
        "ignore_index": USUAL_IGNORED,
    }
    gradient = run(OPERATOR, product="atlas_a2", **call).outputs["x_grad"]
    try:
        run(OPERATOR, product=LATER, **call)
        status = 0
    except AclnnError as error:
        status = int(error.status)
    return {
        "ignore_index": USUAL_IGNORED,
        "masked_on_a2": not gradient[1].any(),
        "product": LATER,
        "status": status,
    }


def _explain_negative_ignore_index(numbers: Numbers) -> list[str]:
    return [
        Text(
            "a row with label {ignore_index} = ignore_index: {kept} on atlas_a2, {status} on "
            "{product}",
            ignore_index=numbers["ignore_index"],
            kept="masked" if numbers["masked_on_a2"] else "kept",
            status=numbers["status"],
            product=numbers["product"],
        ),
        "a negative ignore_index masks nothing there: give ignored rows a label from 0 to C - 1 "
        "and set ignore_index to it; read in the public sources, not run on a device",
    ]


CAVEATS: tuple[Caveat, ...] = (
    Caveat(
        "negative-ignore-index",
        "On Ascend 950 a negative ignoreIndex masks nothing",
        "public sources of summer 2026, CrossEntropyLossGrad, ignoreIndex",
        _negative_ignore_index,
        _explain_negative_ignore_index,
        ("negative_ignore_index",),
    ),
    Caveat(
        "label-aliasing",
        "labels alias with ignoreIndex above 2^24",
        "CrossEntropyLossGrad, ignoreIndex",
        _label_aliasing,
        _explain_label_aliasing,
        ("labels_alias", "labels_aliased", "labels_beyond_fp32"),
    ),
    Caveat(
        "all-ignored",
        "mean over no label is nan",
        "CrossEntropyLossGrad, mean",
        _all_ignored,
        _explain_all_ignored,
        ("all_labels_ignored",),
    ),
)

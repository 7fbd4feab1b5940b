"""Slow reference of CrossEntropyLossGrad, written from its specification page.

exp is computed in float64 and rounded to fp32: correctly rounded except in a few of 10^9 cases.
"""

import numpy as np

F = np.float32


def tree64(values):
    """Return the sum as a binary tree of neighbours over 64 lanes; missing lanes are +0."""
    lanes = [F(0)] * 64
    lanes[: len(values)] = values
    while len(lanes) > 1:
        lanes = [lanes[at] + lanes[at + 1] for at in range(0, len(lanes), 2)]
    return lanes[0]


def reduce_sum(values):
    """Return the sum: tree64 of every 64 values, then the block sums in order."""
    values = [F(value) for value in values]
    blocks = [tree64(values[begin : begin + 64]) for begin in range(0, len(values), 64)]
    total = blocks[0]
    for block in blocks[1:]:
        total = total + block
    return total


def core_ranges(rows, cores):
    """Return row ranges: the first rows % cores cores (or all) take ceil(rows, cores)."""
    front = rows % cores or cores
    shares = [-(-rows // cores) if core < front else rows // cores for core in range(cores)]
    ends = np.cumsum([share for share in shares if share])[: min(rows, cores)]
    return [(int(end) - share, int(end)) for end, share in zip(ends, shares, strict=False)]


def x_grad(grad_loss, log_prob, target, weight, reduction, ignore_index, cores):
    """Return the gradient in the dtype of log_prob."""
    rows, columns = log_prob.shape
    gradient = grad_loss.astype(F).reshape(-1)
    labels = [int(label) for label in target]
    masks = [
        F(0) if np.int64(label).astype(F) == np.int64(ignore_index).astype(F) else F(1)
        for label in labels
    ]
    weights = [F(1)] * rows
    if weight is not None:
        weights = [weight[label] if 0 <= label < columns else F(0) for label in labels]
    result = np.empty(log_prob.shape, log_prob.dtype)
    with np.errstate(all="ignore"):
        divisor = F(1)
        if reduction == "mean":
            products = [
                mask if weight is None else mask * own
                for mask, own in zip(masks, weights, strict=True)
            ]
            divisor = reduce_sum(
                [reduce_sum(products[first:last]) for first, last in core_ranges(rows, cores)]
            )
        for row, label in enumerate(labels):
            nll = gradient[row] * F(1) if reduction == "none" else gradient[0] * F(1)
            if reduction == "mean":
                nll = nll / divisor
            nll = nll * masks[row]
            if weight is not None:
                nll = nll * weights[row]
            values = np.exp(log_prob[row].astype(np.float64)).astype(F) * nll
            if 0 <= label < columns:
                values[label] = values[label] - nll
            result[row] = values.astype(log_prob.dtype)
    return result

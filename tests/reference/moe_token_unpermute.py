"""Slow reference of MoeTokenUnpermute and its gradient: row by row, in NumPy fp32.

Written from specification pages ``moe_token_unpermute`` and ``moe_token_unpermute_grad``; uses no
code of the package.
"""

import numpy as np

F = np.float32


@np.errstate(all="ignore")
def unpermute(tokens, indices, probs=None):
    """Return the sum of each token's weighted live rows in k order, from row k = 0 or +0."""
    top_k = 1 if probs is None else probs.shape[1]
    result = np.empty((len(indices) // top_k, tokens.shape[1]), tokens.dtype)
    for token in range(len(result)):
        total = np.zeros(tokens.shape[1], F)
        for k in range(top_k):
            row = indices[token * top_k + k]
            if row >= len(tokens) or (probs is not None and F(probs[token, k]) == 0):
                continue
            values = tokens[row].astype(F)
            if probs is not None:
                values = values * F(probs[token, k])
            total = values if k == 0 else total + values
        result[token] = total.astype(tokens.dtype)
    return result


def fold(values, threshold, width):
    """Halve to at most ``threshold`` values, then add those from ``width`` on to the first."""
    values = list(values)
    half = eight(-(-len(values) // 2))
    while len(values) > threshold:
        values = [
            value + values[half + place] if half + place < len(values) else value
            for place, value in enumerate(values[:half])
        ]
        half = eight(-(-len(values) // 2))
    return [
        value + values[width + place] if width + place < len(values) else value
        for place, value in enumerate(values[:width])
    ]


def eight(number):
    """Return the next multiple of 8."""
    return -(-number // 8) * 8


def tree(values):
    """Return the sum as a binary tree of neighbours."""
    while len(values) > 1:
        values = [left + right for left, right in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def reduce(values):
    """Return the sum of the values of one piece."""
    count = len(values)
    if count < 64:
        return tree([*values, *[F(0)] * (64 - count)])
    width = 4096 if count >= 4096 else 512 if count >= 512 else 64
    return tree(fold(values, 2 * width, width))


@np.errstate(all="ignore")
def unpermute_grad(tokens, grad, indices, probs=None, rows=None, piece=None):
    """Return both gradients; indices at or beyond ``rows`` are dropped, ``piece`` is in columns."""
    rows = len(indices) if rows is None else rows
    top_k = 1 if probs is None else probs.shape[1]
    tokens_grad = np.zeros((rows, grad.shape[1]), grad.dtype)
    probs_grad = None if probs is None else np.empty_like(probs)
    piece = grad.shape[1] if piece is None else piece
    for place, row in enumerate(indices):
        given = grad[place // top_k].astype(F)
        if probs is None:
            if row < rows:
                tokens_grad[row] = grad[place]
            continue
        if row < rows:
            tokens_grad[row] = (given * F(probs.reshape(-1)[place])).astype(grad.dtype)
        values = (tokens[row].astype(F) if row < rows else np.zeros(grad.shape[1], F)) * given
        total = F(0)
        for begin in range(0, len(values), piece):
            total = total + reduce(values[begin : begin + piece])
        probs_grad.reshape(-1)[place] = total.astype(probs.dtype)
    return tokens_grad, probs_grad

"""Slow reference of RmsNormGrad, from page ``rms_norm_grad``: row by row, NumPy float32.

Uses no code of the package.
"""

import numpy as np

F = np.float32


def tree64(lanes):
    lanes = np.concatenate([lanes, np.zeros(64 - len(lanes), F)])
    while len(lanes) > 1:
        lanes = lanes[0::2] + lanes[1::2]
    return lanes[0]


def halving(values):
    values, n = values.copy(), len(values)
    if n <= 64:
        return tree64(values)
    p = 1
    while 2 * p <= n:
        p *= 2
    values[: n - p] += values[p:n]
    while p > 64:
        p //= 2
        values[:p] += values[p : 2 * p]
    return tree64(values[:64])


def lane_strided(values):
    accumulators = np.zeros(64, F)
    for start in range(0, len(values), 64):
        step = values[start : start + 64]
        accumulators[: len(step)] += step
    return tree64(accumulators)


def split_n(dy, x, rstd, gamma, block_factor, lanes):
    """Key 1: return dx in fp32, and the contributions of each core to dgamma."""
    rows, columns = x.shape
    average, dx, contributions = F(1) / F(columns), np.empty_like(x), []
    for first in range(0, rows, block_factor):
        dgamma = np.zeros(columns, F)
        for row in range(first, min(first + block_factor, rows)):
            xh = x[row] * rstd[row]
            dgamma += dy[row] * xh
            g = dy[row] * gamma
            m = (lane_strided(g * xh) if lanes else halving(g * xh)) * average
            dx[row] = (g - xh * m) * rstd[row]
        contributions.append([dgamma])
    return dx, contributions


def split_d(dy, x, rstd, gamma, block_factor):
    """Key 2: like `split_n`, rows in groups of 32, columns in pieces of 4096."""
    rows, columns = x.shape
    average, dx, contributions = F(1) / F(columns), np.empty_like(x), []
    for first in range(0, rows, block_factor):
        of_core = []
        last = min(first + block_factor, rows)
        for group in range(first, last, 32):
            members = range(group, min(group + 32, last))
            dgamma, means = np.zeros(columns, F), {row: F(0) for row in members}
            for begin in range(0, columns, 4096):
                piece = slice(begin, min(begin + 4096, columns))
                for row in members:
                    p = dy[row, piece] * (x[row, piece] * rstd[row])
                    dgamma[piece] += p
                    means[row] = means[row] + halving(p * gamma[piece])
            for row in members:
                t = (x[row] * rstd[row]) * (means[row] * average)
                dx[row] = (dy[row] * gamma - t) * rstd[row]
            of_core.append(dgamma)
        contributions.append(of_core)
    return dx, contributions


def arrival(counts, order):
    """Return the order of arrival as (core, number) pairs."""
    own = [[(core, number) for number in range(count)] for core, count in enumerate(counts)]
    if order == "sequential":
        return [pair for sequence in own for pair in sequence]
    if order == "reverse":
        return [pair for sequence in own[::-1] for pair in sequence]
    assert order == "round_robin"
    return [
        sequence[turn] for turn in range(max(counts)) for sequence in own if turn < len(sequence)
    ]


def merged(contributions, arrived):
    total = np.zeros_like(contributions[0][0])
    for core, number in arrived:
        total = total + contributions[core][number]
    return total


def fixed(contributions):
    """Deterministic mode: sum the contributions of each core, then the cores in order."""
    total = np.zeros_like(contributions[0][0])
    for own in contributions:
        vector = np.zeros_like(total)
        for contribution in own:
            vector = vector + contribution
        total = total + vector
    return total

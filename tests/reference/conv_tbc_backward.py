"""Slow reference of ConvTbcBackward: the formulas in float64, and sums in the simulated order."""

import numpy as np


def gradients(grad, x, weight, pad):
    """Return gradInput, gradWeight and gradBias, computed in float64."""
    grad, x, weight = (tensor.astype(np.float64) for tensor in (grad, x, weight))
    grad_input, grad_weight = np.zeros_like(x), np.zeros_like(weight)
    for tap in range(weight.shape[0]):
        for time in range(grad.shape[0]):
            source = time + tap - pad
            if 0 <= source < x.shape[0]:
                grad_input[source] += grad[time] @ weight[tap].T
                grad_weight[tap] += x[source].T @ grad[time]
    return grad_input, grad_weight, grad.sum(axis=(0, 1))


def fused(a, b, c):
    """Return a * b + c of float32 with one rounding, through exact fractions."""
    from fractions import Fraction

    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    return nearest_float32(exact)


def nearest_float32(exact):
    """Round an exact fraction to float32, ties to even."""
    from fractions import Fraction

    guess = np.float32(float(exact))
    around = [
        np.nextafter(guess, np.float32(-np.inf)),
        guess,
        np.nextafter(guess, np.float32(np.inf)),
    ]
    distances = [abs(Fraction(float(value)) - exact) for value in around]
    best = min(distances)
    nearest = [value for value, distance in zip(around, distances, strict=True) if distance == best]
    even = [value for value in nearest if value.view(np.uint32) % 2 == 0]
    return even[0] if len(nearest) > 1 and even else nearest[0]


TIME_BLOCK = 16


def add_block(accumulator, products):
    """Return the accumulator plus one block: products summed from 0 in one fused chain."""
    total = np.float32(0)
    for a, b in products:
        total = fused(a, b, total)
    return accumulator + total


def core_weight(grad, x, taps, pad, samples, start, stop):
    """Return a core's gradWeight: sample by sample, in blocks of time counted from ``start``."""
    part = np.zeros((taps, x.shape[2], grad.shape[2]), np.float32)
    for tap, i, o in np.ndindex(part.shape):
        for sample in samples:
            for first in range(start, stop, TIME_BLOCK):
                times = range(first, min(first + TIME_BLOCK, stop))
                inside = [time for time in times if 0 <= time + tap - pad < x.shape[0]]
                products = [
                    (x[time + tap - pad, sample, i], grad[time, sample, o]) for time in inside
                ]
                part[tap, i, o] = add_block(part[tap, i, o], products)
    return part


def input_in_order(grad, weight, time, pad, channel_block):
    """Return gradInput: blocks of C0 output channels, taps from K - 1 down, then channels."""
    out = np.zeros((time, grad.shape[1], weight.shape[1]), np.float32)
    for t, b, i in np.ndindex(out.shape):
        for first in range(0, grad.shape[2], channel_block):
            channels = range(first, min(first + channel_block, grad.shape[2]))
            for tap in reversed(range(weight.shape[0])):
                source = t + pad - tap
                if 0 <= source < grad.shape[0]:
                    out[t, b, i] = add_block(
                        out[t, b, i], [(grad[source, b, o], weight[tap, i, o]) for o in channels]
                    )
    return out


def bias_of_cores(grad, core_rows, group=256):
    """Return each core's gradBias: rows added in groups, then the sums of the groups in order."""
    rows = grad.reshape(-1, grad.shape[2])
    sums = []
    for first in range(0, len(rows), core_rows):
        own, total = rows[first : first + core_rows], np.zeros(rows.shape[1], np.float32)
        for start in range(0, len(own), group):
            part = np.zeros(rows.shape[1], np.float32)
            for row in own[start : start + group]:
                part += row
            total += part
        sums.append(total)
    return sums

"""ConvTbcBackward as its formulas say, term by term, in float64 and in the simulated order: slow and obvious."""

import numpy as np


def gradients(grad, x, weight, pad):
    """Sum in float64; returns gradInput, gradWeight, gradBias."""
    grad, x, weight = (one.astype(np.float64) for one in (grad, x, weight))
    grad_input, grad_weight = np.zeros_like(x), np.zeros_like(weight)
    for tap in range(weight.shape[0]):
        for time in range(grad.shape[0]):
            source = time + tap - pad
            if 0 <= source < x.shape[0]:
                grad_input[source] += grad[time] @ weight[tap].T
                grad_weight[tap] += x[source].T @ grad[time]
    return grad_input, grad_weight, grad.sum(axis=(0, 1))


def fused(a, b, c):
    """a * b + c of float32 with one rounding, through exact integers."""
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
    distances = [abs(Fraction(float(one)) - exact) for one in around]
    best = min(distances)
    nearest = [one for one, distance in zip(around, distances, strict=True) if distance == best]
    return (
        next((one for one in nearest if one.view(np.uint32) % 2 == 0), nearest[0])
        if len(nearest) > 1
        else nearest[0]
    )


TIME_BLOCK = 16


def add_block(accumulator, products):
    """Add a block to an accumulator: its products are summed from 0 in one fused chain, then added once."""
    total = np.float32(0)
    for a, b in products:
        total = fused(a, b, total)
    return accumulator + total


def core_weight(grad, x, taps, pad, samples, start, stop):
    """What a core sums for gradWeight: one accumulator over its samples, inside a sample over time, in blocks counted from ``start``."""
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
    """gradInput in the order of the page: blocks of C0 output channels, taps from K - 1 down to 0, the channels of a block."""
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
    """What every core sums for gradBias: its rows in groups, one row after the other, the sums of groups one after the other."""
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

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
    around = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    distances = [abs(Fraction(float(one)) - exact) for one in around]
    best = min(distances)
    nearest = [one for one, distance in zip(around, distances, strict=True) if distance == best]
    return next((one for one in nearest if one.view(np.uint32) % 2 == 0), nearest[0]) if len(nearest) > 1 else nearest[0]


def partial_weight(grad, x, taps, pad, sample, start, stop):
    """The partial sum of one sample over output time start..stop: one fused chain an element, time ascending."""
    part = np.zeros((taps, x.shape[2], grad.shape[2]), np.float32)
    for tap in range(taps):
        for time in range(start, stop):
            source = time + tap - pad
            if 0 <= source < x.shape[0]:
                for i in range(x.shape[2]):
                    for o in range(grad.shape[2]):
                        part[tap, i, o] = fused(x[source, sample, i], grad[time, sample, o], part[tap, i, o])
    return part


def input_in_order(grad, weight, time, pad):
    """gradInput in the order of the kernel for at most one chunk of output channels: taps, then channels."""
    out = np.zeros((time, grad.shape[1], weight.shape[1]), np.float32)
    for t, b, i in np.ndindex(out.shape):
        for tap in range(weight.shape[0]):
            source = t + pad - tap
            if 0 <= source < grad.shape[0]:
                for o in range(grad.shape[2]):
                    out[t, b, i] = fused(grad[source, b, o], weight[tap, i, o], out[t, b, i])
    return out

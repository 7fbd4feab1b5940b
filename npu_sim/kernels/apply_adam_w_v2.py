"""ApplyAdamWV2: one step of AdamW on the state of a parameter, element by element.

Threads split pieces of elements evenly, regardless of the simulated core split. A piece is computed
in scratch memory from all its inputs before it is stored, so that results may have the memory of
the inputs. The order of operations depends on the product family; all of them are fp32.

Slow reference with the order of operations: ``tests/reference/apply_adam_w_v2.py``.

Source: specification pages ``apply_adam_w_v2`` and ``apply_adam_w_v2_950``, section "Kernel".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel, thread_scratch, threads_for
from npu_sim.kernels.vectors.lanes import STREAM_BYTES, end_streams
from npu_sim.kernels.vectors.lanes_edges import store_rounded
from npu_sim.numbers.scalars import widen

PIECE = 1024
"""Elements of a piece; its scratch memory stays in the L1 cache."""
MAGNITUDE, INFINITY_BITS = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)
"""Bits of a fp32 number besides its sign, and those of inf."""
SMALLEST_NORMAL = np.float32(2.0**-126)
_ZERO, _ONE, _INFINITY, _BIT = np.float32(0), np.float32(1), np.float32(np.inf), np.uint32(1)
Floats = NDArray[np.float32]
VAR, M, V, LARGEST = range(4)
"""Rows of the scratch memory of a thread, in the order of `State`."""
OVERFLOWS, UNDERFLOWS, MOMENTS = range(3)
"""Counts: finite gradients whose square is inf, second moments that are stored as 0, and elements
whose m or v is not 0, up to the first piece that has some."""


class State(NamedTuple):
    """The tensors that a step updates, 1-D, or a value for each.

    Without amsgrad, ``max_grad_norm`` is empty.
    """

    var: Any
    m: Any
    v: Any
    max_grad_norm: Any


class Inputs(NamedTuple):
    """What a step reads, 1-D."""

    state: State
    grad: Any


class Outputs(NamedTuple):
    """What a step writes, and how."""

    state: State
    breaks_ties: State
    """Whether a tensor is bf16 whose ties are rounded away from zero."""
    streams: bool
    """Whether all are written with non-temporal stores."""


class Scalars(NamedTuple):
    """The numbers of a step, in fp32."""

    sign: np.float32
    """-1 with maximize, else 1."""
    beta1: np.float32
    beta2: np.float32
    decay: np.float32
    """1 - lr*weightDecay."""
    root: np.float32
    """Factor of the root of v, or its divisor; see `Arithmetic`."""
    eps: np.float32
    size: np.float32
    """Size of the step; negative where the root is divided."""
    vanishing: np.uint32
    """Bit pattern of the largest second moment that is stored as 0; 0 if there is none."""


class Arithmetic(NamedTuple):
    """Order and rounding of the operations of a step."""

    subtracts_products: bool
    """The moments are m*beta1 - g*(beta1 - 1) and v*beta2 - g*g*(beta2 - 1), not
    (g - m)*(1 - beta1) + m and v*beta2 + g*g*(1 - beta2)."""
    divides_root: bool
    """The root is divided, not multiplied; it and all quotients lose subnormal numbers."""
    rounds_half_away: bool
    """Results in bf16 are rounded to nearest, ties away from zero, not to even."""


@device_function
def _larger(old: np.float32, new: np.float32) -> np.float32:
    """Return the larger of two second moments; nan stays, and of zeros +0."""
    chosen = old if (old > new) | (old != old) else new
    return old + new if (old == _ZERO) & (new == _ZERO) else chosen


@device_function
def _flushed(value: np.float32) -> np.float32:
    """Return a value, or for a subnormal one the zero of its sign."""
    return value * _ZERO if abs(value) < SMALLEST_NORMAL else value


@device_function
def _compute(
    inputs: Inputs, s: Scalars, arithmetic: Arithmetic, amsgrad: bool, results: Floats
) -> None:
    """Compute the new state of a piece in fp32.

    All in one loop: the processor overlaps the root and the quotient, which take longest, with the
    rest.
    """
    old, grad = inputs
    new_var, new_m, new_v, largest = results[VAR], results[M], results[V], results[LARGEST]
    for index in range(grad.size):
        g, m, v = widen(grad[index]) * s.sign, widen(old.m[index]), widen(old.v[index])
        if arithmetic.subtracts_products:
            first = m * s.beta1 - g * (s.beta1 - _ONE)
            second = v * s.beta2 - (g * g) * (s.beta2 - _ONE)
        else:
            first = (g - m) * (_ONE - s.beta1) + m
            second = v * s.beta2 + (g * g) * (_ONE - s.beta2)
        new_m[index], new_v[index] = first, second
        if amsgrad:
            second = _larger(widen(old.max_grad_norm[index]), second)
            largest[index] = second
        decayed = widen(old.var[index]) * s.decay
        if arithmetic.divides_root:
            root = _flushed(np.sqrt(_flushed(second)))
            denominator = _flushed(root / s.root) + s.eps
            ratio = _flushed(_flushed(first) / _flushed(denominator))
            new_var[index] = decayed + s.size * ratio
        else:
            denominator = np.sqrt(second) * s.root + s.eps
            new_var[index] = decayed - (first / denominator) * s.size


@device_function
def _count(inputs: Inputs, s: Scalars, bits, counts) -> None:
    """Add the counts of a piece; ``bits`` are those of the new second moments.

    Elements are counted only in pieces whose new second moments have an extreme value.
    """
    old, grad = inputs
    highest, lowest = np.uint32(0), MAGNITUDE
    for index in range(grad.size):
        magnitude = np.uint32(bits[index] & MAGNITUDE)
        below = np.uint32(magnitude - _BIT)  # 0 becomes the largest
        highest = magnitude if magnitude > highest else highest
        lowest = below if below < lowest else lowest
    if highest >= INFINITY_BITS or lowest < s.vanishing:
        for index in range(grad.size):
            g = widen(grad[index])
            counts[OVERFLOWS] += (g * g == _INFINITY) & (abs(g) < _INFINITY)
            counts[UNDERFLOWS] += np.uint32((bits[index] & MAGNITUDE) - _BIT) < s.vanishing
    if counts[MOMENTS] == 0:
        for index in range(grad.size):
            counts[MOMENTS] += (widen(old.m[index]) != _ZERO) | (widen(old.v[index]) != _ZERO)


@device_function
def _store(values: Floats, bits, breaks_ties: bool, out, streams: bool) -> None:
    """Store results, rounded; with ``breaks_ties``, as bf16 with ties away from zero.

    Rounding to nearest even rounds a tie away from zero if its last bit, of fp32, is set.
    """
    if breaks_ties:
        for index in range(out.size):
            bits[index] |= np.uint32(bits[index] >> np.uint32(15)) & _BIT
    store_rounded(values[: out.size], out, streams)


@kernel
def _step(
    chunk: int,
    inputs: Inputs,
    s: Scalars,
    arithmetic: Arithmetic,
    outputs: Outputs,
    scratch: Floats,
    counts,
) -> None:
    """Compute a chunk of the pieces."""
    old, grad = inputs
    new, ties, streams = outputs
    chunks, size, amsgrad = len(scratch), grad.size, new.max_grad_norm.size > 0
    pieces = (size + PIECE - 1) // PIECE
    results, patterns = scratch[chunk], scratch[chunk].view(np.uint32)
    for number in range(pieces * chunk // chunks, pieces * (chunk + 1) // chunks):
        begin, end = number * PIECE, min((number + 1) * PIECE, size)
        norm = old.max_grad_norm[begin:end]
        state = State(old.var[begin:end], old.m[begin:end], old.v[begin:end], norm)
        piece = Inputs(state, grad[begin:end])
        _compute(piece, s, arithmetic, amsgrad, results)
        _count(piece, s, patterns[V], counts[chunk])
        _store(results[VAR], patterns[VAR], ties.var, new.var[begin:end], streams)
        _store(results[M], patterns[M], ties.m, new.m[begin:end], streams)
        _store(results[V], patterns[V], ties.v, new.v[begin:end], streams)
        largest = new.max_grad_norm[begin:end]  # empty without amsgrad
        _store(results[LARGEST], patterns[LARGEST], ties.max_grad_norm, largest, streams)
    end_streams()


def apply_adam_w(
    old: State, grad: NDArray[Any], scalars: Scalars, arithmetic: Arithmetic, new: State
) -> list[int]:
    """Compute a step on 1-D storage arrays; ``new`` may have the memory of ``old``.

    Returns the counts `OVERFLOWS`, `UNDERFLOWS` and `MOMENTS`.
    """
    threads = threads_for(sum(array.nbytes for array in (*old, grad, *new)))
    scratch = thread_scratch(threads, 4, PIECE)
    counts = np.zeros((threads, 3), np.int64)
    streams = new.var.nbytes > STREAM_BYTES and old.var.ctypes.data != new.var.ctypes.data
    ties = State(*(out.dtype == np.uint16 and arithmetic.rounds_half_away for out in new))
    inputs, outputs = Inputs(old, grad), Outputs(new, ties, streams)
    _step.over(threads, inputs, scalars, arithmetic, outputs, scratch, counts)
    return [int(count) for count in counts.sum(axis=0)]

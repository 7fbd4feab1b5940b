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
SMALLEST_NORMAL = np.float32(2.0**-126)
_ZERO, _INFINITY = np.float32(0), np.float32(np.inf)
Floats = NDArray[np.float32]
M, V, LARGEST, VAR = range(4)
"""Rows of the scratch memory of a thread."""
OVERFLOWS, UNDERFLOWS, MOMENTS = range(3)
"""Counts: finite gradients whose square is inf, second moments that are stored as 0, and pieces in
which m or v is not all 0."""


class State(NamedTuple):
    """The tensors that a step updates, 1-D; max_grad_norm is empty without amsgrad."""

    var: NDArray[Any]
    m: NDArray[Any]
    v: NDArray[Any]
    max_grad_norm: NDArray[Any]


class Scalars(NamedTuple):
    """The numbers of a step, in fp32."""

    sign: np.float32
    """-1 with maximize, else 1."""
    beta1: np.float32
    rest1: np.float32
    """1 - beta1."""
    beta2: np.float32
    rest2: np.float32
    """1 - beta2."""
    decay: np.float32
    """1 - lr*weightDecay."""
    root: np.float32
    """Factor of the root of v; on Ascend 950 its divisor."""
    eps: np.float32
    size: np.float32
    """Size of the step; on Ascend 950 with the other sign."""
    vanishing: np.float32
    """Largest second moment that is stored as 0; -1 if there is none."""


@device_function
def _moments(m, v, grad, s: Scalars, is_950: bool, scratch: Floats, counts) -> None:
    """Compute m' and v' of a piece."""
    new_m, new_v = scratch[M], scratch[V]
    overflows, moments = False, False
    for index in range(grad.size):
        g, old_m, old_v = widen(grad[index]) * s.sign, widen(m[index]), widen(v[index])
        square = g * g
        decayed = old_m * s.beta1 + g * s.rest1
        moved = (g - old_m) * s.rest1 + old_m
        new_m[index] = decayed if is_950 else moved
        new_v[index] = old_v * s.beta2 + square * s.rest2
        overflows |= (square == _INFINITY) & (abs(g) < _INFINITY)
        moments |= (old_v != _ZERO) | (old_m != _ZERO)
    counts[MOMENTS] += moments
    if overflows:  # rare, and counting takes longer than asking whether there is one
        for index in range(grad.size):
            g = widen(grad[index])
            counts[OVERFLOWS] += (g * g == _INFINITY) & (abs(g) < _INFINITY)


@device_function
def _largest(max_grad_norm, scratch: Floats) -> None:
    """Compute the larger of max_grad_norm and v' of a piece; nan stays, and of zeros +0."""
    new_v, largest = scratch[V], scratch[LARGEST]
    for index in range(max_grad_norm.size):
        old, new = widen(max_grad_norm[index]), new_v[index]
        chosen = old if (old > new) | (old != old) else new
        largest[index] = old + new if (old == _ZERO) & (new == _ZERO) else chosen


@device_function
def _flushed(value: np.float32) -> np.float32:
    """Return a value, or for a subnormal one the zero of its sign."""
    return value * _ZERO if abs(value) < SMALLEST_NORMAL else value


@device_function
def _updated(var, second: Floats, s: Scalars, is_950: bool, scratch: Floats) -> None:
    """Compute var' of a piece from m' and the second moment."""
    new_m, new_var = scratch[M], scratch[VAR]
    if is_950:
        for index in range(var.size):
            root = _flushed(np.sqrt(_flushed(second[index])))
            denominator = _flushed(root / s.root) + s.eps
            ratio = _flushed(_flushed(new_m[index]) / _flushed(denominator))
            new_var[index] = widen(var[index]) * s.decay + s.size * ratio
    else:
        for index in range(var.size):
            denominator = np.sqrt(second[index]) * s.root + s.eps
            step = (new_m[index] / denominator) * s.size
            new_var[index] = widen(var[index]) * s.decay - step


@device_function
def _break_ties(bits, count: int) -> None:
    """Move values halfway between two bf16 numbers away from zero, by one bit of fp32.

    Rounding to nearest even then rounds them away from zero.
    """
    for index in range(count):
        bits[index] += np.uint32((bits[index] & np.uint32(0xFFFF)) == np.uint32(0x8000))


@device_function
def _vanished(second: Floats, count: int, vanishing: np.float32) -> int:
    found = 0
    for index in range(count):
        found += (abs(second[index]) <= vanishing) & (second[index] != _ZERO)
    return found


@kernel
def _step(
    chunk: int,
    old: State,
    grad,
    s: Scalars,
    is_950: bool,
    away: int,
    streams: bool,
    scratch,
    bits,
    counts,
    new: State,
) -> None:
    """Compute a chunk of the pieces."""
    chunks, size = len(scratch), grad.size
    pieces = (size + PIECE - 1) // PIECE
    values = scratch[chunk]
    for number in range(pieces * chunk // chunks, pieces * (chunk + 1) // chunks):
        begin, end = number * PIECE, min((number + 1) * PIECE, size)
        count = end - begin
        part = grad[begin:end]
        _moments(old.m[begin:end], old.v[begin:end], part, s, is_950, values, counts[chunk])
        with_norm = new.max_grad_norm.size > 0
        if with_norm:
            _largest(old.max_grad_norm[begin:end], values)
        second = values[LARGEST] if with_norm else values[V]
        _updated(old.var[begin:end], second, s, is_950, values)
        for row in range(4):
            if (away >> row) & 1 and (row != LARGEST or with_norm):
                _break_ties(bits[chunk, row], count)
        counts[chunk, UNDERFLOWS] += _vanished(values[V], count, s.vanishing)
        store_rounded(values[M, :count], new.m[begin:end], streams)
        store_rounded(values[V, :count], new.v[begin:end], streams)
        if with_norm:
            store_rounded(values[LARGEST, :count], new.max_grad_norm[begin:end], streams)
        store_rounded(values[VAR, :count], new.var[begin:end], streams)
    end_streams()


def apply_adam_w(
    old: State, grad: NDArray[Any], scalars: Scalars, is_950: bool, away: int, new: State
) -> list[int]:
    """Compute a step on 1-D storage arrays; ``new`` may have the memory of ``old``.

    ``away`` is a mask of the scratch rows whose bf16 results round ties away from zero. Returns the
    counts `OVERFLOWS`, `UNDERFLOWS` and `MOMENTS`.
    """
    arrays = (*old, grad, *new)
    threads = threads_for(sum(array.nbytes for array in arrays))
    scratch = thread_scratch(threads, 4, PIECE)
    counts = np.zeros((threads, 3), np.int64)
    streams = new.var.nbytes > STREAM_BYTES and old.var.ctypes.data != new.var.ctypes.data
    bits = scratch.view(np.uint32)
    _step.over(threads, old, grad, scalars, is_950, away, streams, scratch, bits, counts, new)
    return [int(count) for count in counts.sum(axis=0)]

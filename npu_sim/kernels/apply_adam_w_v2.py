"""ApplyAdamWV2: one step of AdamW on the state of a parameter, element by element.

Threads split blocks of elements evenly, regardless of the simulated core split. A block of lanes is
loaded whole before its results are stored, so that results may have the memory of the inputs; one
loop loads, computes and stores, so that the root and the quotient, which take longest, overlap
with the rest. The order of operations depends on the product family; all of them are fp32.

Slow reference with the order of operations: ``tests/reference/apply_adam_w_v2.py``.

Source: specification pages ``apply_adam_w_v2`` and ``apply_adam_w_v2_950``, section "Kernel".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import inlined_function, kernel, threads_for
from npu_sim.kernels.vectors.lane_blocks import count_magnitudes, maximum, square_root, zero_below
from npu_sim.kernels.vectors.lanes import (
    AHEAD_BYTES,
    LINE_BYTES,
    ONE,
    ORDERED_LANES,
    STREAM_BYTES,
    Lanes,
    Stored,
    end_streams,
    load_ordered,
    prefetch,
    store_away,
    store_ordered,
    stream_away,
    stream_ordered,
    ties_away,
)
from npu_sim.numbers.arrays import address_of
from npu_sim.numbers.scalars import FP32_INFINITY, FP32_MAGNITUDE, narrow, widen

SMALLEST_NORMAL = np.float32(2.0**-126)
SQUARE_OVERFLOWS = 0x5F80_0000
"""Pattern of 2^64, the smallest fp32 number whose square is inf."""


class Counts(NamedTuple):
    """What a step counts."""

    overflows: int
    """Finite gradients whose square is inf."""
    underflows: int
    """Second moments that are not 0 and are stored as 0."""
    moments: int
    """Numbers of m and v that are not 0, up to the first block of a thread that has some."""


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
    """Whether all are written with non-temporal stores; they start on a cache line then."""


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


class Step(NamedTuple):
    """A step: its tensors and numbers."""

    inputs: Inputs
    scalars: Scalars
    arithmetic: Arithmetic
    outputs: Outputs


@inlined_function
def _flushed(x: Any) -> Any:
    """Return numbers, or for subnormal ones the zero of their sign."""
    return zero_below(x, SMALLEST_NORMAL)


@inlined_function
def _new_state(old: State, g: Any, s: Scalars, arithmetic: Arithmetic, amsgrad: bool) -> Any:
    """Return the new state in fp32, of lanes or of one element.

    Without amsgrad, v stands for max_grad_norm.
    """
    if arithmetic.subtracts_products:
        m = old.m * s.beta1 - g * (s.beta1 - ONE)
        v = old.v * s.beta2 - (g * g) * (s.beta2 - ONE)
    else:
        m = (g - old.m) * (ONE - s.beta1) + old.m
        v = old.v * s.beta2 + (g * g) * (ONE - s.beta2)
    second = maximum(old.max_grad_norm, v) if amsgrad else v
    decayed = old.var * s.decay
    if arithmetic.divides_root:
        denominator = _flushed(_flushed(square_root(_flushed(second))) / s.root) + s.eps
        var = decayed + _flushed(_flushed(m) / _flushed(denominator)) * s.size
    else:
        var = decayed - (m / (square_root(second) * s.root + s.eps)) * s.size
    return State(var, m, v, second)


@inlined_function
def _load_one(array: Stored, index: int) -> np.float32:
    return widen(array[index])


@inlined_function
def _store_one(array: Stored, index: int, value: np.float32, away: bool, streams: bool) -> None:
    array[index] = narrow(ties_away(value) if away else value, array)


@inlined_function
def _load_lanes(array: Stored, index: int) -> Lanes:
    prefetch(array, index + AHEAD_BYTES // array.itemsize)
    return load_ordered(array, index)


@inlined_function
def _store_lanes(array: Stored, index: int, lanes: Lanes, away: bool, streams: bool) -> None:
    if streams:
        if away:
            stream_away(array, index, lanes)
        else:
            stream_ordered(array, index, lanes)
    elif away:
        store_away(array, index, lanes)
    else:
        store_ordered(array, index, lanes)


@inlined_function
def _update(index: int, step: Step, counts: Counts, load: Any, put: Any) -> Counts:
    """Update elements; return ``counts`` with those of these elements.

    ``load(array, index)`` returns the elements and ``put(array, index, values, away, streams)``
    stores them: constants of the kernel, for lanes or for one element.
    """
    inputs, s, arithmetic, outputs = step
    (var, m, v, norm), grad = inputs
    new, ties, streams = outputs
    amsgrad = new.max_grad_norm.size > 0
    g, old_m, old_v = load(grad, index), load(m, index), load(v, index)
    overflows, underflows, moments = counts
    if moments == 0:
        for moment in (old_m, old_v):
            moments += count_magnitudes(moment, 1, FP32_MAGNITUDE)
    old = State(load(var, index), old_m, old_v, load(norm, index) if amsgrad else old_v)
    found = _new_state(old, g * s.sign, s, arithmetic, amsgrad)
    overflows += count_magnitudes(g, SQUARE_OVERFLOWS, FP32_INFINITY - SQUARE_OVERFLOWS)
    underflows += count_magnitudes(found.v, 1, s.vanishing)
    put(new.var, index, found.var, ties.var, streams)
    put(new.m, index, found.m, ties.m, streams)
    put(new.v, index, found.v, ties.v, streams)
    if amsgrad:
        put(new.max_grad_norm, index, found.max_grad_norm, ties.max_grad_norm, streams)
    return Counts(overflows, underflows, moments)


@kernel
def _compute(chunk: int, step: Step, counts) -> None:
    """Compute a chunk of the blocks; the last one also computes the elements that fill no block."""
    chunks, size, found = len(counts), step.inputs.grad.size, Counts(0, 0, 0)
    blocks = size // ORDERED_LANES
    first, stop = blocks * chunk // chunks, blocks * (chunk + 1) // chunks
    for block in range(first, stop):
        index = block * ORDERED_LANES
        found = _update(index, step, found, _load_lanes, _store_lanes)
    if chunk == chunks - 1:
        for index in range(blocks * ORDERED_LANES, size):
            found = _update(index, step, found, _load_one, _store_one)
    for number in range(len(found)):
        counts[chunk, number] = found[number]
    end_streams()


def apply_adam_w(
    old: State, grad: NDArray[Any], scalars: Scalars, arithmetic: Arithmetic, new: State
) -> Counts:
    """Compute a step on 1-D storage arrays; ``new`` may have the memory of ``old``."""
    threads = threads_for(sum(array.nbytes for array in (*old, grad, *new)))
    counts = np.zeros((threads, len(Counts._fields)), np.int64)
    streams = (
        new.var.nbytes > STREAM_BYTES
        and address_of(old.var) != address_of(new.var)
        and all(address_of(out) % LINE_BYTES == 0 for out in new)  # an empty one's is 0
    )
    ties = State(*(out.dtype == np.uint16 and arithmetic.rounds_half_away for out in new))
    step = Step(Inputs(old, grad), scalars, arithmetic, Outputs(new, ties, streams))
    _compute.over(threads, step, counts)
    return Counts(*counts.sum(axis=0).tolist())

"""Halves, sigmoid and the warnings on data of SwiGlu and SwiGluGrad.

Source: specification pages ``swi_glu`` and ``swi_glu_grad``.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import Array, Caveat, Dtype, Run, caveat, unsupported_values

OVERFLOWS_BELOW = (np.float32(-88.72283), np.float32(-87.33654))
"""Below this, exp(-a) is inf in fp32 (page, "Special values"); where division loses subnormal
results, 1 / (1 + exp(-a)) is lost (page ``swi_glu_950``, "Kernel")."""


def data_caveats(run: Run, counts: list[int]) -> tuple[Caveat, ...]:
    """Return the warnings of a run that depend on data; ``counts`` are those of the kernel."""
    unsupported = unsupported_values(run.tensors) if run.case.profile.saturates else ()
    return (*unsupported, *_found(*counts))


def _found(low: int, infinite: int, near: int = 0) -> Iterator[Caveat]:
    """Yield the warnings on so many elements."""
    if low:
        yield caveat(
            "exp_overflows",
            "x",
            "{found} finite elements of the first half are so low that exp(-a) overflows: their "
            "result is a zero, or nan where the other factor is inf",
            found=low,
        )
    if infinite:
        yield caveat(
            "infinite_gate",
            "x",
            "{found} elements of the first half are infinite: a result is nan, not its limit",
            found=infinite,
        )
    if near:
        yield caveat(
            "cancels",
            "x",
            "{found} elements of the first half are within 0.001 of -1.2784645, where the gradient "
            "cancels: its relative error in fp32 has no bound",
            found=near,
        )


def halves_of(arguments: Any, x: Array, precision: Dtype) -> list[Array]:
    """Return both halves of x along dim."""
    return np.split(x.astype(precision), 2, axis=int(arguments.dim))


def sigmoid(a: Array) -> Array:
    """Return 1 / (1 + exp(-a))."""
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-a)))

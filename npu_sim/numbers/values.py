"""Random distributions of the data of several operators."""

import os

import numpy as np

from npu_sim.numbers.arrays import Array
from npu_sim.numbers.formats import TensorSpec, numpy_dtype

CHUNK = 1 << 20
"""Elements drawn at a time, so that a 16-bit tensor never exists in fp32 as a whole."""


def normal(random: "np.random.Generator", spec: TensorSpec, scale: float = 1.0) -> Array:
    """Draw a tensor from the normal distribution with standard deviation ``scale``.

    Values are drawn in fp32 and rounded to the dtype. In a tensor of several chunks every chunk has
    its own generator, so that the values do not depend on the number of threads.
    """
    array = np.empty(spec.shape, numpy_dtype(spec.dtype))
    flat = array.reshape(-1)
    starts = range(0, flat.size, CHUNK)

    def draw(start: int, generator: "np.random.Generator") -> None:
        part = flat[start : start + CHUNK]
        part[...] = generator.standard_normal(part.size, np.float32) * np.float32(scale)

    if len(starts) <= 1:
        draw(0, random)
        return array
    from concurrent.futures import ThreadPoolExecutor  # plans import this module, and draw nothing

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(draw, starts, random.spawn(len(starts))))
    return array


def zipf(random: "np.random.Generator", count: int, size: int) -> Array:
    """Draw integers in ``0 .. size - 1`` from Zipf's law with exponent 1.

    The probability of ``i`` is proportional to ``log((i + 2) / (i + 1))``, about ``1 / (i + 1)``.
    This form needs no table: the logarithm of ``i + 1`` is uniform.

    Parameters
    ----------
    random
        Source of randomness.
    count
        Number of integers to draw.
    size
        Exclusive upper bound, at least 1.

    Returns
    -------
    int64 (count,)
    """
    drawn = np.empty(count, np.int64)
    for start in range(0, count, CHUNK):
        part = drawn[start : start + CHUNK]
        part[...] = np.exp(random.random(part.size) * np.log(size + 1))
    drawn -= 1
    return np.minimum(drawn, size - 1, out=drawn)  # exp(log(size + 1) * u) can round up to size + 1

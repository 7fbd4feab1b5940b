"""Summation orders that operators declare for studies, and the probes that verify them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.numbers.formats import numpy_dtype
from npu_sim.orders import trees

Outside = Callable[[np.ndarray], np.ndarray]
"""Takes masks (probes, terms) of 1, +1e30-like and its negative as -1, 0, 1 codes; returns how many
ones survive in each."""


@dataclass(frozen=True)
class Claim:
    """What an operator declares about one class of elements.

    Attributes
    ----------
    output, element, elements
        Name of the output, the index of one element, and how many elements are added alike.
    terms
        What is added, in words.
    tree
        The declared tree over the terms' numbers.
    outside
        Runs the kernel on probes; see :data:`Outside`. None where terms cannot be negative, so that
        no probe is possible.
    evaluates
        Then: whether the kernel has, on numbers, the bits of the declared tree.
    """

    output: str
    element: tuple[int, ...]
    elements: int
    terms: tuple[str, ...]
    tree: trees.Tree
    outside: Outside | None = None
    evaluates: Callable[[], bool] | None = None


@dataclass(frozen=True)
class Parts:
    """Contributions of some parts of one output; see :mod:`npu_sim.kernels.order_study` for the arrays.

    Attributes
    ----------
    output
        Name of the output.
    values, starts, cores, keys, factors
        Contributions of every part in the cores' program order, fp32.
    terms
        How many terms every contribution is the sum of.
    columns_together
        Columns for which an adversarial order is chosen together.
    locate
        Index in the output of an element, by part and column; the columns of a part are neighbours in the output.
    describe
        What a contribution is, by its place in ``values``, in words.
    """

    output: str
    values: NDArray[np.float32]
    starts: NDArray[np.int64]
    cores: NDArray[np.int64]
    keys: NDArray[np.int64]
    factors: NDArray[np.float32]
    terms: NDArray[np.int64]
    columns_together: int
    locate: Callable[[int, int], tuple[int, ...]]
    describe: Callable[[int], str]

    @property
    def count(self) -> int:
        """Number of parts."""
        return int(self.keys.size)

    def index_of(self, part: int, column: int) -> Any:
        """Return the index of an element in the output."""
        return self.locate(part, column)


PROBE_VALUES = {
    "float32": (2.0**60, 1.0),
    "bfloat16": (2.0**60, 1.0),
    "float16": (2.0**15, 2.0**-24),
}
"""Huge and unit by dtype: sums of up to thousands of units are absorbed by the huge value in fp32,
and counts stay exact."""


def probe_terms(codes: np.ndarray, dtype: str) -> np.ndarray:
    """Return the terms of probes: codes 1 and -1 become the huge value and its negative, 0 the unit."""
    huge, unit = PROBE_VALUES[dtype]
    return np.where(codes == 0, unit, codes * huge).astype(numpy_dtype(dtype))


def count_units(results: np.ndarray, dtype: str) -> np.ndarray:
    """Return how many units results hold."""
    return np.rint(results.astype(np.float64) / PROBE_VALUES[dtype][1]).astype(np.int64)

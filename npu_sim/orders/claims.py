"""Summation orders that operators declare for studies, and the probes that verify them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.numbers.arrays import Array, Index
from npu_sim.numbers.formats import numpy_dtype
from npu_sim.orders import trees

Outside = Callable[[Array], Array]
"""Takes codes (probes, terms): 1 and -1 for a huge value and its negative, 0 for a one. Returns how
many ones survive in each probe."""

PROBE_VALUES = {
    "float32": (2.0**60, 1.0),
    "bfloat16": (2.0**60, 1.0),
    "float16": (2.0**15, 2.0**-24),
}
"""Huge value and unit by dtype: in fp32 the huge value absorbs sums of thousands of units, and
counts of units stay exact."""


@dataclass(frozen=True)
class Claim:
    """Declared summation tree of one class of output elements.

    Attributes
    ----------
    output, element, elements
        Name of the output, the index of one element, and the number of elements added like it.
    terms
        Descriptions of the terms.
    tree
        The declared tree over the numbers of the terms, of which there is at least one.
    outside
        Runs the kernel on probes; see :data:`Outside`. None if terms cannot be negative, so that
        no probe is possible.
    evaluates
        In that case: whether the kernel's bits equal those of the declared tree.
    """

    output: str
    element: Index
    elements: int
    terms: tuple[str, ...]
    tree: trees.Tree | None
    outside: Outside | None = None
    evaluates: Callable[[], bool] | None = None


@dataclass(frozen=True)
class Step:
    """One contribution in an order of arrival, and the running sum after it."""

    core: int
    contribution: str
    value: float
    sum_after: float


@dataclass(frozen=True)
class Parts:
    """Contributions to some parts of one output, before they are added.

    :mod:`npu_sim.kernels.shared.arrival_orders` describes the arrays.
    """

    output: str
    """Name of the output."""
    values: NDArray[np.float32]
    """(contributions, columns): contributions of every part in the cores' program order."""
    starts: NDArray[np.int64]
    """(parts + 1,): first contribution of every part, and the number of contributions."""
    cores: NDArray[np.int64]
    """(contributions,): core that adds each of them."""
    keys: NDArray[np.int64]
    """(parts,): key of every part in random orders."""
    factors: NDArray[np.float32]
    """(parts,): factor of every part's sum."""
    terms: NDArray[np.int64]
    """Number of terms in the sum that each contribution is."""
    columns_together: int
    """Columns for which an adversarial order is chosen together."""
    locate: Callable[[int, int], Index]
    """Index in the output of an element, by part and column. The columns of a part are adjacent."""
    describe: Callable[[int], str]
    """Description of a contribution by its position in ``values``."""

    @property
    def count(self) -> int:
        """Number of parts."""
        return int(self.keys.size)

    def steps(self, part: int, column: int, order: NDArray[np.int64]) -> tuple[Step, ...]:
        """Return the additions of an element in an order of its part's contributions."""
        steps, total = [], np.float32(0)
        with np.errstate(over="ignore", invalid="ignore"):
            for place in (self.starts[part] + order).tolist():
                value = self.values[place, column]
                total = np.float32(total + value)
                core, name = int(self.cores[place]), self.describe(place)
                steps.append(Step(core, name, float(value), float(total)))
        return tuple(steps)


class LastWrites(NamedTuple):
    """What several cores write to one place of an output, where the last write survives.

    Attributes
    ----------
    place
        First indices of the place.
    values
        (cores, ...): what each core writes last, in the dtype of the output.
    cores, names
        These cores, and descriptions of their writes.
    """

    place: Index
    values: Array
    cores: tuple[int, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class OpenRule:
    """Values that an output may have because part of its rule is not published or not fixed."""

    output: str
    """Name of the output."""
    lowest: Array
    """Smallest values: a float array that broadcasts to the output."""
    highest: Array
    """Largest values, likewise; -inf and inf together allow nan too."""
    reason: str
    """The part of the rule, and the bound that is documented for it."""
    is_inferred: bool = False
    """Whether it is the whole rule, which the product or its release has by inference."""


def probe_terms(codes: Array, dtype: str) -> Array:
    """Return the terms of probes: codes 1 and -1 become the huge value or its negative, 0 a one."""
    huge, unit = PROBE_VALUES[dtype]
    return np.where(codes == 0, unit, codes * huge).astype(numpy_dtype(dtype))


def count_units(results: Array, dtype: str) -> Array:
    """Return the number of units in each result."""
    return np.rint(results.astype(np.float64) / PROBE_VALUES[dtype][1]).astype(np.int64)

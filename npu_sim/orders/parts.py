"""What an operator tells the determinism study: its contributions, before they are added up."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


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

"""The operators as their formulas say, in NumPy and in any precision: what errors are measured against.

In float64 this is the golden value of the precision verdicts; in float32 it is the second implementation of the dual benchmark.
Nothing here knows a product, a plan or an order of additions.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from npu_sim.registry import load_operator


def plain(
    operator: str,
    arguments: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    precision: Any = np.float64,
) -> dict[str, np.ndarray]:
    """Compute an operator by its formula.

    Parameters
    ----------
    operator
        Name of the operator.
    arguments
        The call; only its attributes are read.
    tensors
        The input tensors by name, in the operator's dtypes.
    precision
        ``numpy.float64`` or ``numpy.float32``: the dtype of every intermediate value and of the results.

    Returns
    -------
    dict
        Output arrays by name, in ``precision``.
    """
    values: dict[str, np.ndarray] = load_operator(operator).hook("formula")(
        arguments, tensors, np.dtype(precision)
    )
    return values

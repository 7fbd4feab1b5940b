"""Realistic input data for the shapes of a call, one operator a file; used where a user gives shapes instead of files."""

from importlib import import_module

import numpy as np

from npu_sim.ops import operator_module
from npu_sim.ops.base import Arguments


def generate(operator: str, arguments: Arguments, seed: int = 0) -> dict[str, np.ndarray]:
    """Return data for the input tensors of a call.

    Parameters
    ----------
    operator
        Name of the operator, here or in the product documents.
    arguments
        The call; it should pass the operator's checks.
    seed
        The same seed gives the same data.

    Returns
    -------
    dict
        C-contiguous arrays by argument, in the shapes and dtypes of the call; optional tensors only when the call has them.

    Raises
    ------
    AclnnError
        161002 when there is no such operator.
    """
    module = import_module(f"npu_sim.generate.{operator_module(operator).NAME}")
    data: dict[str, np.ndarray] = module.generate(arguments, seed)
    return data

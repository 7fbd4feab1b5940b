"""What an operator declares of how its elements are added."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

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

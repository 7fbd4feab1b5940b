"""What happens to the data before a call is computed, and what only the data can tell."""

from collections.abc import Collection, Mapping

import numpy as np

from npu_sim.numbers.formats import FORMATS, canonical_dtype
from npu_sim.numbers.storage import UNSIGNED, kernel_input, magnitude_patterns
from npu_sim.plans.model import Caveat

SCAN_ELEMENTS = 1 << 18
"""Elements looked through at once for inf and nan."""


def own_copies(
    addressing: Collection[str], tensors: Mapping[str, np.ndarray]
) -> Mapping[str, np.ndarray]:
    """Return the tensors of a call, contiguous copies in place of those that address memory; see ``Tensor.addresses``."""
    return (
        {**tensors, **{name: tensors[name].copy() for name in addressing if name in tensors}}
        if addressing
        else tensors
    )


def unsupported_values(tensors: Mapping[str, np.ndarray]) -> tuple[Caveat, ...]:
    """Return a warning for every input with inf or nan, which saturating products do not support ("边界值场景说明")."""
    caveats = []
    for name, array in tensors.items():
        stored = kernel_input(array).reshape(-1)
        mask, infinity = magnitude_patterns(FORMATS[canonical_dtype(array.dtype)])
        bits = stored.view(UNSIGNED[stored.itemsize])
        found = sum(
            int(np.count_nonzero((bits[start : start + SCAN_ELEMENTS] & mask) >= infinity))
            for start in range(0, bits.size, SCAN_ELEMENTS)
        )
        if found:
            message = f"{name} has {found} elements that are inf or nan, which this product does not support: results are a model"
            caveats.append(Caveat(code="inf_or_nan_input", argument=name, message=message))
    return tuple(caveats)

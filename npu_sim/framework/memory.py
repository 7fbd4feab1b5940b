"""Results that are kept for when the same call comes again."""

from collections import OrderedDict, deque
from collections.abc import Callable, Container, Hashable, Mapping
from types import NoneType
from typing import Any, Generic, TypeVar

import numpy as np

from npu_sim.numbers.formats import TensorSpec

Result = TypeVar("Result")
Signature = tuple[Any, ...]

SEEN = 64
"""So many calls back a call counts as made before."""
PLAIN = frozenset({TensorSpec, NoneType, bool, int, float, str})
"""Types of values by which calls are remembered: nothing in them changes."""


def signature_of(
    values: Mapping[str, Any], tensors: Container[str], *options: Any
) -> Signature | None:
    """Return what tells a call from others; None when a value may change.

    Parameters
    ----------
    values
        The arguments: of an array only shape, dtype and whether it is contiguous count.
    tensors
        Names of the tensors, for which a NumPy number is an array too.
    *options
        Whatever else decides.
    """
    found: list[Any] = [options]
    for name, value in values.items():
        kind = type(value)
        if kind is np.ndarray:
            found += (name, value.shape, value.dtype, value.flags.c_contiguous)
        elif kind in PLAIN:
            # Equal numbers may differ: 1 is True, 0.0 is -0.0.
            found += (name, kind, str(value) if kind is float else value)
        elif isinstance(value, np.generic) and name in tensors:
            found += (name, (), value.dtype, True)
        else:
            return None
    return tuple(found)


class Memory(Generic[Result]):
    """The latest results by signature, of calls that were made twice.

    A call that never comes again leaves nothing behind: what is kept would only be work for Python's search for garbage, which takes
    longer than a small call.

    Parameters
    ----------
    size
        How many results are kept.
    keep
        Called with every result that is.
    """

    def __init__(self, size: int, keep: Callable[[Result], None]) -> None:
        self._size, self._keep = size, keep
        self._kept: OrderedDict[Hashable, Result] = OrderedDict()
        self._seen: deque[int] = deque(maxlen=SEEN)

    def get(self, signature: Hashable, make: Callable[[], Result]) -> Result:
        """Return the result of a signature; whatever ``make`` raises is not kept."""
        found = self._kept.get(signature)
        if found is not None:
            return found
        found = make()
        number = hash(signature)
        if number not in self._seen:
            self._seen.append(number)
            return found
        self._keep(found)
        self._kept[signature] = found
        while len(self._kept) > self._size:
            self._kept.popitem(last=False)
        return found

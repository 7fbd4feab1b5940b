"""Results that are kept for when the same call comes again."""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Result = TypeVar("Result")

SEEN = 64
"""So many calls back a call counts as made before."""


class Memory(Generic[Result]):
    """The latest results by signature, of calls that were made twice.

    A call that never comes again leaves nothing behind: what is kept would only be work for Python's search for garbage, which takes
    longer than a small call.

    Parameters
    ----------
    size
        How many results are kept.
    """

    def __init__(self, size: int) -> None:
        self._size = size
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
        self._kept[signature] = found
        while len(self._kept) > self._size:
            self._kept.popitem(last=False)
        return found

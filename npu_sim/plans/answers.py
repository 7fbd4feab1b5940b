"""What all answers share: they are frozen, and they say how sure they are."""

from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict

_BROUGHT = frozenset(dir(BaseModel))


class Frozen(BaseModel):
    """Base of answers and of their parts: nothing in them changes, and nothing unknown is in them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __dir__(self) -> list[str]:
        """List what an answer says, without what its base class brings."""
        return [name for name in super().__dir__() if name.startswith("__") or name not in _BROUGHT]


class Facts(dict[str, Any]):
    """A dict of an answer: like the rest of it, it does not change. Answers are remembered, and given to several callers."""

    def _refuse(self, *_arguments: Any, **_keywords: Any) -> Any:
        raise TypeError("answers do not change: take dict(...) of it")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as the dict that it is made from."""
        return Facts, (dict(self),)


Value = TypeVar("Value")
FrozenDict = Annotated[dict[str, Value], AfterValidator(Facts)]
"""Field of an answer: facts by name."""


class Evidence(StrEnum):
    """How sure a result is."""

    EXACT = "exact"
    """The product's published rule, reproduced."""
    MODEL = "model"
    """Our model of something the vendor does not publish."""
    UNKNOWN = "unknown"
    """Not published and not modelled; counted as 0 and named."""

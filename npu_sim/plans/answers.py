"""What all answers share: they are frozen, and they say how sure they are."""

from collections.abc import Callable
from enum import StrEnum
from threading import RLock
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, model_serializer

_BROUGHT = frozenset(dir(BaseModel))


class Frozen(BaseModel):
    """Base of answers and of their parts: nothing in them changes, and nothing unknown is in them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __dir__(self) -> list[str]:
        """List what an answer says, without what its base class brings."""
        return [name for name in super().__dir__() if name.startswith("__") or name not in _BROUGHT]


class _Promise:
    """What is still to be found of an answer: answers are remembered, so that several threads may ask at once."""

    def __init__(self, make: Callable[[], dict[str, Any]]) -> None:
        self.lock = RLock()
        self.make: Callable[[], dict[str, Any]] | None = make
        self.later: dict[str, Callable[[], Any]] = {}


class Promised(Frozen):
    """Base of answers that are put together when somebody first asks for something in them; see :meth:`promise`.

    Nobody can tell such an answer from one that was put together at once: all that looks at an answer as a whole does it first.
    """

    @classmethod
    def promise(cls, make: Callable[[], dict[str, Any]]) -> Self:
        """Return the answer with the fields that ``make`` will return; one that is a function is found when that field is asked for."""
        answer, promise = cls.__new__(cls), _Promise(make)
        object.__setattr__(answer, "__dict__", {})
        for name, value in (
            ("__pydantic_fields_set__", set()),
            ("__pydantic_extra__", None),
            ("__pydantic_private__", promise),
        ):
            object.__setattr__(answer, name, value)
        return answer

    def kept(self) -> Self:
        """Return the answer, put together."""
        promise: Any = self.__pydantic_private__
        if promise is not None:
            with promise.lock:
                names = type(self).model_fields
                object.__setattr__(self, "__dict__", {name: getattr(self, name) for name in names})
                object.__setattr__(self, "__pydantic_fields_set__", set(names))
                object.__setattr__(self, "__pydantic_private__", None)
        return self

    def _begin(self, promise: _Promise) -> None:
        """Find everything but the fields that are functions."""
        if promise.make is not None:
            fields = promise.make()
            promise.later = {name: value for name, value in fields.items() if callable(value)}
            known = type(self)(
                **{name: value for name, value in fields.items() if name not in promise.later}
            ).__dict__
            self.__dict__.update(
                {name: value for name, value in known.items() if name not in promise.later}
            )
            promise.make = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Find a field when it is asked for."""
            if name not in type(self).model_fields:
                return super().__getattr__(name)
            promise = self.__pydantic_private__
            if promise is not None:
                with promise.lock:
                    self._begin(promise)
                    if name not in self.__dict__:
                        self.__dict__[name] = promise.later[name]()
            return self.__dict__[name]

    def __eq__(self, other: object) -> bool:
        """Compare what is in both."""
        return super(Promised, self.kept()).__eq__(
            other.kept() if isinstance(other, Promised) else other
        )

    def __hash__(self) -> int:
        """Return the hash of what is in it, as of any answer."""
        return hash(tuple(self.kept().__dict__.values()))

    def __iter__(self) -> Any:
        """Go through names and values, as ``dict`` does."""
        return super(Promised, self.kept()).__iter__()

    def __repr_args__(self) -> Any:
        """Return what the representation shows."""
        return super(Promised, self.kept()).__repr_args__()

    def __getstate__(self) -> dict[Any, Any]:
        """Travel put together."""
        return super(Promised, self.kept()).__getstate__()

    def __copy__(self) -> Self:
        """Copy what is in it."""
        return super(Promised, self.kept()).__copy__()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Copy what is in it, and what is in that."""
        return super(Promised, self.kept()).__deepcopy__(memo)

    @model_serializer(mode="wrap")
    def _dumped(self, dump: Any) -> Any:
        return dump(self.kept())


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

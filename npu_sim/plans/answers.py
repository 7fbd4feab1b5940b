"""Base classes of answers: `Frozen` models, `Printed` output, and `Evidence`."""

from enum import StrEnum
from html import escape
from importlib import import_module
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic_core import core_schema

from npu_sim.language import Text

SHOW = "npu_sim.show"
"""Package that prints answers; programs that only read fields never import it."""
_INHERITED = frozenset(dir(BaseModel))


class Frozen(BaseModel):
    """Base of answers and of their parts: immutable, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __dir__(self) -> list[str]:
        """List the names of the answer without those inherited from pydantic."""
        names = super().__dir__()
        return [name for name in names if name.startswith("__") or name not in _INHERITED]


class ReadOnlyDict(dict[str, Any]):
    """A dict whose entries cannot be changed."""

    def _refuse(self, *_arguments: Any, **_keywords: Any) -> Any:
        raise TypeError("answers do not change: take dict(...) of it")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the entries as a plain dict: both would otherwise set them one by one."""
        return ReadOnlyDict, (dict(self),)


Value = TypeVar("Value")
FrozenDict = Annotated[dict[str, Value], AfterValidator(ReadOnlyDict)]
"""Type of a model field that is a read-only dict."""


class _KeepsText:
    """Annotation of a ``str`` field: pydantic would replace a Text by its sentence."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        texts = core_schema.is_instance_schema(Text)
        return core_schema.union_schema([texts, handler(source)], mode="left_to_right")

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: Any, handler: Any) -> Any:
        return handler(core_schema.str_schema())


TextField = Annotated[str, _KeepsText()]
"""Field of an answer: a text, which keeps its template and fields."""


class Evidence(StrEnum):
    """How sure a result is."""

    EXACT = "exact"
    """The product's published rule, reproduced."""
    MODEL = "model"
    """Our model of something the vendor does not publish."""
    UNKNOWN = "unknown"
    """Not published and not modelled; counted as 0 and named."""


class Printed:
    """Base of answers that print as the text of the command line and display as its report.

    A dataclass among them sets ``repr=False``.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        text: str | None = import_module(SHOW).text_of(self)
        return super().__repr__() if text is None else text

    def __str__(self) -> str:
        return repr(self)

    def figure(self, name: str) -> Any:
        """Return a picture of the answer, such as ``cores`` of a plan.

        ``figure("cores").save("cores.svg")`` writes it as SVG, or as PNG with the optional library
        resvg_py. Raises UsageError with the names of the pictures for an unknown one.
        """
        return import_module(SHOW).figure_of(self, name)

    def _repr_html_(self) -> str:
        """Return the report for notebooks, or the text where there is no report."""
        html: str | None = import_module(SHOW).html_of(self)
        return f"<pre>{escape(repr(self))}</pre>" if html is None else html

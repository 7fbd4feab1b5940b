"""Base classes of answers: `Frozen` models, `Printed` output, `Evidence`, and `Tabular` rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from html import escape
from importlib import import_module
from types import NoneType
from typing import Annotated, Any, NamedTuple, TypeVar

from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic_core import core_schema

from npu_sim.language import Text
from npu_sim.status import UsageError, without_internal_frames

SHOW = "npu_sim.show"
"""Package that prints answers; programs that only read fields never import it."""
_INHERITED = frozenset(dir(BaseModel))
Progress = Callable[[str, float], None]
"""Function that long work calls with its stage and the fraction of it that is done."""


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
        return type(self), (dict(self),)


Value = TypeVar("Value")
FrozenDict = Annotated[dict[str, Value], AfterValidator(ReadOnlyDict)]
"""Type of a model field that is a read-only dict."""


class _KeepsText:
    """Annotation of a ``str`` field: pydantic would replace a Text by its sentence."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return core_schema.union_schema(
            [core_schema.is_instance_schema(Text), handler(source)], mode="left_to_right"
        )

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


class Coded(NamedTuple):
    """A column of codes, positions in ``names``."""

    codes: NDArray[Any]
    names: tuple[str, ...]


Columns = dict[str, Any]
"""Columns by name: arrays, lists, or :class:`Coded`."""


class Tabular:
    """Base of answers that consist of rows: sweeps, rows that can differ, preflights, profiles."""

    __slots__ = ()

    def table_columns(self) -> Columns:
        """Return the columns of the table."""
        raise NotImplementedError

    @without_internal_frames
    def to_pandas(self) -> Any:
        """Return the rows as a ``pandas.DataFrame``; codes become categories with their names.

        Raises UsageError when pandas is not installed.
        """
        pandas = required("pandas")
        return pandas.DataFrame(
            {name: _series(pandas, column) for name, column in self.table_columns().items()}
        )

    @without_internal_frames
    def to_arrow(self) -> Any:
        """Return the rows as a ``pyarrow.Table``; codes become dictionaries with their names.

        Raises UsageError when pyarrow is not installed.
        """
        pyarrow = required("pyarrow")
        return pyarrow.table(
            {name: arrow_array(column) for name, column in self.table_columns().items()}
        )


def required(library: str) -> Any:
    """Return an optional library; raise UsageError when it is not installed."""
    try:
        return import_module(library)
    except ImportError:
        raise UsageError(
            library, "{library} is not installed", "pip install {library}", library=library
        ) from None


def arrow_array(column: Any) -> Any:
    """Return a column as a ``pyarrow.Array``."""
    pyarrow = required("pyarrow")
    if isinstance(column, Coded):
        return pyarrow.DictionaryArray.from_arrays(*map(pyarrow.array, column))
    return pyarrow.array(column)


def _series(pandas: Any, column: Any) -> Any:
    if isinstance(column, Coded):
        return pandas.Categorical.from_codes(*column)
    if isinstance(column, list) and set(map(type, column)) == {int, NoneType}:
        return pandas.array(column, dtype="Int64")  # a list would become floats
    return column


def columns_of(records: Iterable[Mapping[str, Any]]) -> Columns:
    """Return the columns of records in JSON form; a missing value is None.

    A field of a nested record is a column of its own, such as ``time.bound_us``. Lists of records
    are left out.
    """
    rows = [dict(_flat(record)) for record in records]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    nested = {name.rpartition(".")[0] for name in names}  # where a record is missing, it is None
    return {
        name: column
        for name, column in columns.items()
        if name not in nested and not any(map(_has_records, column))
    }


def _flat(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _has_records(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value)

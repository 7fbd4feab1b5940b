"""Results of a sweep: a structured NumPy array that knows what its codes mean and which call each row is."""

from typing import Any, Self

import numpy as np

from npu_sim.sweeps.columns import RecordColumn
from npu_sim.sweeps.space import Space


class Records(np.ndarray):
    """One record a plan; ``records["block_dim"]`` is a plain array, ``records[7]`` one record.

    Attributes
    ----------
    space
        What was swept.
    columns
        The fields: type, meaning, and the words of those that hold codes.
    """

    space: Space
    columns: tuple[RecordColumn, ...]

    @classmethod
    def wrap(cls, array: np.ndarray, space: Space, columns: tuple[RecordColumn, ...]) -> Self:
        """View the records of a space."""
        records = array.view(cls)
        records.space, records.columns = space, columns
        return records

    def __array_finalize__(self, other: Any) -> None:
        self.space = getattr(other, "space", None)  # type: ignore[assignment]
        self.columns = getattr(other, "columns", ())

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self.view(np.ndarray)[key]
        return super().__getitem__(key)

    def words(self, name: str) -> np.ndarray:
        """Return a field with its codes replaced by words, for instance ``words("grad_dtype")``; other fields as they are."""
        column = next(column for column in self.columns if column.name == name)
        values: np.ndarray = self[name]
        return np.array(column.words)[values] if column.words else values

    def as_columns(self) -> dict[str, np.ndarray]:
        """Return the fields as separate contiguous arrays."""
        return {column.name: np.ascontiguousarray(self[column.name]) for column in self.columns}

"""Rows, columns or elements of an output that can differ between runs, and by how much."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from npu_sim.orders.claims import Parts
from npu_sim.plans.tables import Columns, Tabular

WORST_ROWS = 20
"""Number of rows shown; ``--rows-out`` writes all."""
FIELDS = np.dtype(
    [
        ("place", np.int64),
        ("element", np.int64),
        ("terms", np.int64),
        ("contributions", np.int64),
        ("cores", np.int64),
        ("lowest", np.float64),
        ("highest", np.float64),
        ("spread", np.float64),
        ("spread_ulp", np.int64),
        ("relative", np.float64),
    ]
)


@dataclass(frozen=True)
class VariableRows(Tabular):
    """Every row, column or element of one output that can differ between runs."""

    output: str
    """Name of the output."""
    axis: Literal["row", "column", "element"]
    """Unit of ``place``: ``row``, ``column`` or ``element``."""
    shape: tuple[int, ...]
    """Shape of the output."""
    units: int
    """Number of its rows, columns or elements."""
    table: NDArray[Any]
    """One record per row, column or element: its index ``place``; ``element``, the flat index of
    the element with the largest spread. For that element: the numbers of ``terms``,
    ``contributions`` and ``cores``; the ``lowest`` and ``highest`` result over the tried orders;
    their difference ``spread``, also in ulp of the output's dtype (``spread_ulp``) and ``relative``
    to the sum of the contributions' magnitudes."""

    def mask(self) -> NDArray[np.bool_]:
        """Return a boolean per row, column or element: True where it can differ."""
        mask = np.zeros(self.units, np.bool_)
        mask[self.table["place"]] = True
        return mask

    def worst(self, count: int = WORST_ROWS) -> NDArray[Any]:
        """Return the records with the largest spread in ulp, the largest first."""
        order = np.lexsort(
            (self.table["place"], -self.table["relative"], -self.table["spread_ulp"])
        )
        records: NDArray[Any] = self.table[order[:count]]
        return records

    def index_of(self, record: Any) -> tuple[int, ...]:
        """Return the index of a record's element in the output."""
        return tuple(int(at) for at in np.unravel_index(int(record["element"]), self.shape))

    def table_columns(self) -> Columns:
        """Return all records as columns of a table; ``element`` is an index in the output."""
        count, indices = len(self.table), np.unravel_index(self.table["element"], self.shape)
        return {
            "output": [self.output] * count,
            "axis": [self.axis] * count,
            **{name: self.table[name] for name in FIELDS.names or ()},
            "element": np.stack(indices, axis=1).tolist(),
        }

    def as_dicts(self, records: NDArray[Any] | None = None) -> list[dict[str, Any]]:
        """Return records as plain data; the worst ones by default."""
        chosen = self.worst() if records is None else records
        head = {"output": self.output, "axis": self.axis}
        return [
            {
                **head,
                **{name: record[name].item() for name in FIELDS.names or ()},
                "element": list(self.index_of(record)),
            }
            for record in chosen
        ]


NO_ROWS: NDArray[Any] = np.empty(0, FIELDS)
"""Records of an output whose order is fixed."""


def variable_rows_of(
    parts: Parts,
    lowest: NDArray[Any],
    highest: NDArray[Any],
    ulps: NDArray[Any],
    axis: str,
    shape: tuple[int, ...],
    units: int,
) -> NDArray[Any]:
    """Return the records of some parts of an output.

    ``lowest``, ``highest`` and ``ulps``, of shape (parts, columns), are the extreme results over
    the tried orders and their distance in ulp; ``axis`` and ``units`` are the unit of the records
    and their number in the output of that ``shape``.
    """
    begins = parts.starts[:-1]
    first = np.array(
        [np.ravel_multi_index(parts.locate(part, 0), shape) for part in range(parts.count)],
        np.int64,
    )
    changes = np.concatenate(([True], parts.cores[1:] != parts.cores[:-1]))
    changes[begins] = True
    facts = {
        "terms": np.add.reduceat(parts.terms, begins),
        "contributions": np.diff(parts.starts),
        "cores": np.add.reduceat(changes.astype(np.int64), begins),
    }
    sums = (
        np.add.reduceat(np.abs(parts.values), begins, axis=0, dtype=np.float64)
        * np.abs(parts.factors.astype(np.float64))[:, None]
    )
    if axis == "row":
        which, columns = np.arange(parts.count), np.argmax(ulps, axis=1)
    else:
        which, columns = (places.ravel() for places in np.indices(ulps.shape))
    table = np.empty(which.size, FIELDS)
    table["element"] = first[which] + columns
    table["place"] = table["element"] // (int(np.prod(shape)) // units)
    for name, values in facts.items():
        table[name] = values[which]
    table["lowest"], table["highest"] = lowest[which, columns], highest[which, columns]
    table["spread"] = table["highest"] - table["lowest"]
    table["spread_ulp"] = ulps[which, columns]
    magnitude = sums[which, columns]
    table["relative"] = np.divide(
        table["spread"], magnitude, out=np.zeros(which.size), where=magnitude > 0
    )
    return table

"""Where the columns of a preflight differ: path, cores, bits and time of the calls."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from npu_sim.language import Text, joined
from npu_sim.plans.model import RUNS
from npu_sim.questions.preflight.answers import Checked, Row
from npu_sim.questions.upgrades import changed_bits

BITS_OF_PRODUCTS = "rstd_differs_between_products"
"""Code of the caveat that a result has other bits on another product with the same plan."""


@dataclass(frozen=True)
class Difference:
    """One fact that is not the same on all columns."""

    fact: Literal["path", "cores", "bits", "time"]
    values: tuple[tuple[Any, tuple[str, ...]], ...]
    """Values of the fact, each with its columns; for ``bits``, what can differ between two."""
    rows: tuple[Row, ...]
    """Calls with this difference."""

    def as_dict(self) -> dict[str, Any]:
        """Return the difference as plain data."""
        values = [{"value": value, "targets": list(labels)} for value, labels in self.values]
        return {"fact": self.fact, "lines": [row.line for row in self.rows], "values": values}


def differences(rows: Iterable[Row]) -> list[Difference]:
    """Return where the columns differ; calls with equal differences are merged.

    Times and bits of another release are compared only in a preflight with timelines.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        for found in _of_row(row.cells):
            groups.setdefault(found, []).append(row)
    return [Difference(fact, values, tuple(alike)) for (fact, values), alike in groups.items()]


def _of_row(cells: Mapping[str, Checked]) -> Iterator[tuple[Any, ...]]:
    running = {label: cell for label, cell in cells.items() if cell.outcome == RUNS}
    for fact, values in (
        ("path", {label: cell.facts.get("path") for label, cell in running.items()}),
        ("cores", {label: cell.facts.get("block_dim") for label, cell in running.items()}),
        ("time", {label: _microseconds(cell) for label, cell in running.items()}),
    ):
        grouped = _grouped(values)
        if len(grouped) > 1:
            yield fact, grouped
    bits = tuple((text, (pair,)) for pair, text in _bits(running))
    if bits:
        yield "bits", bits


def _microseconds(checked: Checked) -> float | None:
    bound = checked.facts.get("time", {}).get("bound_us")
    return None if bound is None else round(bound, 2)


def _grouped(values: Mapping[str, Any]) -> tuple[tuple[Any, tuple[str, ...]], ...]:
    """Return distinct values with their labels; columns without a value are left out."""
    labels: dict[Any, list[str]] = {}
    for label, value in values.items():
        if value is not None:
            labels.setdefault(value, []).append(label)
    return tuple((value, tuple(found)) for value, found in labels.items())


def _bits(running: Mapping[str, Checked]) -> Iterator[tuple[str, str]]:
    """Yield the first column with another one, and the bits that can differ between them.

    Bits that differ because of the path or the number of cores are not named.
    """
    columns = list(running.items())
    for label, checked in columns[1:]:
        first, old = columns[0]
        pair = joined((first, label), " and ")
        if old.product != checked.product and BITS_OF_PRODUCTS in checked.facts.get("caveats", ()):
            yield pair, Text("the last bit of {output}", output="rstd")
        if old.planned is not None and checked.planned is not None:
            parts = changed_bits(old.planned, checked.planned)
            if parts:
                yield pair, joined(parts)

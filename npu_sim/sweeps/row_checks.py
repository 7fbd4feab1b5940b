"""Checking records of a sweep against the planner of a single call."""

import random
from typing import Any, NamedTuple

import numpy as np

from npu_sim.operators import plan
from npu_sim.status import AclnnError
from npu_sim.sweeps.records import RecordColumn
from npu_sim.sweeps.space import Space, places_of


class Mismatch(NamedTuple):
    """One field of one row that differs."""

    row: int
    field: str
    swept: Any
    planned: Any


def planned_record(space: Space, columns: tuple[RecordColumn, ...], row: int) -> dict[str, Any]:
    """Return the record of one row, computed without Numba."""
    position, *codes = space.codes_at(row)
    profile = space.profiles[position]
    planner = space.operator.planner
    planned_row = planner.make_row(*codes)
    sources = {
        "row": planned_row,
        "record": planner.plan_row(planned_row, profile.device, space.operator.rules(profile)),
        **{name: positions[position] for name, (_, positions) in places_of(space.profiles).items()},
    }
    return {column.name: _follow(sources, column.source) for column in columns}


def called_facts(space: Space, row: int) -> dict[str, Any]:
    """Return the fields that :func:`npu_sim.plan` reports about one row."""
    profile, values = space.call_at(row)
    try:
        planned = plan(
            space.operator.name, product=profile, **space.operator.plan_arguments(values)
        )
    except AclnnError as error:
        return {"status": int(error.status)}
    facts: dict[str, Any] = {
        "status": 0,
        "block_dim": planned.block_dim,
        "total_workspace_bytes": planned.workspace.total_bytes,
    }
    if planned.tiling_key is not None:
        facts |= {
            "tiling_key": planned.tiling_key,
            "workspace_bytes": planned.workspace.kernel_bytes,
        }
    return facts


def compare_row(
    space: Space, columns: tuple[RecordColumn, ...], row: int, record: Any
) -> list[Mismatch]:
    """Compare one record with the Python planner and with :func:`npu_sim.plan`."""
    expected = planned_record(space, columns, row)
    if _fits(expected, columns):
        expected = {column.name: column.dtype.type(expected[column.name]) for column in columns}
    swept = {column.name: record[column.name] for column in columns}
    expected |= {name: value for name, value in called_facts(space, row).items() if name in swept}
    return [
        Mismatch(row, name, swept[name].item(), _plain(expected[name]))
        for name in swept
        if swept[name] != expected[name]
    ]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _fits(expected: dict[str, Any], columns: tuple[RecordColumn, ...]) -> bool:
    """Return whether every integer fits its field."""
    for column in columns:
        if column.dtype.kind == "i":
            limits = np.iinfo(column.dtype)
            if not limits.min <= expected[column.name] <= limits.max:
                return False
    return True


def sampled_rows(count: int, total: int, seed: int = 0) -> list[int]:
    """Return random row numbers below ``total``, without repetition, in order."""
    return sorted(random.Random(seed).sample(range(total), min(count, total)))


def _follow(sources: dict[str, Any], path: str) -> Any:
    """Return the value at a path such as ``record.tiling.block_dim``."""
    first, *names = path.split(".")
    value = sources[first]
    for name in names:
        value = getattr(value, name)
    return value

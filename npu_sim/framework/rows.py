"""A call as integers: the row of a sweep, the rules of a product, and the planner of one row.

All of it follows from an operator's declaration. The functions are generated as source and executed
once: checks of a declaration are expressions, and Numba cannot compile a loop over them. Nothing
here imports Numba; :mod:`npu_sim.sweeps.compile` compiles the functions.
"""

import re
from collections import namedtuple
from collections.abc import Callable
from typing import Any, NamedTuple

from npu_sim.framework import checks
from npu_sim.framework.axes import COMMON_AXES
from npu_sim.framework.expressions import evaluate, names
from npu_sim.tiling.fields import FP32_VALUE, STATUS, SUCCESS, Column, Field, nothing, table

PASSES = -1
"""Result of ``refused`` for a call that passes every check; a status is 0 or more."""
OVERFLOWS = Field(
    "1 when the call runs and its buffers take more than the Unified Buffer has, which the product "
    "does not check",
    "1",
)


class RowPlanner(NamedTuple):
    """The functions of an operator that sweeps compile."""

    row: Any
    """NamedTuple of a call."""
    rules: Any
    """NamedTuple of the rules of a product."""
    record: Any
    """NamedTuple of the plan."""
    make_row: Callable[..., Any]
    """The row of the codes of all axes."""
    refused: Callable[[Any, Any, Any], int]
    """``refused(row, device, rules)``: the status of the first check that refuses or ends the call;
    ``PASSES`` when none does."""
    plan_row: Callable[[Any, Any, Any], Any]
    """``plan_row(row, device, rules) -> record``: the whole contract and the planner."""
    columns: tuple[Column, ...]
    """The record, column by column."""
    source: str
    """Text of the functions."""


def row_planner(operator: Any) -> RowPlanner:
    """Make the row planner of an operator."""
    axes = (*operator.axes, *COMMON_AXES)
    row = _named(
        "Row", [*(axis.name for axis in axes), *(derived.name for derived in operator.derived)]
    )
    rules = _named("Rules", ["supported", "dtypes", *operator.rule_names])
    record = _named("Record", ["status", "overflows", "tiling"])
    scope: dict[str, Any] = {
        "Row": row,
        "Record": record,
        "NOTHING": nothing(operator.tiling),
        "tile": operator.tile,
    }
    source = "\n".join(
        [
            *_make_row_lines(operator, axes),
            *_refused_lines(operator, scope),
            *_plan_row_lines(operator, scope),
        ]
    )
    # Names, numbers and expressions parsed by framework.expressions, from a declaration that is
    # Python code itself.
    exec(source, scope)
    make_row, refused, plan_row = functions = [
        scope[name] for name in ("make_row", "refused", "plan_row")
    ]
    for function in functions:
        function.__module__ = __name__
    return RowPlanner(
        row, rules, record, make_row, refused, plan_row, plan_columns(operator), source
    )


def _named(name: str, fields: list[str]) -> Any:
    """Make a NamedTuple whose fields are only known from a declaration."""
    return namedtuple(name, fields)


def _make_row_lines(operator: Any, axes: tuple[Any, ...]) -> list[str]:
    """Write the function from codes to a row: derived numbers follow from the others."""
    parameters = ", ".join(axis.name for axis in axes)
    values = [axis.name for axis in axes] + [
        f"({_inlined(operator, derived.name)})" for derived in operator.derived
    ]
    return [f"def make_row({parameters}):", f"    return Row({', '.join(values)})"]


def _inlined(operator: Any, name: str) -> str:
    """Return a derived number over axes alone."""
    derived = {derived.name: derived.swept for derived in operator.derived}
    text = str(derived[name])
    for other in names(text):
        if other in derived:
            text = re.sub(rf"\b{other}\b", f"({_inlined(operator, other)})", text)
    return text


def _refused_lines(operator: Any, scope: dict[str, Any]) -> list[str]:
    """Write the contract in its order; functions that checks call go into ``scope``."""
    lines = ["def refused(row, device, rules):"]
    dtypes_checked = False
    for check in operator.checks:
        if isinstance(check, checks.DtypeCheck):
            if not dtypes_checked and operator.dtype_axes:
                lines += _refusal(
                    int(check.status), f"(rules.dtypes >> ({_dtype_code(operator)})) & 1 == 0"
                )
            dtypes_checked = True
            continue
        found = check.row_check(operator) if isinstance(check, checks.Check) else None
        if found is not None:
            scope.update(found.functions)
            lines += _refusal(int(found.status), found.ends)
    return [*lines, f"    return {PASSES}"]


def _plan_row_lines(operator: Any, scope: dict[str, Any]) -> list[str]:
    """Write the contract and the planner."""
    lines = [
        "def plan_row(row, device, rules):",
        "    status = refused(row, device, rules)",
        f"    if status != {PASSES}:",
        "        return Record(status, 0, NOTHING)",
        "    tiling = tile(row, device, rules)",
        f"    if tiling.status != {SUCCESS}:",
        f"        return Record({int(operator.planner_failure)}, 0, NOTHING)",
    ]
    if operator.used_bytes is None:
        return [*lines, "    return Record(0, 0, tiling)"]
    scope["used_bytes"] = operator.used_bytes
    return [
        *lines,
        "    used = used_bytes(row, tiling, device, rules)",
        "    return Record(0, int(used > device.ub_bytes), tiling)",
    ]


def _refusal(status: int, condition: str) -> list[str]:
    return [f"    if {condition}:", f"        return {status}"]


def _dtype_code(operator: Any) -> str:
    """Return the position of a combination of dtypes, the last axis fastest."""
    text = ""
    for axis in operator.dtype_axes:
        text = f"row.{axis.name}" if not text else f"{len(axis.words)} * ({text}) + row.{axis.name}"
    return text


def plan_columns(operator: Any) -> tuple[Column, ...]:
    """Return the columns of a sweep: status, overflow, then every bounded field of the tiling."""
    fields = [
        column
        for column in table(operator.tiling)
        if column.field.bound and not column.path.endswith("status")
    ]
    inner = [
        Column(f"tiling.{column.path}", column.name, column.kind, column.field) for column in fields
    ]
    overflows = (
        () if operator.used_bytes is None else (Column("overflows", "overflows", int, OVERFLOWS),)
    )
    return (Column("status", "status", int, STATUS), *overflows, *inner)


def bound_of(operator: Any, field: Field, most: Any) -> int | None:
    """Return the largest magnitude of a field for the largest inputs; None for fp32 values."""
    bounds = operator.bounds
    if field.bound == FP32_VALUE:
        return None
    return int(
        evaluate(
            field.bound, lambda name: bounds[name](most) if name in bounds else getattr(most, name)
        )
    )

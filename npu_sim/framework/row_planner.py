"""Contract and planner of an operator, applied to integers alone, for sweeps.

:func:`row_planner` makes functions of the checks of a declaration in their integer form: as source
that is executed once, because checks are expressions, and Numba cannot compile a loop over them.
Nothing here imports Numba; :mod:`npu_sim.sweeps.compile` compiles the functions.
"""

import re
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from npu_sim.framework import checks, patterns
from npu_sim.framework.arguments import COMMON_AXES, INT64_MAX, Output, Tensor, evaluate, names
from npu_sim.framework.case import row_type
from npu_sim.framework.operator import Operator
from npu_sim.numbers.formats import TensorSpec
from npu_sim.tiling.common import FP32_VALUE, STATUS, SUCCESS, Column, Field, nothing, table

PASSES = -1
"""Result of ``refused`` for a call that passes every check; a status is 0 or more."""
OVERFLOWS = Field(
    "1 when the call runs and its buffers take more than the Unified Buffer has, which the product "
    "does not check",
    "1",
)
UNCOUNTABLE = -1
"""Status of a call with a tensor that int64 does not count, a usage error of npu_sim.plan."""
SURELY_BEYOND, NEARLY_BEYOND = 1e19, 9e18
"""Numbers above and below 2^63, both below 2^64, so that a product between them wraps once."""


class RowPlanner(NamedTuple):
    """The functions of an operator that sweeps compile."""

    row: Any
    """NamedTuple of a call."""
    record: Any
    """NamedTuple of the plan."""
    make_row: Callable[..., Any]
    """The row of the codes of all axes."""
    refused: Callable[[Any, Any, Any], int]
    """``refused(row, device, rules)``: the status of the first check that refuses or ends the call;
    ``PASSES`` when none does."""
    plan_row: Callable[[Any, Any, Any], Any]
    """``plan_row(row, device, rules) -> record``: the whole contract and the planner."""
    plan_counted: Callable[[Any, Any, Any], Any]
    """As ``plan_row``, but the status of a call with a tensor of more than 2^63-1 bytes is
    ``UNCOUNTABLE``, unless contract or planner refuse it."""
    columns: tuple[Column, ...]
    """The record, column by column."""
    source: str
    """Text of the functions."""


@cache
def row_planner(operator: Operator) -> RowPlanner:
    """Make the row planner of an operator."""
    axes, row = (*operator.axes, *COMMON_AXES), row_type(operator)
    record = namedtuple("record", ["status", "overflows", "tiling"])
    scope: dict[str, Any] = {
        "Row": row,
        "Record": record,
        "NOTHING": nothing(operator.tiling),
        "tile": operator.tile,
        "is_uncountable": is_uncountable,
    }
    source = "\n".join(
        [
            *_make_row_lines(operator, axes),
            *_refused_lines(operator, scope),
            *_plan_row_lines(operator, scope),
            *_plan_counted_lines(operator),
        ]
    )
    # Names, numbers and expressions parsed by framework.arguments, from a declaration that is
    # Python code itself.
    exec(source, scope)
    make_row, refused, plan_row, plan_counted = functions = [
        scope[name] for name in ("make_row", "refused", "plan_row", "plan_counted")
    ]
    for function in functions:
        function.__module__ = __name__
    columns = plan_columns(operator)
    return RowPlanner(row, record, make_row, refused, plan_row, plan_counted, columns, source)


def _make_row_lines(operator: Operator, axes: tuple[Any, ...]) -> list[str]:
    """Write the function from codes to a row: derived numbers follow from the others."""
    parameters = ", ".join(axis.name for axis in axes)
    values = [axis.name for axis in axes] + [
        f"({_inlined(operator, derived.name)})" for derived in operator.derived
    ]
    return [f"def make_row({parameters}):", f"    return Row({', '.join(values)})"]


def _inlined(operator: Operator, name: str) -> str:
    """Return a derived number over axes alone."""
    derived = {derived.name: derived.swept for derived in operator.derived}
    text = str(derived[name])
    for other in names(text):
        if other in derived:
            text = re.sub(rf"\b{other}\b", f"({_inlined(operator, other)})", text)
    return text


def _refused_lines(operator: Operator, scope: dict[str, Any]) -> list[str]:
    """Write the contract in its order; functions that checks call go into ``scope``."""
    lines = ["def refused(row, device, rules):"]
    dtypes_checked = False
    for declared in operator.checks:
        if isinstance(declared, checks.DtypeCheck):
            if not dtypes_checked and operator.dtype_axes:
                lines += _refusal(
                    int(declared.status), f"(rules.dtypes >> ({_dtype_code(operator)})) & 1 == 0"
                )
            dtypes_checked = True
            continue
        found = declared.row_check(operator) if isinstance(declared, checks.Check) else None
        if found is not None:
            scope.update(found.functions)
            lines += _refusal(int(found.status), found.ends)
    return [*lines, f"    return {PASSES}"]


def _plan_row_lines(operator: Operator, scope: dict[str, Any]) -> list[str]:
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


def _plan_counted_lines(operator: Operator) -> list[str]:
    """Write the planner that looks for tensors of more than 2^63-1 bytes."""
    return [
        "def plan_counted(row, device, rules):",
        f"    if {_uncountable(operator, operator.inputs)}:",
        f"        return Record({UNCOUNTABLE}, 0, NOTHING)",
        "    record = plan_row(row, device, rules)",
        f"    if record.status == 0 and ({_uncountable(operator, operator.outputs)}):",
        f"        return Record({UNCOUNTABLE}, 0, NOTHING)",
        "    return record",
    ]


def _uncountable(operator: Operator, tensors: Iterable[Tensor]) -> str:
    """Return the test whether one of these tensors has more bytes than an int64 counts."""
    return " or ".join(dict.fromkeys(_uncountable_tests(operator, tensors))) or "False"


def _uncountable_tests(operator: Operator, tensors: Iterable[Tensor]) -> Iterator[str]:
    """Yield the test of each of these tensors."""
    values = operator.defaults() | {entry.name: entry.default for entry in operator.attributes}
    switches = {tensor: axis for axis, tensor in operator.switches.items()}
    words = {axis.name: axis.words for axis in operator.dtype_axes}
    for tensor in tensors:
        switch = switches.get(getattr(tensor, "given_with", "") or tensor.name)
        if tensor.optional and switch is None:
            continue
        conditions = [f"row.{switch}"] if switch else []
        if isinstance(tensor, Output) and tensor.written_for[0]:
            attribute, chosen = tensor.written_for
            codes = tuple(map(operator.axis(attribute).code, chosen))
            conditions.append(f"row.{attribute} in {codes}")
        sizes = [
            f"row.{token.name} * {token.times} // {token.over}"
            for token in patterns.parse(tensor.pattern(values))
            if not token.kind.startswith("1")
        ]
        dtypes = words.get(tensor.dtype, (tensor.dtype,))
        item_bytes = tuple(TensorSpec((), dtype).nbytes for dtype in dtypes)
        item = f"{item_bytes}[row.{tensor.dtype}]" if tensor.dtype in words else item_bytes[0]
        test = f"is_uncountable(({', '.join([str(item), *sizes])},))"
        yield " and ".join([*conditions, test])


def is_uncountable(factors: Any) -> Any:
    """Return whether a product is above 2^63-1, also where it is one of int64, which wraps."""
    product, estimate = 1, 1.0
    for factor in factors:
        product *= factor
        estimate *= factor
    return estimate > SURELY_BEYOND or (estimate > NEARLY_BEYOND and not 0 <= product <= INT64_MAX)


def _refusal(status: int, condition: str) -> list[str]:
    return [f"    if {condition}:", f"        return {status}"]


def _dtype_code(operator: Operator) -> str:
    """Return the position of a combination of dtypes, the last axis fastest."""
    text = ""
    for axis in operator.dtype_axes:
        text = f"row.{axis.name}" if not text else f"{len(axis.words)} * ({text}) + row.{axis.name}"
    return text


def plan_columns(operator: Operator) -> tuple[Column, ...]:
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


def bound_of(operator: Operator, field: Field, most: Any) -> int | None:
    """Return the largest magnitude of a field for the largest inputs; None for fp32 values."""
    bounds = operator.bounds
    if field.bound == FP32_VALUE:
        return None
    return int(
        evaluate(
            field.bound, lambda name: bounds[name](most) if name in bounds else getattr(most, name)
        )
    )

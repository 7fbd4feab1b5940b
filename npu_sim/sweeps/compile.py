"""Compile planners with Numba, and the loop that fills the records of a sweep.

Planners are plain Python and never import Numba. :func:`make_jitable` makes them callable from
compiled code; the functions themselves stay as they are, so a sweep and a plan run the same
definitions. The compiled loop is cached on disk like a kernel, because compiling a planner takes
seconds.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from inspect import isfunction
from types import ModuleType
from typing import Any

import numba
import numpy as np
from numba.extending import register_jitable

from npu_sim.cores import Device
from npu_sim.framework.checking import rules_type
from npu_sim.framework.operator import Operator
from npu_sim.framework.row_planner import row_planner
from npu_sim.kernels.engine.cache import KernelCache, outside_digest
from npu_sim.kernels.engine.codegen import DeviceCompiler
from npu_sim.kernels.engine.compile import PLAIN
from npu_sim.sweeps import space
from npu_sim.sweeps.space import RecordColumn

LIBRARIES = ("numpy", "math")
"""Modules whose functions Numba supports itself."""
LOOP_OPTIONS = {"nogil": True, "error_model": "numpy"}
PLANNER_OPTIONS: dict[str, Any] = LOOP_OPTIONS | {
    "forceinline": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,
}
"""Options of registered functions. Inlined into the loop, a tiling of dozens of numbers stays in
registers. Without wrappers and reference counting they compile faster; planners need neither."""
if not PLAIN:
    # LLVM optimises the loop once, as a whole. Optimising each function before takes twice as long,
    # and some loops are then a fifth slower.
    PLANNER_OPTIONS["pipeline_class"] = DeviceCompiler


@cache
def make_jitable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a planner function, and every function that it calls, callable from compiled code."""
    found = [function]
    for reached in found:  # grows: a function may name one that names it
        _register(reached)
        called = _called(reached.__globals__, reached.__code__.co_names)
        found += [one for one in dict.fromkeys(called) if one not in found]
    return function


@cache
def _register(function: Callable[..., Any]) -> None:
    register_jitable(**PLANNER_OPTIONS)(function)


def _called(namespace: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[Callable[..., Any]]:
    """Yield the functions among the names of a namespace, also those in modules it imports."""
    for value in (namespace[name] for name in names if name in namespace):
        if isinstance(value, ModuleType):
            if value.__name__.partition(".")[0] not in LIBRARIES:
                yield from _called(vars(value), names)
        elif isfunction(value) and value.__module__.partition(".")[0] not in LIBRARIES:
            yield value


@lru_cache(maxsize=32)
def fill_function(
    operator: Operator, columns: tuple[RecordColumn, ...], sampled: bool, counted: bool = False
) -> Any:
    """Return the compiled function ``fill(out, first, ...)``; see :func:`fill_source`.

    ``counted``: whether it looks for tensors of more bytes than an int64 counts.
    """
    planner = row_planner(operator)
    source = fill_source(operator, columns, sampled)
    scope: dict[str, Any] = {
        "__name__": __name__,
        "plan_row": make_jitable(planner.plan_counted if counted else planner.plan_row),
        "make_row": make_jitable(planner.make_row),
        "Device": Device,
        "Rules": rules_type(operator),
        "random_bits": random_bits,
        "scaled": make_jitable(space.scaled),
        "logarithmic": make_jitable(space.logarithmic),
    }
    exec(source, scope)  # generated above: field names of NamedTuples
    fill: Any = numba.njit(**LOOP_OPTIONS)(scope["fill"])
    if not numba.config.DISABLE_JIT:
        planners = outside_digest(operator.tile, planner.refused, planner.plan_row)
        sources = hashlib.sha256((source + planner.source).encode()).hexdigest()
        fill._cache = KernelCache(scope["fill"], digest=planners and planners + sources)
    return fill


def fill_source(operator: Operator, columns: tuple[RecordColumn, ...], sampled: bool) -> str:
    """Return the source of the loop over the rows ``first, first + 1, ...`` of a space.

    The loop counts the positions of all axes up like an odometer, so no row needs a division. In a
    sample, positions are drawn from the row number. ``table`` holds the listed codes of all axes,
    and ``offsets`` the start of each axis in it, -1 for an axis given by start and step. Index 0 of
    the per-axis arrays is the device.
    """
    axes = range(1, len(operator.all_axes) + 1)
    draws: list[str] = []
    begin, advance = _first_position(axes), _advance(len(axes))
    if sampled:
        draws, begin, advance = _draws(axes), [], []
    body = [
        *draws,
        *_codes(axes),
        f"device = Device({_loads('devices', len(Device._fields))})",
        f"switches = Rules({_loads('rules', len(rules_type(operator)._fields))})",
        f"row = make_row({', '.join(f'c{axis}' for axis in axes)})",
        "record = plan_row(row, device, switches)",
        "product, soc, release = places[0, d0], places[1, d0], places[2, d0]",
        "target = out[i]",
        *(f"target.{column.name} = {column.source}" for column in columns),
    ]
    arrays = "counts, starts, steps, offsets, table, logs, keys, devices, rules, places"
    lines = [
        f"def fill(out, first, {arrays}):",
        *(f"    n{axis} = counts[{axis}]" for axis in (0, *axes)),
        *(f"    offset{axis} = offsets[{axis}]" for axis in axes),
        *begin,
        "    for i in range(out.shape[0]):",
        *("        " + line for line in body),
        *advance,
    ]
    return "\n".join(lines) + "\n"


def _loads(array: str, count: int) -> str:
    return ", ".join(f"{array}[d0, {position}]" for position in range(count))


def _first_position(axes: range) -> list[str]:
    """Split the first row number into positions, the last axis fastest."""
    lines = ["    rest = first"]
    for axis in reversed(axes):
        lines += [f"    d{axis} = rest % n{axis}", f"    rest = rest // n{axis}"]
    return [*lines, "    d0 = rest"]


def _codes(axes: range) -> list[str]:
    """Turn positions into codes."""
    return [
        f"c{axis} = table[offset{axis} + d{axis}] if offset{axis} >= 0"
        f" else starts[{axis}] + steps[{axis}] * d{axis}"
        for axis in axes
    ]


def _draws(axes: range) -> list[str]:
    """Draw a random position of the device and of every axis."""
    lines = ["d0 = scaled(random_bits(keys[0], first + i), n0)"]
    for axis in axes:
        start = f"starts[{axis}]"
        lines += [
            f"d{axis} = 0",
            f"if n{axis} > 1:",
            f"    draw = random_bits(keys[{axis}], first + i)",
            f"    if logs[{axis}]:",
            f"        d{axis} = logarithmic(draw, {start}, {start} + n{axis} - 1) - {start}",
            "    else:",
            f"        d{axis} = scaled(draw, n{axis})",
        ]
    return lines


def _advance(last: int) -> list[str]:
    """Step to the next combination: the last axis first, carrying to the one before."""
    lines, indent = [], "        "
    for axis in range(last, 0, -1):
        lines += [
            f"{indent}d{axis} += 1",
            f"{indent}if d{axis} == n{axis}:",
            f"{indent}    d{axis} = 0",
        ]
        indent += "    "
    return [*lines, f"{indent}d0 += 1"]


@make_jitable
def random_bits(key: Any, row: Any) -> Any:
    """Return the random 64-bit number of a row under a key."""
    return space.mix(np.uint64(key) + np.uint64(row) * np.uint64(space.STEP))


COMMA, NEWLINE, MINUS, ZERO = ord(","), ord("\n"), ord("-"), ord("0")


@numba.njit(nogil=True)
def write_lines(text, values, first_words, words, ends):  # type: ignore[no-untyped-def]
    """Write one line per record; return the number of bytes written."""
    place = 0
    columns, rows = values.shape
    for row in range(rows):
        for column in range(columns):
            value = values[column, row]
            if first_words[column] >= 0:
                word = first_words[column] + value
                for position in range(ends[word], ends[word + 1]):
                    text[place] = words[position]
                    place += 1
            else:
                place = _write_number(text, place, value)
            text[place] = COMMA
            place += 1
        text[place - 1] = NEWLINE
    return place


@numba.njit(nogil=True)
def _write_number(text, place, value):  # type: ignore[no-untyped-def]
    """Write an integer; return the position after it."""
    if value < 0:
        text[place] = MINUS
        place += 1
        value = -value
    left = np.uint64(value)
    ten = np.uint64(10)
    last = place
    probe = left // ten
    while probe > 0:
        probe //= ten
        last += 1
    for position in range(last, place - 1, -1):
        text[position] = ZERO + left % ten
        left //= ten
    return last + 1


if not numba.config.DISABLE_JIT:  # compiling takes longer than a sweep of a few calls
    write_lines._cache = KernelCache(write_lines.py_func)

"""Compile planners with Numba, and the loop that fills the records of a sweep."""

import hashlib
from collections.abc import Callable
from functools import cache, lru_cache
from types import FunctionType, ModuleType
from typing import Any

import numba
import numpy as np

from npu_sim.cores import Device
from npu_sim.framework.operator import Operator
from npu_sim.kernels.engine.cache import KernelCache, own_digest
from npu_sim.kernels.engine.device import device_function
from npu_sim.sweeps.records import RecordColumn

STEP = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
SHIFT_30, SHIFT_27, SHIFT_31, SHIFT_32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
TWO_TO_32 = 1 << 32


def mix(key: Any, row: Any) -> Any:
    """Return the random 64-bit number of a row under a key (splitmix64)."""
    state = np.uint64(key) + np.uint64(row) * STEP
    state = (state ^ (state >> SHIFT_30)) * FIRST
    state = (state ^ (state >> SHIFT_27)) * SECOND
    return state ^ (state >> SHIFT_31)


def scaled(draw: Any, count: Any) -> Any:
    """Map a random number to ``range(count)``."""
    if count <= TWO_TO_32:
        return np.int64(((draw >> SHIFT_32) * np.uint64(count)) >> SHIFT_32)
    return np.int64(draw % np.uint64(count))


def bit_length(number: Any) -> Any:
    """Return how many bits a number of 0 or more has."""
    bits = 0
    while number > 0:
        number >>= 1
        bits += 1
    return bits


def logarithmic(draw: Any, low: Any, high: Any) -> Any:
    """Map a random number to ``low .. high``: first the number of bits, then a number of that many bits."""
    shortest = bit_length(low)
    bits = shortest + scaled(draw, bit_length(high) - shortest + 1)
    least, most = max(low, (1 << bits) >> 1), min(high, (1 << bits) - 1)
    return least + scaled(mix(draw, 1), most - least + 1)


LIBRARIES = ("numpy", "math")
"""Modules whose functions Numba knows by itself."""


@cache
def compiled(function: Callable[..., Any], inline: bool = True) -> Any:
    """Return the compiled twin of a planner function.

    With ``inline`` it becomes part of its caller, and is optimised there only: a tiling is a few dozen numbers, which would otherwise
    travel through memory. A planner of many functions that call each other from several places compiles in reasonable time, and to
    fast code, only without.
    """
    assert isinstance(function, FunctionType)
    names = set(function.__code__.co_names)
    scope = {
        name: _compiled_global(value, names, inline)
        for name, value in function.__globals__.items()
        if name in names
    }
    twin = FunctionType(
        function.__code__,
        {**scope, "__builtins__": __builtins__},
        function.__name__,
        function.__defaults__,
    )
    twin.__module__ = function.__module__
    if inline:
        return device_function(
            twin, no_rewrites=False
        )  # without rewriting, slices of tuples have no type
    return numba.njit(
        nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
    )(twin)


def _compiled_global(value: Any, names: set[str], inline: bool) -> Any:
    """Replace a plain function, also inside a module of planners, by its compiled twin; libraries are left to Numba."""
    if isinstance(value, FunctionType) and value.__module__.partition(".")[0] not in LIBRARIES:
        return compiled(value, inline)
    if isinstance(value, ModuleType) and value.__name__.partition(".")[0] not in LIBRARIES:
        twin = ModuleType(value.__name__)
        for name in names & vars(value).keys():
            setattr(twin, name, _compiled_global(getattr(value, name), names, inline))
        return twin
    return value


@lru_cache(maxsize=32)
def fill_function(operator: Operator, columns: tuple[RecordColumn, ...], sampled: bool) -> Any:
    """Return the compiled function that fills records, ``fill(out, first, ...)``; see :func:`fill_source`. It is kept on disk."""
    source = fill_source(operator, columns, sampled)
    scope: dict[str, Any] = {
        "__name__": __name__,
        "plan_row": compiled(operator.planner.plan_row, operator.inline),
        "make_row": compiled(operator.planner.make_row),
        "Device": Device,
        "Rules": operator.planner.rules,
        "mix": numba.njit(forceinline=True)(mix),
        "scaled": numba.njit(forceinline=True)(scaled),
        "logarithmic": compiled(logarithmic),
    }
    exec(source, scope)  # our own text: field names of NamedTuples
    filling: Any = numba.njit(nogil=True, error_model="numpy")(scope["fill"])
    if not numba.config.DISABLE_JIT:
        planners = own_digest(operator.tile.__module__, operator.tile.__code__.co_filename)
        texts = hashlib.sha256((source + operator.planner.source).encode()).hexdigest()
        filling._cache = KernelCache(scope["fill"], own=planners and planners + texts)
    return filling


def fill_source(operator: Operator, columns: tuple[RecordColumn, ...], sampled: bool) -> str:
    """Write the loop over the rows ``first, first + 1, ...`` of a space, one record each.

    The position along every axis is counted up like an odometer, so that no row costs a division to find its place; in a sample
    it is drawn from the row's number. ``table`` holds listed codes of all axes, ``offsets`` where those of each axis start (-1 for
    axes given by start and step); index 0 of ``counts`` is the profile.
    """
    axes = range(1, len(operator.all_axes) + 1)
    rules = operator.planner.rules
    lines = [
        "def fill(out, first, counts, starts, steps, offsets, table, logs, keys, devices, rules, places):"
    ]
    body = [*_draws(axes), *_codes(axes)] if sampled else _codes(axes)
    lines += [f"    n{axis} = counts[{axis}]" for axis in (0, *axes)]
    lines += [f"    offset{axis} = offsets[{axis}]" for axis in axes]
    if not sampled:
        lines.append("    rest = first")
        for axis in reversed(axes):
            lines += [f"    d{axis} = rest % n{axis}", f"    rest = rest // n{axis}"]
        lines.append("    d0 = rest")
    lines.append("    for i in range(out.shape[0]):")
    body += [
        f"device = Device({_loads('devices', len(Device._fields))})",
        f"facts = Rules({_loads('rules', len(rules._fields))})",
        f"row = make_row({', '.join(f'c{axis}' for axis in axes)})",
        "record = plan_row(row, device, facts)",
        "product, soc, release = places[0, d0], places[1, d0], places[2, d0]",
        "target = out[i]",
        *(f"target.{column.name} = {column.source}" for column in columns),
    ]
    lines += ["        " + line for line in body]
    return "\n".join(lines + ([] if sampled else _advance(len(axes)))) + "\n"


def _loads(array: str, count: int) -> str:
    return ", ".join(f"{array}[d0, {position}]" for position in range(count))


def _codes(axes: range) -> list[str]:
    """Turn positions into codes; a logarithmic axis has drawn its code already."""
    return [
        f"c{axis} = table[offset{axis} + d{axis}] if offset{axis} >= 0 else starts[{axis}] + steps[{axis}] * d{axis}"
        for axis in axes
    ]


def _draws(axes: range) -> list[str]:
    lines = ["d0 = scaled(mix(keys[0], first + i), n0)"]
    for axis in axes:
        lines += [
            f"d{axis} = 0",
            f"if n{axis} > 1:",
            f"    draw = mix(keys[{axis}], first + i)",
            f"    if logs[{axis}]:",
            f"        d{axis} = logarithmic(draw, starts[{axis}], starts[{axis}] + n{axis} - 1) - starts[{axis}]",
            "    else:",
            f"        d{axis} = scaled(draw, n{axis})",
        ]
    return lines


def _advance(last: int) -> list[str]:
    """Step to the next combination: the last axis first, carrying to the one before it when it wraps."""
    lines, indent = [], "        "
    for axis in range(last, 0, -1):
        lines += [
            f"{indent}d{axis} += 1",
            f"{indent}if d{axis} == n{axis}:",
            f"{indent}    d{axis} = 0",
        ]
        indent += "    "
    return [*lines, f"{indent}d0 += 1"]

"""The code of a function and the values compiled into it, as bytes that identify both.

Numba compiles the variables that a function reads from its module or from an enclosing function as
constants. Source files do not determine those that are arguments of a factory, or that come from
the command line, the environment or a data file.
"""

from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba import types

KNOWN = {"npu_sim", "numpy", "numba", "math"}
"""Packages whose names, with their version or source, determine what they stand for."""
SCALARS = (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype, types.Type)


class UnknownValueError(ValueError):
    """A function reads a value that cannot be described as bytes."""


def constants(*functions: Callable[..., Any]) -> bytes:
    """Return the code of functions and of all that they call, with the values that they read.

    Raises
    ------
    ValueError
        For values other than numbers, text, arrays, functions, types, modules and tuples of these.
    """
    seen: set[int] = set()
    return "\n".join(line for one in functions for line in _of_function(one, seen)).encode()


def _of_function(function: Any, seen: set[int]) -> Iterator[str]:
    if id(function) in seen:
        return
    seen.add(id(function))
    names: set[str] = set()
    yield from _of_code(function.__code__, names)
    variables = {name: function.__globals__[name] for name in names & function.__globals__.keys()}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    variables |= {name: cell.cell_contents for name, cell in cells}
    variables["default values"] = function.__defaults__
    for name, value in sorted(variables.items()):
        yield name
        yield from _of_value(value, names, seen)


def _of_code(code: CodeType, names: set[str]) -> Iterator[str]:
    """Describe the code of a function and of the functions in it; collect the names it uses."""
    names.update(code.co_names)
    yield f"{code.co_qualname} {code.co_code.hex()} {code.co_names} {code.co_varnames}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _of_code(constant, names)
        else:
            yield repr(constant)


def _of_value(value: Any, names: set[str], seen: set[int]) -> Iterator[str]:
    """Describe a value; of a module, its variables with these names."""
    function = getattr(value, "py_func", value)  # of a compiled function
    module = (
        value.__name__ if isinstance(value, ModuleType) else getattr(function, "__module__", "")
    )
    is_known = str(module).partition(".")[0] in KNOWN
    if isinstance(value, SCALARS):
        yield f"{type(value).__qualname__} {value!r}"
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape} {value.tobytes().hex()}"
    elif isinstance(value, tuple):
        yield f"{type(value).__qualname__} of {len(value)}"
        for element in value:
            yield from _of_value(element, names, seen)
    elif isinstance(value, ModuleType) and not is_known:
        for name in sorted(names & vars(value).keys()):
            yield name
            yield from _of_value(vars(value)[name], names, seen)
    elif isinstance(function, FunctionType) and not is_known:
        yield from _of_function(function, seen)
    elif is_known or isinstance(value, type | BuiltinFunctionType):
        yield f"{module}.{value.__name__} {getattr(value, '_fields', '')}"
    else:
        raise UnknownValueError(type(value).__name__)

"""Compile a planner as it is: planners promise that Numba can, without importing it."""

from types import FunctionType

from numba import njit

_COMPILED = {}


def compiled(function):
    """The function compiled by Numba, and with it every function of the package it calls.

    Parameters
    ----------
    function
        A plain function of ``npu_sim.tiling``.
    """
    if function not in _COMPILED:
        namespace = dict(function.__globals__)
        _COMPILED[function] = njit(
            FunctionType(function.__code__, namespace, function.__name__, function.__defaults__)
        )
        for name in function.__code__.co_names:
            called = namespace.get(name)
            if isinstance(called, FunctionType) and called.__module__.startswith("npu_sim"):
                namespace[name] = compiled(called)
    return _COMPILED[function]

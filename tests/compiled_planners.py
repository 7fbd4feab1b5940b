"""Compile a planner as sweeps do: planners must be compilable without importing Numba."""

from functools import cache

from numba import njit

from npu_sim.sweeps.compile import make_jitable


@cache
def compiled(function):
    """Return a function of ``npu_sim.tiling``, called from compiled code."""
    make_jitable(function)
    return njit(lambda *arguments: function(*arguments))

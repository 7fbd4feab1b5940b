"""Sweeps: plans of millions of calls.

An operator's declaration lists the sizes, dtypes and switches that can vary
(:mod:`npu_sim.framework.arguments`) and gives the integer planner of one row. Everything here is
independent of the operator. Numba is loaded when a sweep runs.
"""

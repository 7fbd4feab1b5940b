"""Sweeps: plans of millions of calls, and what a sweep may vary for every operator.

One module an operator says which sizes, dtypes and switches can vary (:mod:`npu_sim.framework.axes`), how a call follows from
them, and how one row is planned in whole numbers. The rest of the package is the same for all operators. Importing it costs
nothing; Numba is loaded when a sweep runs.
"""

"""Orders of addition: summation trees, contributions of cores, and the probes that make a tree visible.

Operators say here how their kernels add; studies take them up.
"""

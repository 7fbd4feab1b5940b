"""Vectors: lanes, blocks of lanes, whole cache lines, and sums and exponentials over them.

Only kernels enter.
"""

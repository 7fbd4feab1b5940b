"""Kernels whose order of additions only Ascend 950 has, in modules named after their operators."""

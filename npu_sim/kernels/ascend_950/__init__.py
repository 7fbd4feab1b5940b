"""Kernels of Ascend 950, for the operators that it computes in another order than A2 and A3."""

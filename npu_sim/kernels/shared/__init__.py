"""Kernels that several operators, studies or searches run, one module for each concept."""

"""How kernels are compiled, cached and spread over threads.

Only kernels enter; nothing here knows what a kernel computes.
"""

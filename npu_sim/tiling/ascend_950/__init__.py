"""Planners of Ascend 950, for the kernels of the operators that it plans otherwise.

Source: specification page ``ascend_950`` and the pages ``..._950`` of the operators: the public
sources of summer 2026. The device's whole Unified Buffer is usable here.
"""

"""Planners of ConvTbcBackward."""

from npu_sim.tiling.conv_tbc_backward.planner import plan_kernel

__all__ = ["plan_kernel"]

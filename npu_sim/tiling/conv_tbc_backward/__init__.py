"""Planners of ConvTbcBackward."""

from npu_sim.tiling.conv_tbc_backward.planner import plan_kernel
from npu_sim.tiling.conv_tbc_backward.structures import STRUCTURES

__all__ = ["STRUCTURES", "plan_kernel"]

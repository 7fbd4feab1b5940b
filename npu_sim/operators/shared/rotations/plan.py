"""Condition of the plans of RotaryPositionEmbedding and its gradient."""

from npu_sim.framework.vocabulary import Condition
from npu_sim.tiling import rotary_position_embedding as tiler

ALIGNED = Condition(
    "aligned",
    "D/2 is a multiple of the elements of a block of 32 bytes",
    lambda row, device, rules: tiler.half_is_aligned(row),
    "copies move whole rows",
    "copies move half rows, each padded to whole blocks",
    ("dim",),
)

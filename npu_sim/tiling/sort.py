"""The workspace of Sort, which operators with indices launch before their own kernel on A2 and A3.

Source: specification page ``workspace``, "The Sort kernel's own workspace"; a model, because closed
host code decides which branch runs. Pure integer functions that Numba compiles as they are.
"""

from npu_sim.tiling.integers import align

SORTABLE_ROWS = 2139095040
"""0x7F800000: the AI cores sort int32 as if its bits were fp32, in the same order below; from here
on the AI CPU sorts."""
ROWS_IN_UB = 6112
"""Up to here one core sorts all in its Unified Buffer: of 192 KiB less 1 KiB, a quarter down to 32
bytes, two buffers of 4 bytes a row."""


def sort_workspace_bytes(rows: int) -> int:
    """Return the bytes of workspace that the AI cores need to sort so many rows, 1 to ``SORTABLE_ROWS - 1``."""
    return 96 if rows <= ROWS_IN_UB else 16 * align(rows, 8) + 64

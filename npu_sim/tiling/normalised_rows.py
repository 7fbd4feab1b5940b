"""What the planners of RmsNorm and RmsNormGrad share: rows of one dtype in the Unified Buffer of a vector core.

Sources: specification pages ``rms_norm`` and ``rms_norm_grad``, "Tiling"; ``numerics``, "Sums inside one vector core".
"""

FP32, FP16, BF16 = 0, 1, 2
"""Dtype codes (page ``rms_norm_grad``, "dtype code")."""
DTYPE_CODES = {"float32": FP32, "float16": FP16, "bfloat16": BF16}

FP32_BYTES = 4
VECTOR_LANES = 64
"""fp32 lanes of one vector instruction."""
BLOCK_BYTES = 32
"""Bytes of one block, the least that a copy moves and what a core synchronises with."""
SYSTEM_WORKSPACE_BYTES = 16777216
"""16 MiB on every SoC (both pages, "Workspace"), not what the profile says."""


def element_bytes(dtype_code: int) -> int:
    """Bytes of an element."""
    return FP32_BYTES if dtype_code == FP32 else 2


def alignment(dtype_code: int) -> int:
    """Elements that a row is padded to (both pages, "col_align")."""
    return 8 if dtype_code == FP32 else 16

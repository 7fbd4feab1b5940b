"""What the declarations of several operators share."""

from typing import Any

from npu_sim.cores import Profile

FLOAT_DTYPES = ("float32", "float16", "bfloat16")
"""Words of every dtype axis; codes are positions."""
FLOAT32, FLOAT16, BFLOAT16 = range(3)
REFUSED = 161002
TILING_FAILED = 561002
HARDWARE_LIMIT = 561103
DOCUMENTED = 0
"""Code of ``limits = documented``."""
LARGEST_STATUS = 999999


def dtype_mask(profile: Profile) -> int:
    """Return one bit for every dtype of ``FLOAT_DTYPES`` that the product supports."""
    return sum(1 << code for code, dtype in enumerate(FLOAT_DTYPES) if dtype in profile.product.dtypes)


def has_dtype(mask: int, dtype: int) -> bool:
    """Whether a dtype is in a mask."""
    return (mask >> dtype) & 1 == 1


def status_bound(most: Any) -> int:
    """Largest status code."""
    return LARGEST_STATUS


def cores_bound(most: Any) -> int:
    """Cores of a vector operator."""
    return int(most.vector_cores)


def switch_bound(most: Any) -> int:
    """Largest magnitude of a flag, or of a schedule mode."""
    return 1
